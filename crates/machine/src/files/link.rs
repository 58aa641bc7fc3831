//! Creates a symbolic link in a machine; replaces a file or link of that name.

use super::put::{TRIES, directories};
use super::{FileError, FileUser, MachineFiles, path};
use crate::error::Result;
use crate::machine::Machine;
use stasis_api::{Durability, EventKind, FileInfo};
use std::os::fd::AsFd;
use std::sync::Arc;

/// The longest target a link can have.
const LONGEST: usize = 4095;

impl Machine {
    /// Creates a link to `target`, which need not exist and may point anywhere in the machine.
    pub fn put_link(
        self: &Arc<Self>,
        given: &str,
        target: &str,
        durability: Option<Durability>,
    ) -> Result<FileInfo> {
        self.put_link_for(FileUser::Client, given, target, durability)
    }

    pub fn put_link_for(
        self: &Arc<Self>,
        user: FileUser,
        given: &str,
        target: &str,
        durability: Option<Durability>,
    ) -> Result<FileInfo> {
        let path = path::absolute(given).map_err(|fault| self.fault(given, fault))?;
        if target.is_empty() || target.len() > LONGEST || target.contains('\0') {
            let why = "a link's target has 1 to 4095 bytes, and no NUL";
            return Err(self.fault(&path, FileError::BadName(why)));
        }
        let access = self.writing(user);
        let has_rules = access.judge(&path).map_err(|fault| self.fault(&path, fault))?;
        for _ in 0..TRIES {
            let files = self.files()?;
            let made = self.change(&files, || {
                if has_rules {
                    let (parent, name) = path::split(&path)?;
                    let _as = files.act();
                    let dir = directories(&files, parent)?;
                    access.judge_place(&files, dir.as_fd(), Some(name))?;
                }
                link(&files, &path, target)
            });
            // the machine left memory in between
            let Some((done, falls)) = made else { continue };
            let info = done.map_err(|fault| self.fault(&path, fault))?;
            self.keep_changes(&path, falls, durability)?;
            self.event_about(EventKind::FilePut, &path);
            return Ok(info);
        }
        Err(self.fault(&path, FileError::Unsteady))
    }
}

fn link(
    files: &MachineFiles,
    path: &str,
    target: &str,
) -> std::result::Result<FileInfo, FileError> {
    files.link(path, target)?;
    let _as = files.act();
    files.look(path, None)
}
