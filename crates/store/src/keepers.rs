//! Inodes whose numbers images need, kept as long as an image names them.
//!
//!   DIR/keepers/<id>.at    a link that is never followed: where the inode is, DIRECTORY/./PATH
//!   DIR/keepers/<id>       the inode itself, emptied, after its directory was removed
//!
//! A file that is open for writing when it is captured has, in every copy, the inode number it had
//! in the source ([`Origin`]). So its inode must outlive the source's directory. It cannot have a
//! second name meanwhile, which a program would see; it is moved here when that directory is
//! removed. The link exists before the image does, so that the next open after a crash can do the
//! same. (A link and not a file: its target is on disk as soon as its name is.)
//!
//! If anything fails here, files of later copies get other numbers; nothing else depends on it.

use super::private_dir;
use crate::error::{ErrorContext, Result};
use crate::origin::Origin;
use parking_lot::{Mutex, MutexGuard};
use stasis_image::OriginId;
use stasis_sys::trees::{self, PathsBelow, WalkEntry};
use stasis_sys::{fds, files as sysfiles, handles, libc};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const AT: &str = ".at";
/// Maximum files scanned to find renamed ones.
const MOST_FILES: u64 = 200_000;

pub struct Keepers {
    dir: PathBuf,
    top: File,
    /// The location of origins: on this file system, if it has handles.
    home: Option<Home>,
    living: Mutex<HashMap<OriginId, Arc<LiveInode>>>,
}

struct Home {
    uuid: [u8; 16],
    device: u64,
}

/// An inode that is still in its first directory. It is kept as long as this is held.
pub struct LiveInode {
    origin: Origin,
    dir: PathBuf,
    path: String,
}

impl Keepers {
    /// Opens the directory, and completes the moves of its previous users.
    pub fn open(dir: &Path) -> Result<Keepers> {
        private_dir(dir).doing(|| format!("make {}", dir.display()))?;
        let top = File::open(dir).doing(|| format!("open {}", dir.display()))?;
        let home = home_of(top.as_fd()).ok();
        let keepers = Keepers { dir: dir.to_owned(), top, home, living: Mutex::default() };
        for (dir, wanted) in keepers.noted() {
            keepers.take_in(&dir, wanted);
        }
        Ok(keepers)
    }

