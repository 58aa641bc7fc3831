//! A machine's files, for its owner: put, read, list, stat, remove, watch.
//!
//!   client ──► bytes ──► a file without a name, in the machine's root ──► gets its name
//!
//! The host accesses the files itself, as the machine's own user, below the machine's root as its
//! processes see it (`sys::below`). No link leads out of the root, only regular files are opened,
//! and other file systems of the machine (/proc, /dev) are not entered. A swapped machine is woken.
//!
//! Policies may have rules about files (`access`).
//!
//! Files belong to the state: changes are saved with the next checkpoint, which follows soon. Names
//! change only while no capture runs (`gate`), so a checkpoint contains a file completely or not at
//! all. If the machine leaves memory during an upload, the bytes are copied when it returns.

mod access;
mod fault;
mod link;
mod path;
mod put;
mod read;
mod remove;
mod watch;

pub use access::FileUser;
pub use fault::FileError;
pub(crate) use path::absolute;
pub use put::Upload;
pub use watch::Watch;

use crate::action::Action;
use crate::error::{Error, Result};
use crate::machine::Machine;
use event_listener::Listener;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use stasis_engine::TreeAccess;
use stasis_sys::below::{self, ActingAs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Maximum time for a machine to enter memory while an instruction waits for the same.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of wakes for a machine that leaves memory at once.
const WAKES: usize = 4;

/// The files of a machine during one stay in memory.
pub(crate) struct MachineFiles {
    inside: TreeAccess,
    /// Held for reading while names change, for writing while a capture reads.
    gate: RwLock<()>,
    /// Bytes of uploads without a name yet: they count against the machine's disk limit.
    uploading: AtomicU64,
}

impl MachineFiles {
    pub fn new(inside: TreeAccess) -> MachineFiles {
        MachineFiles { inside, gate: RwLock::new(()), uploading: AtomicU64::new(0) }
    }

    /// Names do not change while this is held.
    pub fn still(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// Ends the processes whose files these are.
    pub fn end(&self) {
        self.inside.end();
    }

    fn changing(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    fn act(&self) -> ActingAs {
        ActingAs::user(self.inside.uid, self.inside.gid)
    }

    fn open(&self, path: &str, flags: i32) -> std::io::Result<OwnedFd> {
        below::open(self.inside.root.as_fd(), path, flags, 0)
    }
}

impl Machine {
    /// The machine's files; wakes the machine.
    pub(crate) fn files(self: &Arc<Self>) -> Result<Arc<MachineFiles>> {
        let end = Instant::now() + PATIENCE;
        let mut wakes = 0;
        while wakes < WAKES && Instant::now() < end {
            let listener = self.listen();
            let (files, busy) = {
                let mut work = self.work();
                work.queue.used(Instant::now());
                (work.files.clone(), work.state().instruction().is_some())
            };
            if let Some(files) = files {
                return Ok(files);
            }
            if busy {
                // it is being woken for an instruction, which may then run for long
                listener.wait_timeout(Duration::from_millis(200));
            } else {
                wakes += 1;
                self.request(Action::Wake)?;
            }
        }
        Err(self.fault("/", FileError::Unsteady))
    }

    fn fault(&self, path: &str, fault: impl Into<FileError>) -> Error {
        let (machine, path) = (self.name().to_string(), path.to_owned());
        Error::File { machine, path, fault: fault.into() }
    }

    /// Changes files while no capture runs and the machine stays in memory, and marks them as
    /// changed so that a checkpoint follows. Returns the number of rollbacks so far, or `None` if
    /// these files are no longer the machine's.
    fn change<T>(&self, files: &Arc<MachineFiles>, change: impl FnOnce() -> T) -> Option<(T, u64)> {
        let _changing = files.changing();
        if !self.are_current(files) {
            return None;
        }
        let changed = change();
        let mut work = self.work();
        work.touched();
        Some((changed, work.falls))
    }

    /// Whether these are the files of the machine as it is in memory now.
    fn are_current(&self, files: &Arc<MachineFiles>) -> bool {
        self.work().files.as_ref().is_some_and(|own| Arc::ptr_eq(own, files))
    }

    /// Waits until the change has the requested durability.
    fn keep_changes(
        self: &Arc<Self>,
        path: &str,
        falls: u64,
        durability: Option<stasis_api::Durability>,
    ) -> Result<()> {
        let level = durability.unwrap_or_else(|| self.record().made.durability);
        if level == stasis_api::Durability::Memory {
            return Ok(());
        }
        self.request(Action::Checkpoint)?;
        match self.work().falls == falls {
            true => Ok(()),
            // the change was lost with the machine's memory
            false => Err(self.fault(path, FileError::Unsteady)),
        }
    }
}
