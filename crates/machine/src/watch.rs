//! What those who watch over a host look at: counts that cost no more than a lock.

use crate::host::Host;
use crate::machine::Machine;
use stasis_api::State;
use std::path::Path;

impl Host {
    pub fn data_dir(&self) -> &Path {
        &self.inner().dirs.data
    }
}

impl Machine {
    /// Its number: later machines have higher ones.
    pub fn number(&self) -> i64 {
        self.id.0
    }

    /// Instructions that run or wait.
    pub fn pending(&self) -> usize {
        let work = self.work();
        work.queue.waiting() + usize::from(work.running.is_some())
    }

    /// Bytes of code that waits.
    pub(crate) fn waiting_code(&self) -> u64 {
        self.work().execs.values().map(|exec| exec.code.len() as u64).sum()
    }

    /// The memory it may use, if that has a bound.
    pub fn memory_mb(&self) -> Option<u64> {
        self.record().made.limits.or(self.host.settings.limits).memory_mb
    }

    pub fn state(&self) -> State {
        let work = self.work();
        match (work.running.is_some(), work.live) {
            (true, _) => State::Running,
            (false, true) => State::Ready,
            (false, false) => State::Swapped,
        }
    }
}