    fn living(&self) -> MutexGuard<'_, HashMap<OriginId, Arc<LiveInode>>> {
        self.living.lock()
    }

    fn note_path(&self, id: OriginId) -> PathBuf {
        self.dir.join(format!("{id}{AT}"))
    }

    /// Identifies a regular file that can be an origin.
    pub fn identify(&self, dir: &Path, path: &str) -> Option<Origin> {
        self.identify_with_number(dir, path).map(|(origin, _)| origin)
    }

    /// The same with its own inode number.
    pub fn identify_with_number(&self, dir: &Path, path: &str) -> Option<(Origin, u64)> {
        let (parent, name) = trees::split(path.as_bytes());
        let mut below = PathsBelow::open(dir).ok()?;
        self.identify_at(below.directory(parent).ok()?, OsStr::from_bytes(name))
    }

    fn identify_at(&self, dir: BorrowedFd, name: &OsStr) -> Option<(Origin, u64)> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let file = sysfiles::open_straight(dir, name, flags).ok()?;
        let stat = fds::stat(file.as_fd()).ok()?;
        let home = self.home.as_ref().filter(|home| home.device == stat.st_dev)?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_nlink != 1 {
            return None;
        }
        let origin = Origin::new(home.uuid, &handles::handle_at(file.as_fd(), "").ok()?)?;
        Some((origin, stat.st_ino))
    }

    /// Notes that an image is about to name this file of a directory that will be removed.
    pub fn note(&self, dir: &Path, path: &str, origin: Origin) -> Result<Arc<LiveInode>> {
        let id = origin.id();
        let mut living = self.living();
        if let Some(known) = living.get(&id) {
            return Ok(known.clone());
        }
        let place = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let place = format!("{}/./{path}", place.display());
        match symlink(place, self.note_path(id)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).doing(|| format!("note where {path} is"));
            }
            _ => {}
        }
        let noted = Arc::new(LiveInode { origin, dir: dir.to_owned(), path: path.to_owned() });
        living.insert(id, noted.clone());
        Ok(noted)
    }

    /// The inode of this id, in its current directory.
    pub fn find(&self, id: OriginId) -> Option<Origin> {
        if let Some(living) = self.living().get(&id) {
            return Some(living.origin.clone());
        }
        self.identify(&self.dir, &id.to_string()).filter(|origin| origin.id() == id)
    }

    /// Moves noted files out of a directory that is about to be removed.
    pub fn release(&self, dir: &Path) {
        let is_there = |living: &&Arc<LiveInode>| living.dir == dir;
        let there: Vec<_> = self.living().values().filter(is_there).cloned().collect();
        if there.is_empty() {
            return;
        }
        let named = |living: &Arc<LiveInode>| (living.origin.id(), living.path.clone());
        self.take_in(dir, there.iter().map(named).collect());
        // only now: a concurrent lookup finds one or the other
        self.living().retain(|_, living| living.dir != dir);
    }

    /// Removes inodes that are not needed and not about to be named.
    pub fn sweep(&self, needed: &HashSet<OriginId>) -> Result<()> {
        let mut living = self.living();
        let entries = std::fs::read_dir(&self.dir).doing(|| "list kept inodes".into())?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.trim_end_matches(AT).parse().ok());
            let used = |id: &OriginId| living.get(id).is_some_and(|own| Arc::strong_count(own) > 1);
            if id.is_some_and(|id| needed.contains(&id) || used(&id)) {
                continue;
            }
            id.and_then(|id| living.remove(&id));
            let path = entry.path();
            std::fs::remove_file(&path).doing(|| format!("remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Notes of an exited program, by directory.
    fn noted(&self) -> HashMap<PathBuf, HashMap<OriginId, String>> {
        let mut noted: HashMap<_, HashMap<_, _>> = HashMap::new();
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(AT)?.parse().ok());
            let place = std::fs::read_link(entry.path()).ok();
            let place =
                place.as_deref().and_then(Path::to_str).and_then(|at| at.rsplit_once("/./"));
            if let (Some(id), Some((dir, path))) = (id, place) {
                noted.entry(PathBuf::from(dir)).or_default().insert(id, path.to_owned());
            }
        }
        noted
    }

    /// Moves inodes here; searches for those that were renamed.
    fn take_in(&self, dir: &Path, mut wanted: HashMap<OriginId, String>) {
        let all: Vec<OriginId> = wanted.keys().copied().collect();
        wanted.retain(|id, path| !self.take(dir, path, *id));
        if !wanted.is_empty() {
            self.search(dir, wanted.into_keys().collect());
        }
        for id in all {
            let _ = std::fs::remove_file(self.note_path(id));
        }
    }

    fn search(&self, dir: &Path, mut wanted: HashSet<OriginId>) {
        let Ok(top) = File::open(dir) else { return };
        // inodes in unreadable directories stay, and their numbers are lost
        let _ = trees::walk(top.into(), MOST_FILES, |at: WalkEntry| -> io::Result<_> {
            match at.kind {
                libc::DT_DIR if wanted.is_empty() => Ok(None),
                libc::DT_DIR => trees::enter(at.dir, at.name).map(Some),
                _ => {
                    let found = self.identify_at(at.dir, at.name).map(|(origin, _)| origin.id());
                    if let Some(id) = found.filter(|id| wanted.remove(id)) {
                        let _ = self.take_at(at.dir, at.name, id);
                    }
                    Ok(None)
                }
            }
        });
    }

    /// Moves one inode here and empties it, if the path leads to it. A program chose the path, so
    /// no link is followed.
    fn take(&self, dir: &Path, path: &str, id: OriginId) -> bool {
        let take = || -> io::Result<bool> {
            let (parent, name) = trees::split(path.as_bytes());
            let mut below = PathsBelow::open(dir)?;
            self.take_at(below.directory(parent)?, OsStr::from_bytes(name), id)
        };
        take().unwrap_or(false)
    }

    fn take_at(&self, dir: BorrowedFd, name: &OsStr, id: OriginId) -> io::Result<bool> {
        let found = handles::handle_at(dir, name)?;
        let origin = self.home.as_ref().and_then(|home| Origin::new(home.uuid, &found));
        if origin.map(|origin| origin.id()) != Some(id) {
            return Ok(false);
        }
        let own = id.to_string();
        handles::move_at((dir, name), (self.top.as_fd(), own.as_ref()))?;
        let flags = libc::O_WRONLY | libc::O_NONBLOCK;
        let kept = sysfiles::open_straight(self.top.as_fd(), &own, flags)?;
        File::from(kept).set_len(0)?;
        Ok(true)
    }
}

fn home_of(dir: BorrowedFd) -> io::Result<Home> {
    let uuid = handles::file_system_uuid(dir)?;
    handles::handle_at(dir, "")?;
    Ok(Home { uuid, device: fds::stat(dir)?.st_dev })
}
