//! Resources of a process that only it can acquire: record locks, watches, owners.
//!
//!   pidfds, a removed directory    before its descriptors are placed: low numbers are free
//!   record locks                   after our copies are closed: closing any descriptor of a
//!                                  file drops the process's record locks on it
//!   owners, watches                when every process has everything: owners must be there,
//!                                  and nothing we open ourselves may become an event

use super::builder::{Builder, FORKED, PLACED};
use stasis_image::model::*;
use stasis_spawner::program::Program;
use stasis_sys::{fds, libc};

const INOTIFY_IOC_SETNEXTWD: u64 = 0x4004_4900;

fn is_asynchronous(object: &Object) -> bool {
    let outside = matches!(object.kind, ObjectKind::External { .. });
    object.flags as i32 & libc::O_ASYNC != 0 && !outside
}

impl Builder<'_> {
    fn kind_of(&self, fd: &Fd) -> &ObjectKind {
        &self.prepared.manifest.objects[fd.object as usize].kind
    }

    /// Opens pidfds anew, in every process that has one: they hold no state.
    pub(super) fn place_pidfds(&mut self, live: &LiveProcess) {
        let objects = &self.prepared.manifest.objects;
        if !objects.iter().any(|object| matches!(object.kind, ObjectKind::Pidfd { pid: 1.. })) {
            return;
        }
        // zombies too, so not before their parents have made them
        self.program.arrive(FORKED);
        let living = self.living();
        self.program.await_word(FORKED, living);
        // the highest first: number 0 stays free for the opening until it is its turn
        for fd in live.fds.iter().rev() {
            let object = &objects[fd.object as usize];
            if let ObjectKind::Pidfd { pid: pid @ 1.. } = object.kind {
                self.place_pidfd(fd, pid, object.flags as i32 & libc::O_NONBLOCK);
            }
        }
    }

    fn place_pidfd(&mut self, fd: &Fd, pid: i32, flags: i32) {
        let args = [pid as u64, flags as u64];
        self.program.must("open a pidfd", libc::SYS_pidfd_open, &args);
        let close_on_exec = if fd.close_on_exec { libc::O_CLOEXEC } else { 0 } as u64;
        if fd.number == 0 {
            let flag = u64::from(fd.close_on_exec);
            let args = [0, libc::F_SETFD as u64, flag];
            self.program.must("set close-on-exec", libc::SYS_fcntl, &args);
            return;
        }
        let args = [0, fd.number as u64, close_on_exec];
        self.program.must("place a pidfd", libc::SYS_dup3, &args);
        self.program.must("close the low one", libc::SYS_close, &[0]);
    }

    /// A working directory that has no name any more is entered through our copy.
    pub(super) fn enter_removed(&mut self, live: &LiveProcess) {
        let objects = &self.prepared.manifest.objects;
        let removed = objects.iter().position(
            |object| matches!(&object.kind, ObjectKind::Directory { path, .. } if path.is_empty()),
        );
        let number = removed.and_then(|index| self.prepared.objects[index]);
        if let (true, Some(number)) = (live.cwd.is_empty(), number) {
            let args = [number as u64];
            self.program.must("enter a removed directory", libc::SYS_fchdir, &args);
        }
    }

    /// Lets go of the copies of objects above the program's own descriptors.
    pub(super) fn close_copies(&mut self) {
        let first = self.own(super::builder::OWN_OBJECTS);
        let args = [first, u32::MAX.into(), 0];
        self.program.must("close the copies", libc::SYS_close_range, &args);
    }

    pub(super) fn take_locks(&mut self, process: &Process, live: &LiveProcess) {
        let mut taken = Vec::new();
        for fd in &live.fds {
            if taken.contains(&fd.object) {
                continue;
            }
            taken.push(fd.object);
            for lock in self.kind_of(fd).locks().to_vec() {
                if lock.kind == LockKind::Posix && lock.pid == process.pid {
                    self.take_lock(fd.number, &lock);
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

    /// Attaches System V shared memory in place of whatever is there.
    pub(super) fn attach(&mut self, id: i32, writable: bool, vma: &Vma) {
        let executable = vma.prot & 4 != 0;
        let flags = libc::SHM_REMAP
            | if writable { 0 } else { libc::SHM_RDONLY }
            | if executable { libc::SHM_EXEC } else { 0 };
        let args = [id as u64, vma.start, flags as u64];
        self.program.must("attach shared memory", libc::SYS_shmat, &args);
        let prot = if writable { 3 } else { 1 } | if executable { 4 } else { 0 };
        if vma.prot != prot {
            let args = [vma.start, vma.len(), vma.prot.into()];
            self.program.must("protect shared memory", libc::SYS_mprotect, &args);
        }
    }

    /// Once every process has its resources.
    pub(super) fn settle(&mut self, process: &Process, live: &LiveProcess, is_root: bool) {
        let settles = |object: &Object| {
            object.owner.is_some()
                || is_asynchronous(object)
                || matches!(
                    object.kind,
                    ObjectKind::Inotify { .. }
                        | ObjectKind::SysvMemory(SysvMemory { removed: true, .. })
                )
        };
        let objects = &self.prepared.manifest.objects;
        if !objects.iter().any(settles) {
            return;
        }
        self.program.arrive(PLACED);
        let living = self.living();
        self.program.await_word(PLACED, living);
        if is_root {
            self.remove_memory();
        }
        for fd in &live.fds {
            let object = &objects[fd.object as usize];
            if !settles(object) || !self.is_first_holder(process, fd) {
                continue;
            }
            if let Some(owner) = object.owner {
                self.set_owner(fd.number, owner, live.threads[0].creds.uids[1]);
            }
            if is_asynchronous(object) {
                let args = [fd.number as u64, libc::F_SETFL as u64, object.flags.into()];
                self.program.must("ask for signals", libc::SYS_fcntl, &args);
            }
            if let ObjectKind::Inotify { watches } = &object.kind {
                self.add_watches(fd.number, watches);
            }
        }
    }

    /// Segments that exist only for processes that have attached them.
    fn remove_memory(&mut self) {
        for object in &self.prepared.manifest.objects {
            if let ObjectKind::SysvMemory(SysvMemory { name, removed: true, .. }) = object.kind {
                let args = [name.id as u64, libc::IPC_RMID as u64, 0];
                self.program.must("remove shared memory", libc::SYS_shmctl, &args);
            }
        }
    }

    /// As the program's user: its signals are as good as those that user may send.
    fn set_owner(&mut self, fd: i32, owner: FdOwner, user: u32) {
        let become_user = |p: &mut Program, user: u32| {
            p.must("act as the user", libc::SYS_setresuid, &[u64::MAX, user.into(), u64::MAX]);
        };
        let args = [fd as u64, fds::F_SETSIG as u64, owner.signal as u64];
        self.program.must("choose a descriptor's signal", libc::SYS_fcntl, &args);
        if owner.pid != 0 {
            let at = self.program.words(&[owner.kind as u64 | (owner.pid as u64) << 32]);
            let args = [fd as u64, fds::F_SETOWN_EX as u64, at];
            become_user(&mut self.program, user);
            self.program.must("set a descriptor's owner", libc::SYS_fcntl, &args);
            become_user(&mut self.program, 0);
        }
    }

    fn add_watches(&mut self, fd: i32, watches: &[InotifyWatch]) {
        for watch in watches {
            let args = [fd as u64, INOTIFY_IOC_SETNEXTWD, watch.wd as u64];
            self.program.must("choose a watch's number", libc::SYS_ioctl, &args);
            let path = self.program.text(&watch.path);
            let mask = watch.mask | libc::IN_DONT_FOLLOW;
            let args = [fd as u64, path, mask.into()];
            self.program.must("watch a file", libc::SYS_inotify_add_watch, &args);
        }
    }
}
