//! From a file back to a name inside the machine.
//!
//! `/proc` prints the path at which a file *was* opened. The machine's own tree shows whether the
//! path still leads to it; a file that has another name by now is searched for, first among the
//! machine's changed files and last everywhere else.

use crate::error::{ErrorContext, Result};
use crate::tree::Tree;
use bstr::ByteSlice;
use stasis_sys::trees::{self, WalkEntry};
use stasis_sys::{fds, files as sysfiles, libc};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Entries read before a search is abandoned: the whole tree is stopped meanwhile.
const MOST_ENTRIES: u64 = 200_000;

const DELETED: &str = " (deleted)";

/// Which file, for as long as it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inode {
    pub device: u64,
    pub number: u64,
}

impl Inode {
    pub fn of(meta: &std::fs::Metadata) -> Inode {
        Inode { device: meta.dev(), number: meta.ino() }
    }
}

/// Names of one machine, while it is stopped.
pub struct PathLookup {
    root: OwnedFd,
    root_path: PathBuf,
    upper: PathBuf,
    /// Names that led to files when the machine was captured last.
    changed: Vec<String>,
}

impl PathLookup {
    pub fn of(tree: &Tree) -> Result<PathLookup> {
        let root_path = PathBuf::from(format!("/proc/{}/root", tree.walls.init.pid));
        let root = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(&root_path)
            .doing(|| "open the machine's root".into())?;
        let base = tree.base.iter().flat_map(|image| &image.manifest.files.entries);
        Ok(PathLookup {
            root: root.into(),
            root_path,
            upper: PathBuf::from(&tree.walls.files.upper),
            changed: base
                .filter_map(|entry| Some(format!("/{}", entry.path.to_str().ok()?)))
                .collect(),
        })
    }

    /// The file at a path; a link itself, not its target.
    fn look_up(&self, path: &str) -> Option<Inode> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let found = sysfiles::open_in_root(self.root.as_fd(), path, flags).ok()?;
        let stat = fds::stat(found.as_fd()).ok()?;
        Some(Inode { device: stat.st_dev, number: stat.st_ino })
    }

    pub fn leads_to(&self, path: &str, file: Inode) -> bool {
        path.starts_with('/') && self.look_up(path) == Some(file)
    }

    /// The name of a file that `/proc` calls `link`, if it still has one.
    pub fn current(&self, link: &str, file: Inode, links: u64) -> Option<String> {
        if !link.ends_with(DELETED) || self.leads_to(link, file) {
            return Some(link.to_owned());
        }
        if links == 0 {
            return None;
        }
        self.find_changed(&HashSet::from([file])).remove(&file)
    }

    /// Names of several files, searched as far as needed. `hints` are tried first.
    pub fn find(
        &self,
        wanted: &HashSet<Inode>,
        hints: impl Iterator<Item = String>,
    ) -> HashMap<Inode, String> {
        let mut found = HashMap::new();
        for path in hints.chain(self.changed.iter().cloned()) {
            if let Some(file) = self.look_up(&path).filter(|file| wanted.contains(file)) {
                found.entry(file).or_insert(path);
            }
        }
        let missing = |found: &HashMap<Inode, String>| -> HashSet<Inode> {
            wanted.iter().filter(|file| !found.contains_key(file)).copied().collect()
        };
        if found.len() < wanted.len() {
            found.extend(self.find_changed(&missing(&found)));
        }
        if found.len() < wanted.len() {
            found.extend(walk(&self.root_path, &missing(&found), |_, file| Some(file)));
        }
        found
    }

    fn find_changed(&self, wanted: &HashSet<Inode>) -> HashMap<Inode, String> {
        walk(&self.upper, wanted, |path, _| self.look_up(path))
    }
}

/// Searches a directory tree, on one file system, for the wanted files. Names that are not UTF-8
/// are not reported: nothing can be opened by them after a restore.
fn walk(
    top: &Path,
    wanted: &HashSet<Inode>,
    identify: impl Fn(&str, Inode) -> Option<Inode>,
) -> HashMap<Inode, String> {
    let mut found = HashMap::new();
    let Ok(dir) = File::open(top) else { return found };
    // a tree with more is not searched to its end
    let _ = trees::walk(dir.into(), MOST_ENTRIES, |at: WalkEntry| -> std::io::Result<_> {
        if found.len() == wanted.len() {
            return Ok(None);
        }
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        // files that were removed or are on another file system are skipped
        let Ok(own) = sysfiles::open_straight(at.dir, at.name, flags) else { return Ok(None) };
        let stat = fds::stat(own.as_fd())?;
        if let Ok(path) = std::str::from_utf8(at.path) {
            let path = format!("/{path}");
            let file = identify(&path, Inode { device: stat.st_dev, number: stat.st_ino });
            if let Some(file) = file.filter(|file| wanted.contains(file)) {
                found.entry(file).or_insert(path);
            }
        }
        let is_dir = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        Ok(is_dir.then(|| trees::enter(at.dir, at.name).ok()).flatten())
    });
    found
}
