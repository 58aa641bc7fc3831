//! Copies files of the host with all they need to run, each once.

use super::libraries::{Finder, Needs, needs};
use super::merged;
use crate::error::{Error, ErrorContext, Result};
use crate::progress::Progress;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The path inside for a path of the host.
pub type PathMap = dyn Fn(&Path) -> PathBuf;

pub struct Copier<'a> {
    root: &'a Path,
    place: &'a PathMap,
    progress: &'a dyn Progress,
    finder: Finder,
    /// Sources whose needs are met.
    done: HashSet<PathBuf>,
    /// Files with several names stay one file.
    inodes: HashMap<(u64, u64), PathBuf>,
    /// The directory of libraries inside.
    places: BTreeSet<PathBuf>,
    bytes: u64,
}

impl<'a> Copier<'a> {
    pub fn new(root: &'a Path, place: &'a PathMap, progress: &'a dyn Progress) -> Copier<'a> {
        Copier {
            root,
            place,
            progress,
            finder: Finder::of_host(),
            done: HashSet::new(),
            inodes: HashMap::new(),
            places: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// The directories used for libraries.
    pub fn finish(self) -> Vec<PathBuf> {
        self.progress.step("base", self.bytes, Some(self.bytes));
        self.places.into_iter().collect()
    }

    fn outside(&self, inside: &Path) -> PathBuf {
        self.root.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Copies a program or library with all its dependencies; returns its path inside.
    pub fn program(&mut self, path: &Path) -> Result<PathBuf> {
        let real = fs::canonicalize(path).doing(|| format!("{}", path.display()))?;
        let inside = (self.place)(&real);
        self.copy(&real, &inside)?;
        let named = (self.place)(&name_of(path));
        if named != inside {
            self.link(&named, &inside)?;
        }
        self.meet(&real)?;
        Ok(inside)
    }

    /// Copies a program to a given path, with all its dependencies.
    pub fn program_at(&mut self, path: &Path, inside: &Path) -> Result<()> {
        self.copy(path, inside)?;
        self.meet(path)
    }

    /// Copies a library by name, if it exists.
    pub fn library(&mut self, name: &str, search: &[PathBuf]) -> Result<()> {
        let Some(path) = self.finder.find(name, search) else { return Ok(()) };
        let inside = self.program(&path)?;
        self.places.extend(inside.parent().map(Path::to_owned));
        Ok(())
    }

    /// Copies the dependencies of an existing file.
    fn meet(&mut self, real: &Path) -> Result<()> {
        if !self.done.insert(real.to_owned()) {
            return Ok(());
        }
        let Needs { loader, libraries, search } = needs(real);
        if let Some(loader) = loader {
            self.program(&loader)?;
        }
        for name in libraries {
            self.library(&name, &search)?;
        }
        Ok(())
    }

    /// Copies a directory with its contents, to the path that the interpreter's paths map to.
    pub fn tree(&mut self, dir: &Path, skipped: &dyn Fn(&str) -> bool) -> Result<()> {
        let doing = || format!("{}", dir.display());
        let inside = (self.place)(dir);
        fs::create_dir_all(self.outside(&inside)).doing(doing)?;
        for entry in fs::read_dir(dir).doing(doing)? {
            let entry = entry.doing(doing)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !skipped(&name) {
                self.entry(&entry.path(), &inside.join(entry.file_name()), skipped)?;
            }
        }
        self.keep_time(dir, &inside)
    }

    fn entry(
        &mut self,
        source: &Path,
        inside: &Path,
        skipped: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        let kind = fs::symlink_metadata(source).doing(|| format!("{}", source.display()))?;
        if kind.is_dir() {
            return self.tree(source, skipped);
        }
        if kind.is_symlink() {
            let target = fs::read_link(source).doing(|| format!("{}", source.display()))?;
            let stays = target.components().count() == 1;
            if stays {
                return self.link_as(inside, &target);
            }
        }
        // a link that leads elsewhere is replaced by its target; sockets and the like are skipped
        if fs::metadata(source).is_ok_and(|about| about.is_file()) {
            self.copy(source, inside)?;
            let real = fs::canonicalize(source).doing(|| format!("{}", source.display()))?;
            self.meet(&real)?;
        }
        Ok(())
    }

    /// Copies one file to its path inside, unless it exists.
    pub fn copy(&mut self, source: &Path, inside: &Path) -> Result<()> {
        let target = self.outside(inside);
        if target.symlink_metadata().is_ok() {
            return Ok(());
        }
        self.copy_new(source, &target).map_err(|error| Error::Io {
            doing: format!("copying {} to {}", source.display(), inside.display()),
            source: error,
        })
    }

    fn copy_new(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        fs::create_dir_all(target.parent().unwrap_or(self.root))?;
        let about = fs::metadata(source)?;
        let key = (about.dev(), about.ino());
        if let Some(first) = self.inodes.get(&key).filter(|_| about.nlink() > 1) {
            return fs::hard_link(first, target);
        }
        fs::copy(source, target)?;
        // no user inside gains another's rights by running a program
        fs::set_permissions(target, Permissions::from_mode(about.mode() & 0o755 | 0o444))?;
        set_time(target, &about)?;
        self.inodes.insert(key, target.to_owned());
        self.bytes += about.len();
        self.progress.step("base", self.bytes, None);
        Ok(())
    }

    fn keep_time(&self, source: &Path, inside: &Path) -> Result<()> {
        let doing = || format!("{}", source.display());
        let about = fs::metadata(source).doing(doing)?;
        set_time(&self.outside(inside), &about).doing(doing)
    }

    /// A link at `inside` to another path inside.
    pub fn link(&mut self, inside: &Path, to: &Path) -> Result<()> {
        let near = inside.parent() == to.parent();
        let target =
            if near { PathBuf::from(to.file_name().unwrap_or_default()) } else { to.into() };
        self.link_as(inside, &target)
    }

    fn link_as(&mut self, inside: &Path, target: &Path) -> Result<()> {
        let place = self.outside(inside);
        if place.symlink_metadata().is_ok() {
            return Ok(());
        }
        fs::create_dir_all(place.parent().unwrap_or(self.root))
            .and_then(|()| symlink(target, &place))
            .doing(|| format!("{}", inside.display()))
    }

    /// Writes a file of our own.
    pub fn write(&mut self, inside: &str, text: &str) -> Result<()> {
        let place = self.outside(Path::new(inside));
        fs::create_dir_all(place.parent().unwrap_or(self.root))
            .and_then(|()| fs::write(&place, text))
            .doing(|| inside.to_owned())
    }
}

fn set_time(path: &Path, about: &Metadata) -> io::Result<()> {
    let text = path.to_str().ok_or_else(|| io::Error::other("the path is not UTF-8"))?;
    stasis_sys::files::set_mtime(text, about.mtime(), about.mtime_nsec())
}

/// A path with links in its directories followed, but not in its last name.
fn name_of(path: &Path) -> PathBuf {
    let dir = path.parent().and_then(|dir| fs::canonicalize(dir).ok());
    match (dir, path.file_name()) {
        (Some(dir), Some(name)) => dir.join(name),
        _ => merged(path),
    }
}
