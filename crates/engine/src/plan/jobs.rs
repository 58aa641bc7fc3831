//! Processes that job control had stopped come back stopped.
//!
//!   the process:  ... its places ─► sends itself the signal, and stands still
//!   its parent:   waits until it does; takes the answer if the program had taken it
//!   the engine:   installs the program's own filters, loads every thread's registers
//!                 (`crate::jobs`), then lets the others go
//!
//! Nothing of the program runs before that, so no SIGCONT can arrive too early.

use super::builder::Builder;
use stasis_image::model::*;
use stasis_sys::libc;

/// A thread that is stopped on our pages until the engine loads its registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedThread {
    /// In the machine's numbering.
    pub tid: i32,
    pub frame: u64,
    pub sigmask: u64,
    /// Filters of the program's own that the first thread has to install for all, by address.
    pub filters: Vec<u64>,
    /// Whether there are any, for any of its threads.
    pub own_filters: bool,
}

impl Builder<'_> {
    pub(super) fn has_stopped(&self) -> bool {
        let live = self.prepared.manifest.processes.iter().filter_map(Process::live);
        live.into_iter().any(|live| live.stopped.is_some())
    }

    /// Waits until stopped children have stopped, and clears the signals about it: whether those
    /// are still pending is part of the image.
    pub(super) fn await_stopped_children(&mut self, process: &Process) {
        let children = self.prepared.manifest.processes.iter();
        for child in children.filter(|child| child.ppid == process.pid) {
            let Some(stop) = child.live().and_then(|live| live.stopped) else { continue };
            let keep = if stop.told { 0 } else { libc::WNOWAIT };
            let flags = (libc::WSTOPPED | keep | libc::__WALL) as u64;
            let info = self.program.data(&[0; 128]);
            let wait = [libc::P_PID as u64, child.pid as u64, info, flags, 0];
            self.program.must("wait for a child to stop", libc::SYS_waitid, &wait);
            let mask = self.program.words(&[1 << (libc::SIGCHLD - 1)]);
            let zero = self.program.words(&[0, 0]);
            let args = [mask, 0, zero, 8];
            self.program.any("forget its signal", libc::SYS_rt_sigtimedwait, &args);
        }
    }
}
