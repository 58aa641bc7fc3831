//! Directory trees of any depth, which a hostile program made and may be changing: walked, reached
//! and removed by descriptor.
//!
//!   walk    parents first, names in order; the visitor opens what it wants to enter
//!   remove  everything goes
//!   Below   names of any length in a directory, resolved piece by piece
//!
//! Nothing recurses, few directories are open at once, no link is followed, no other mount is
//! entered, and no path is handed to the kernel that could be longer than it takes.

use crate::files::{RawEntry, open_straight, raw_entries};
use crate::{below, c_string, check, fds};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories that are open at once.
const OPEN: usize = 64;
const BUFFER: usize = 32 << 10;
/// Maximum bytes of a path passed to the kernel at once; within `PATH_MAX` there is space for its
/// prefix.
const PIECE: usize = 2048;
/// How often a directory is emptied that is being filled meanwhile.
const TRIES: usize = 8;

/// One name that a walk has come to.
pub struct WalkEntry<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: &'a OsStr,
    /// `DT_REG` and the like, `DT_UNKNOWN` where the file system does not tell.
    pub kind: u8,
    /// The whole path from the top.
    pub path: &'a [u8],
}

struct Level {
    /// Closed while the walk is far below it.
    dir: Option<OwnedFd>,
    inode: (u64, u64),
    names: std::vec::IntoIter<RawEntry>,
    /// Bytes of the path that lead here.
    path: usize,
}

impl Level {
    fn of(dir: OwnedFd, path: usize, room: &mut u64) -> io::Result<Level> {
        let inode = inode(dir.as_fd())?;
        let mut names = Vec::new();
        let mut buffer = vec![0; BUFFER];
        loop {
            let some = raw_entries(dir.as_fd(), &mut buffer)?;
            if some.is_empty() {
                break;
            }
            names.extend(some.into_iter().filter(|entry| entry.name != "." && entry.name != ".."));
            if names.len() as u64 > *room {
                return Err(too_many());
            }
        }
        *room -= names.len() as u64;
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(Level { dir: Some(dir), inode, names: names.into_iter(), path })
    }
}

fn inode(fd: BorrowedFd) -> io::Result<(u64, u64)> {
    let stat = fds::stat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, "there are too many files")
}

/// Whether a walk ended because there were more names than it was allowed.
pub fn is_too_many(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::QuotaExceeded
}

/// Opens a directory by its name in another, to be entered.
pub fn enter(dir: BorrowedFd, name: &OsStr) -> io::Result<OwnedFd> {
    open_straight(dir, name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW)
}

/// Visits everything below a directory, `most` names in all. The visitor returns a directory to
/// have it entered. A tree that changes under the walk ends it with an error at the latest when it
/// returns to a directory that is not where it was.
pub fn walk<E: From<io::Error>>(
    top: OwnedFd,
    most: u64,
    mut visit: impl FnMut(WalkEntry) -> Result<Option<OwnedFd>, E>,
) -> Result<(), E> {
    let mut room = most;
    let mut path = Vec::new();
    let mut levels = vec![Level::of(top, 0, &mut room)?];
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path);
        let Some(entry) = level.names.next() else {
            let done = levels.pop().and_then(|level| level.dir);
            if let (Some(above @ Level { dir: None, .. }), Some(below)) = (levels.last_mut(), done)
            {
                above.dir = Some(parent_of(below.as_fd(), above.inode)?);
            }
            continue;
        };
        let Some(dir) = &level.dir else { return Err(moved().into()) };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(entry.name.as_bytes());
        let at = WalkEntry { dir: dir.as_fd(), name: &entry.name, kind: entry.kind, path: &path };
        let Some(inner) = visit(at)? else { continue };
        levels.push(Level::of(inner, path.len(), &mut room)?);
        if let Some(far) = levels.len().checked_sub(OPEN + 1) {
            levels[far].dir = None;
        }
    }
    Ok(())
}

/// Whether an open directory has no entries. Reading it begins anew afterwards.
pub fn is_empty(dir: BorrowedFd) -> io::Result<bool> {
    // more than the longest entry, behind the directory's own two
    let mut buffer = [0; 1024];
    fds::seek(dir, 0, libc::SEEK_SET)?;
    let found = loop {
        let some = raw_entries(dir, &mut buffer)?;
        match some.iter().find(|entry| entry.name != "." && entry.name != "..") {
            Some(_) => break true,
            None if some.is_empty() => break false,
            None => {}
        }
    };
    fds::seek(dir, 0, libc::SEEK_SET)?;
    Ok(!found)
}

/// Opens the directory that another is in, if it is this one.
fn parent_of(below: BorrowedFd, expected: (u64, u64)) -> io::Result<OwnedFd> {
    let name = c_string("..")?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the name outlives the call; the descriptor is new and ours.
    let dir = unsafe {
        let fd = check(libc::openat(below.as_raw_fd(), name.as_ptr(), flags).into())?;
        OwnedFd::from_raw_fd(fd as i32)
    };
    if inode(dir.as_fd())? == expected { Ok(dir) } else { Err(moved()) }
}

