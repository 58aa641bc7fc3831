//! Access to a tree's files for its owner: its root directory as its processes see it, and the user
//! they run as.
//!
//! The directory is a descriptor, so it stays valid if the tree ends meanwhile; later writes are
//! lost with the tree.

use crate::disk::DiskAccount;
use crate::error::{Error, ErrorContext, Result};
use crate::proc::{self, ProcStatus};
use crate::tree::Tree;
use stasis_sandbox::DiskLimit;
use stasis_sandbox::disk::DiskUsage;
use stasis_sys::{libc, process};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

pub struct TreeAccess {
    pub root: OwnedFd,
    /// Ids of the tree's user, in the host's numbering.
    pub uid: u32,
    pub gid: u32,
    init: OwnedFd,
    disk: Arc<DiskAccount>,
}

impl TreeAccess {
    /// Ends every process of the tree, also while its owner uses it.
    pub fn end(&self) {
        let _ = process::pidfd_kill(self.init.as_fd(), libc::SIGKILL);
    }

    /// The tree's disk limit and its usage, where there is a limit; found by walking.
    pub fn disk(&self) -> Option<(DiskLimit, DiskUsage)> {
        let limit = self.disk.limit()?;
        Some((limit, self.disk.usage(limit.files)))
    }
}

impl Tree {
    pub fn inside(&self) -> Result<TreeAccess> {
        let status = ProcStatus::parse(&proc::read_text(self.root, "status")?);
        // the last of the four ids is the one that files are touched with
        let id = |key: &str| status.list(key).last().and_then(|id| u32::try_from(*id).ok());
        let (uid, gid) = id("Uid").zip(id("Gid")).ok_or(Error::Gone)?;
        let path = format!("/proc/{}/root", self.root);
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        let root = options.open(path).doing(|| "open the tree's root".into())?;
        let init = self.walls.init.pidfd.try_clone().doing(|| "hold the tree's init".into())?;
        Ok(TreeAccess { root: root.into(), uid, gid, init, disk: self.walls.disk.clone() })
    }
}
