//! A directory that is treated as `/`: every name is resolved below it, whatever its links point
//! at.
//!
//! A container image controls the targets of its links, so no path below a root that is being built
//! is ever passed to the kernel as a whole. The parent is opened with resolution confined to the
//! root, and the last name is used in it without following.

use stasis_sys::{files, libc};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{self as unix, DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

const DEEPEST: usize = 200;

pub struct RootTree {
    root: OwnedFd,
}

/// A name in a directory that is held open.
pub struct Slot {
    dir: OwnedFd,
    name: OsString,
}

impl Slot {
    /// A path to the entry itself; for calls that do not follow the last name.
    pub fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.dir.as_raw_fd().to_string()).join(&self.name)
    }
}

/// The names of a path, without `.` and with `..` refused.
pub fn names(path: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::RootDir | Component::CurDir => {}
            _ => return Err(refused("the path climbs out of its directory")),
        }
    }
    if names.len() > DEEPEST { Err(refused("the path is too deep")) } else { Ok(names) }
}

pub fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl RootTree {
    pub fn open(root: &Path) -> io::Result<RootTree> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(root)?;
        Ok(RootTree { root: file.into() })
    }

    fn open_at(&self, path: &Path, flags: i32) -> io::Result<OwnedFd> {
        let text = path.to_str().ok_or_else(|| refused("the name is not UTF-8"))?;
        let text = if text.is_empty() { "." } else { text };
        files::open_in_root(self.root.as_fd(), text, flags)
    }

    fn open_dir(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open_at(path, libc::O_PATH | libc::O_DIRECTORY)
    }

    /// The place of `path`, whose parent must be there. The root itself has none.
    pub fn slot(&self, path: &Path) -> io::Result<Slot> {
        let mut names = names(path)?;
        let name = names.pop().ok_or_else(|| refused("the root itself"))?;
        Ok(Slot { dir: self.open_dir(&names.iter().collect::<PathBuf>())?, name })
    }

    /// The place of `path`, with its parents made where they are missing.
    pub fn slot_made(&self, path: &Path) -> io::Result<Slot> {
        let names = names(path)?;
        let mut at = PathBuf::new();
        for name in names.iter().take(names.len().saturating_sub(1)) {
            at.push(name);
            self.make_dir(&at)?;
        }
        self.slot(path)
    }

    /// Creates one directory unless it, or a link to one, exists.
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        match self.open_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new().mode(0o755).create(self.slot(path)?.path())
            }
            other => other.map(drop),
        }
    }

    /// Creates a directory and its parents, with this mode and owner.
    pub fn make_dirs(&self, path: &Path, mode: u32, uid: u32) -> io::Result<()> {
        self.slot_made(path)?;
        self.make_dir(path)?;
        let dir = File::from(self.open_at(path, libc::O_RDONLY | libc::O_DIRECTORY)?);
        unix::fchown(&dir, Some(uid), Some(uid))?;
        dir.set_permissions(Permissions::from_mode(mode))
    }

    /// Writes a file of root's, in the place of a file or link of that name.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) -> io::Result<()> {
        let slot = self.slot_made(Path::new(path))?;
        absent_is_fine(fs::remove_file(slot.path()))?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(slot.path())?;
        file.write_all(text.as_ref())?;
        file.set_permissions(Permissions::from_mode(0o644))
    }

    /// The text of a file, or nothing if it does not exist. More than `most` bytes are refused.
    pub fn read(&self, path: &str, most: u64) -> io::Result<String> {
        let opened = self.open_at(Path::new(path), libc::O_RDONLY | libc::O_NONBLOCK);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            other => File::from(other?),
        };
        if !file.metadata()?.is_file() || file.metadata()?.len() > most {
            return Err(refused("not a file of a fitting size"));
        }
        let mut text = String::new();
        file.take(most).read_to_string(&mut text)?;
        Ok(text)
    }

    /// The names in a directory; none if it does not exist.
    pub fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let dir = match self.open_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let opened = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string());
        fs::read_dir(opened)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// The outside path of a directory of the root.
    pub fn real(&self, path: &Path) -> io::Result<PathBuf> {
        let dir = self.open_dir(path)?;
        fs::read_link(Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()))
    }

    /// Whether the path leads to a file that can be executed.
    pub fn is_program(&self, path: &Path) -> bool {
        let about = self.open_at(path, libc::O_PATH).and_then(|fd| File::from(fd).metadata());
        about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    }
}

pub fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
