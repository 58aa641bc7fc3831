//! Removes files and directories.

use super::access::FileAccess;
use super::{FileError, FileUser, path};
use crate::error::Result;
use crate::machine::Machine;
use stasis_api::EventKind;
use stasis_sys::{below, libc, trees};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// How often a machine may leave memory meanwhile.
const TRIES: usize = 3;

impl Machine {
    /// Removes a file, a link, or a directory; a non-empty directory only on request.
    pub fn remove_file(self: &Arc<Self>, given: &str, recursive: bool) -> Result<String> {
        self.remove_file_for(FileUser::Client, given, recursive)
    }

    pub fn remove_file_for(
        self: &Arc<Self>,
        user: FileUser,
        given: &str,
        recursive: bool,
    ) -> Result<String> {
        let path = path::absolute(given).map_err(|fault| self.fault(given, fault))?;
        let access = FileAccess { below: recursive, ..self.writing(user) };
        let has_rules = access.judge(&path).map_err(|fault| self.fault(&path, fault))?;
        for _ in 0..TRIES {
            let files = self.files()?;
            let remove = || -> std::result::Result<(), FileError> {
                let _as = files.act();
                let (parent, name) = path::split(&path)?;
                let dir = files.open(parent, libc::O_PATH | libc::O_DIRECTORY)?;
                if has_rules {
                    access.judge_place(&files, dir.as_fd(), Some(name))?;
                }
                one(dir.as_fd(), name, recursive)
            };
            let Some((removed, falls)) = self.change(&files, remove) else { continue };
            // part of it may be removed even if the rest failed
            self.keep_changes(&path, falls, None)?;
            removed.map_err(|fault| self.fault(&path, fault))?;
            self.event_about(EventKind::FileRemoved, &path);
            return Ok(path);
        }
        Err(self.fault(&path, FileError::Unsteady))
    }
}

fn one(dir: BorrowedFd, name: &str, recursive: bool) -> std::result::Result<(), FileError> {
    match below::remove(dir, name, 0) {
        Err(error) if error.raw_os_error() == Some(libc::EISDIR) => {}
        other => return Ok(other?),
    }
    match recursive {
        true => Ok(trees::remove_at(dir, name.as_ref())?),
        false => Ok(below::remove(dir, name, libc::AT_REMOVEDIR)?),
    }
}
