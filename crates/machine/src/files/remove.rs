//! Removing files and directories.

use super::{Fault, path};
use crate::error::Result;
use crate::machine::Machine;
use stasis_api::EventKind;
use stasis_sys::{below, files, libc};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Deeper trees are not removed from outside: each level holds a descriptor.
const DEEPEST: usize = 128;
/// How often a machine may leave memory meanwhile.
const TRIES: usize = 3;

impl Machine {
    /// Removes a file, a link, or a directory; one with something in it only if told so.
    pub fn remove_file(self: &Arc<Self>, given: &str, recursive: bool) -> Result<String> {
        let path = path::absolute(given).map_err(|fault| self.fault(given, fault))?;
        for _ in 0..TRIES {
            let files = self.files()?;
            let remove = || -> std::result::Result<(), Fault> {
                let _as = files.act();
                let (parent, name) = path::split(&path)?;
                let dir = files.open(parent, libc::O_PATH | libc::O_DIRECTORY)?;
                one(dir.as_fd(), name, recursive.then_some(DEEPEST))
            };
            let Some((removed, falls)) = self.change(&files, remove) else { continue };
            // some of it may be gone even if the rest would not go
            self.keep_changes(&path, falls, None)?;
            removed.map_err(|fault| self.fault(&path, fault))?;
            self.event_about(EventKind::FileRemoved, &path);
            return Ok(path);
        }
        Err(self.fault(&path, Fault::Unsteady))
    }
}

/// `depth`: how many levels of directories may go.
fn one(dir: BorrowedFd, name: &str, depth: Option<usize>) -> std::result::Result<(), Fault> {
    match below::remove(dir, name, 0) {
        Err(error) if error.raw_os_error() == Some(libc::EISDIR) => {}
        other => return Ok(other?),
    }
    if let Some(depth) = depth {
        empty(dir, name, depth.checked_sub(1).ok_or(Fault::TooDeep)?)?;
    }
    Ok(below::remove(dir, name, libc::AT_REMOVEDIR)?)
}

fn empty(dir: BorrowedFd, name: &str, depth: usize) -> std::result::Result<(), Fault> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let own = below::open(dir, name, flags, 0)?;
    loop {
        let entries = files::next_entries(own.as_fd())?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries.iter().filter(|entry| entry.name != "." && entry.name != "..") {
            one(own.as_fd(), &entry.name, Some(depth))?;
        }
    }
}
