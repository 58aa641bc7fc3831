//! Directories, open at the entry their listing had come to.
//!
//! Offsets depend on the file system: the saved one is tried first, and if another entry comes next
//! there (another file system, layers merged differently) the entry is searched for. Fails if no
//! position has the right entry next.

use stasis_sys::{fds, files, libc};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The directory for temporary nameless directories.
const NOWHERE: &str = "/.stasis/removed";

pub fn open(
    root: &OwnedFd,
    path: &str,
    flags: i32,
    offset: u64,
    next: Option<&str>,
) -> io::Result<OwnedFd> {
    if path.is_empty() {
        return removed(root, flags);
    }
    let dir = super::open(root, path, flags, None)?;
    if Path::new(path).starts_with("/proc") {
        // processes start and end, those of the image come later, and offsets are their numbers
        fds::seek(&dir, offset as i64, libc::SEEK_SET)?;
    } else if offset != 0 {
        position(&dir, offset, next)
            .map_err(|error| io::Error::other(format!("read {path} up to {next:?}: {error}")))?;
    }
    Ok(dir)
}

fn removed(root: &OwnedFd, flags: i32) -> io::Result<OwnedFd> {
    let path = Path::new(NOWHERE);
    std::fs::create_dir_all(path)?;
    let dir = super::open(root, NOWHERE, flags, None);
    std::fs::remove_dir(path)?;
    dir
}

fn position(dir: &OwnedFd, offset: u64, next: Option<&str>) -> io::Result<()> {
    let to = |offset: u64| fds::seek(dir, offset as i64, libc::SEEK_SET);
    to(offset)?;
    let there = files::next_entries(dir.as_fd())?;
    if there.first().map(|entry| entry.name.as_str()) == next {
        return to(offset).map(drop);
    }
    to(search(dir, next)?).map(drop)
}

/// The position before the entry `next`, or after the last.
fn search(dir: &OwnedFd, next: Option<&str>) -> io::Result<u64> {
    let mut at = fds::seek(dir, 0, libc::SEEK_SET)?;
    loop {
        let entries = files::next_entries(dir.as_fd())?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            if next == Some(entry.name.as_str()) {
                return Ok(at);
            }
            at = entry.after;
        }
    }
    next.map_or(Ok(at), |_| Err(io::Error::other("the entry no longer exists")))
}