fn moved() -> io::Error {
    io::Error::other("a directory was moved while it was being read")
}

/// Removes the file at a path, with everything in it. A link is removed and not followed; a missing
/// file is fine.
pub fn remove(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    match File::open(parent.unwrap_or(Path::new("."))) {
        Ok(dir) => remove_at(dir.as_fd(), name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The same for a name in a directory.
pub fn remove_at(dir: BorrowedFd, name: &OsStr) -> io::Result<()> {
    for _ in 0..TRIES {
        match below::remove(dir, name, 0) {
            Err(error) if is_dir(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
        let emptied = enter(dir, name).and_then(empty);
        match emptied.and_then(|()| below::remove(dir, name, libc::AT_REMOVEDIR)) {
            // something was put there meanwhile
            Err(error) if is_gone(&error) || error.kind() == NOT_EMPTY => {}
            other => return other,
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENOTEMPTY))
}

const NOT_EMPTY: io::ErrorKind = io::ErrorKind::DirectoryNotEmpty;

fn is_dir(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EISDIR)
}

/// Something else has the name by now, or nothing has.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// A directory that is being emptied.
struct Emptying {
    /// Closed while something far below it goes.
    dir: Option<OwnedFd>,
    inode: (u64, u64),
    name: OsString,
    batch: std::vec::IntoIter<RawEntry>,
}

impl Emptying {
    fn of(dir: OwnedFd, name: OsString) -> io::Result<Emptying> {
        let inode = inode(dir.as_fd())?;
        Ok(Emptying { dir: Some(dir), inode, name, batch: Vec::new().into_iter() })
    }

    /// The next entry.
    fn next(&mut self, buffer: &mut [u8]) -> io::Result<Option<RawEntry>> {
        loop {
            match self.batch.next() {
                Some(entry) if entry.name == "." || entry.name == ".." => {}
                Some(entry) => return Ok(Some(entry)),
                None => {
                    let dir = self.dir.as_ref().ok_or_else(moved)?;
                    let batch = raw_entries(dir.as_fd(), buffer)?;
                    if batch.is_empty() {
                        return Ok(None);
                    }
                    self.batch = batch.into_iter();
                }
            }
        }
    }
}

/// Removes everything in a directory.
pub fn empty(top: OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut levels = vec![Emptying::of(top, OsString::new())?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.next(&mut buffer)? else {
            let done = levels.pop();
            if let (Some(above), Some(done)) = (levels.last_mut(), done) {
                leave(above, &done)?;
            }
            continue;
        };
        let dir = level.dir.as_ref().ok_or_else(moved)?.as_fd();
        if entry.kind != libc::DT_DIR {
            match below::remove(dir, &entry.name, 0) {
                Err(error) if is_dir(&error) => {}
                Err(error) if !is_gone(&error) => return Err(error),
                _ => continue,
            }
        }
        match enter(dir, &entry.name) {
            Ok(inner) => levels.push(Emptying::of(inner, entry.name)?),
            Err(error) if is_gone(&error) => {
                let _ = below::remove(dir, &entry.name, 0);
            }
            Err(error) => return Err(error),
        }
        if let Some(far) = levels.len().checked_sub(OPEN + 1) {
            levels[far].dir = None;
        }
    }
    Ok(())
}

/// Goes back up from a directory that was emptied, and removes it.
fn leave(above: &mut Emptying, done: &Emptying) -> io::Result<()> {
    if above.dir.is_none() {
        let from = done.dir.as_ref().ok_or_else(moved)?;
        above.dir = Some(parent_of(from.as_fd(), above.inode)?);
    }
    let dir = above.dir.as_ref().ok_or_else(moved)?;
    match below::remove(dir.as_fd(), &done.name, libc::AT_REMOVEDIR) {
        Err(error) if is_gone(&error) => Ok(()),
        other => other,
    }
}

/// Names of any length below a directory, for writing and reading trees of files.
pub struct PathsBelow {
    top: OwnedFd,
    /// The directory used last: most names are beside or below the one before.
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl PathsBelow {
    pub fn open(top: &Path) -> io::Result<PathsBelow> {
        Ok(PathsBelow { top: File::open(top)?.into(), last: None })
    }

    /// A path to the entry itself, to be used while this is not: for calls that do not follow the
    /// last name.
    pub fn slot(&mut self, path: &[u8]) -> io::Result<PathBuf> {
        let (parent, name) = split(path);
        let dir = self.directory(parent)?;
        Ok(Path::new(&below::own_name(dir)).join(OsStr::from_bytes(name)))
    }

    /// The directory at a path, open for names in it.
    pub fn directory(&mut self, path: &[u8]) -> io::Result<BorrowedFd<'_>> {
        if path.is_empty() {
            return Ok(self.top.as_fd());
        }
        let known = self.last.take();
        let dir = match known {
            Some((at, dir)) if at == path => dir,
            Some((at, dir)) if path.starts_with(&at) && path[at.len()] == b'/' => {
                open_far(dir.as_fd(), &path[at.len() + 1..])?
            }
            _ => open_far(self.top.as_fd(), path)?,
        };
        let last = self.last.insert((path.to_vec(), dir));
        Ok(last.1.as_fd())
    }
}

/// The directory a path leads through, and its last name.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Opens a directory by a path of any length.
fn open_far(dir: BorrowedFd, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let mut at: Option<OwnedFd> = None;
    let mut rest = path;
    loop {
        let from = at.as_ref().map_or(dir, |at| at.as_fd());
        if rest.len() <= PIECE {
            return open_straight(from, OsStr::from_bytes(rest), flags);
        }
        let slash = rest[..PIECE].iter().rposition(|byte| *byte == b'/');
        let Some(slash) = slash else {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        };
        at = Some(open_straight(from, OsStr::from_bytes(&rest[..slash]), flags)?);
        rest = &rest[slash + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn opened(dir: &Path) -> OwnedFd {
        File::open(dir).expect("a directory").into()
    }

    /// A chain of directories, made from within: no path is that long.
    fn make_deep(top: &Path, depth: usize) {
        let mut dir = opened(top);
        for _ in 0..depth {
            below::make_dir(dir.as_fd(), "d", 0o755).expect("made");
            dir = enter(dir.as_fd(), "d".as_ref()).expect("entered");
        }
        let file = OsStr::from_bytes(b"\xff");
        let slot = Path::new(&below::own_name(dir.as_fd())).join(file);
        std::fs::write(slot, "deep").expect("written");
    }

    /// How many names there are, and the longest path.
    fn look(top: &Path) -> (usize, Vec<u8>) {
        let mut found = (0, Vec::new());
        let walked = walk(opened(top), u64::MAX, |at: WalkEntry| {
            found.0 += 1;
            if at.path.len() > found.1.len() {
                found.1.clear();
                found.1.extend_from_slice(at.path);
            }
            match at.kind {
                libc::DT_DIR => enter(at.dir, at.name).map(Some),
                _ => Ok(None),
            }
        });
        walked.expect("walked");
        found
    }

    #[test]
    fn a_tree_of_any_depth_is_walked_reached_and_removed() {
        for depth in [1, OPEN - 1, OPEN, OPEN + 1, 3000, 20_000] {
            // in memory: disks take a millisecond for each directory that goes
            let tmp = tempfile::tempdir_in("/dev/shm").expect("a directory");
            let top = tmp.path().join("top");
            std::fs::create_dir(&top).expect("made");
            make_deep(&top, depth);
            std::fs::write(top.join("z"), "").expect("written");
            let (count, longest) = look(&top);
            assert_eq!((count, longest.len()), (depth + 2, 2 * depth + 1));
            assert_eq!(longest.last(), Some(&0xff));
            let slot = PathsBelow::open(&top).expect("open").slot(&longest).map(drop);
            assert!(slot.is_ok(), "{depth}: {slot:?}");
            remove(&top).expect("removed");
            assert!(!top.exists());
        }
    }

    #[test]
    fn a_wide_tree_goes_and_what_links_lead_to_stays() {
        let tmp = tempfile::tempdir().expect("a directory");
        let (top, kept) = (tmp.path().join("top"), tmp.path().join("kept"));
        std::fs::create_dir_all(&kept).expect("made");
        std::fs::write(kept.join("file"), "").expect("written");
        for outer in 0..30 {
            let dir = top.join(format!("{outer}/.stasis-moved-1"));
            std::fs::create_dir_all(&dir).expect("made");
            symlink(&kept, dir.join("link")).expect("linked");
            make_deep(&dir, 2 * OPEN + outer);
            (0..200).for_each(|n| std::fs::write(dir.join(n.to_string()), "").expect("written"));
        }
        std::fs::create_dir(top.join(".stasis-moved-2")).expect("made");
        std::fs::write(top.join(".stasis-moved-3"), "").expect("written");
        assert_eq!(look(&top).0, 2 + 30 * (204 + 2 * OPEN) + 29 * 30 / 2);
        remove(&top).expect("removed");
        assert!(!top.exists() && kept.join("file").exists());
        symlink(&kept, &top).expect("linked");
        remove(&top).expect("removed");
        remove(&top).expect("what is not there is fine");
        assert!(kept.join("file").exists());
    }

    #[test]
    fn a_walk_has_an_end() {
        let tmp = tempfile::tempdir().expect("a directory");
        (0..10).for_each(|n| std::fs::write(tmp.path().join(n.to_string()), "").expect("written"));
        let walked = walk(opened(tmp.path()), 9, |_: WalkEntry| io::Result::Ok(None));
        assert!(is_too_many(&walked.expect_err("ten")));
    }

    #[test]
    fn a_long_name_leads_nowhere_else() {
        let tmp = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(tmp.path().join("top/a")).expect("made");
        symlink("..", tmp.path().join("top/up")).expect("linked");
        let mut below = PathsBelow::open(&tmp.path().join("top")).expect("open");
        for path in ["up/x", "a/../../x", "../x"] {
            assert!(below.slot(path.as_bytes()).is_err(), "{path}");
        }
        assert!(below.slot(b"a/x").is_ok());
    }
}
