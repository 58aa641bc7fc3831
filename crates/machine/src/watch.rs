//! Counts for monitoring a host; each costs at most a lock.

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
        self.work().pending()
    }

    /// Bytes of code that waits.
    pub(crate) fn waiting_code(&self) -> u64 {
        self.work().execs.values().map(|one| one.exec.code.len() as u64).sum()
    }

    /// Its memory limit, if any.
    pub fn memory_mb(&self) -> Option<u64> {
        self.record().made.limits.or(self.host.settings.limits).memory_mb
    }

    pub fn state(&self) -> State {
        self.work().state().shown()
    }
}
