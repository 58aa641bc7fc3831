//! Locks that belong to an open file are taken again through it, by the engine: it does not
//! matter who does. POSIX locks belong to a process, which takes them itself (`plan::holdings`).

use super::CreatedObjects;
use crate::error::{Error, ErrorContext, Result};
use stasis_image::model::*;
use stasis_sys::{fds, files, libc};
use std::os::fd::AsFd;

pub fn take(manifest: &Manifest, made: &CreatedObjects) -> Result<()> {
    for (object, place) in manifest.objects.iter().zip(&made.objects) {
        let locks = object.kind.locks();
        let (false, Some(place)) = (locks.is_empty(), place) else { continue };
        let fd = made.fds.get(*place).ok_or(Error::Gone)?.as_fd();
        for lock in locks {
            take_one(fd, lock).doing(|| "take a file lock".into())?;
        }
    }
    Ok(())
}

fn take_one(fd: std::os::fd::BorrowedFd, lock: &FileLock) -> std::io::Result<()> {
    match lock.kind {
        LockKind::Flock => {
            let operation = if lock.write { libc::LOCK_EX } else { libc::LOCK_SH };
            files::flock(fd, operation | libc::LOCK_NB)
        }
        LockKind::OpenFile => {
            let kind = if lock.write { libc::F_WRLCK } else { libc::F_RDLCK };
            fds::lock_open_file(fd, kind, lock.start, lock.len())
        }
        LockKind::Posix => Ok(()),
    }
}
