//! What a process holds beside memory and that only it can take: record locks and the like.
//!
//! Emitted after its descriptors are placed and our own copies are closed: closing any
//! descriptor of a file drops the process's record locks on it.

use super::builder::Builder;
use stasis_image::model::*;
use stasis_sys::libc;

impl Builder<'_> {
    /// Lets go of the copies of objects above the program's own descriptors.
    pub(super) fn close_copies(&mut self) {
        let first = self.own(super::builder::OWN_OBJECTS);
        let args = [first, u32::MAX.into(), 0];
        self.program.must("close the copies", libc::SYS_close_range, &args);
    }

    pub(super) fn take_locks(&mut self, process: &Process, live: &Live) {
        let mut taken = Vec::new();
        for fd in &live.fds {
            if taken.contains(&fd.object) {
                continue;
            }
            taken.push(fd.object);
            let object = &self.prepared.manifest.objects[fd.object as usize];
            for lock in object.kind.locks() {
                if lock.kind == LockKind::Posix && lock.pid == process.pid {
                    self.take_lock(fd.number, lock);
                }
            }
        }
    }

    fn take_lock(&mut self, fd: i32, lock: &FileLock) {
        let kind = if lock.write { libc::F_WRLCK } else { libc::F_RDLCK };
        // struct flock: two shorts, two longs, a pid
        let head = kind as u16 as u64 | (libc::SEEK_SET as u64) << 16;
        let at = self.program.words(&[head, lock.start, lock.len(), 0]);
        let args = [fd as u64, libc::F_SETLK as u64, at];
        self.program.must("take a record lock", libc::SYS_fcntl, &args);
    }
}
