//! How a machine goes for good.
//!
//!   decided under the lock of its work ─► tree killed ─► driver ended ─► record removed
//!      └─ from here on nothing is accepted, and whoever waits is told that it was removed
//!
//! Whoever acts on a machine looks at the same mark under the same lock, so nothing begins after
//! the decision. A driver that does not end in time is left behind: the records refuse its writes,
//! and when it comes to itself it finds the mark and ends. If the record cannot be removed, the
//! machine is here again, at its last checkpoint.

use crate::error::{Error, Result};
use crate::machine::Machine;
use event_listener::Listener;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a driver may take to end after its tree was killed.
const LEAVING: Duration = Duration::from_secs(5);

impl Machine {
    /// Whether it was decided that the machine goes.
    pub(crate) fn is_removed(&self) -> bool {
        self.work().removed
    }

    pub(crate) fn removed(&self) -> Error {
        Error::Removed(self.name().to_string())
    }

    /// Decides that the machine goes, for one caller; it is not found by any other.
    pub(crate) fn leave(self: &Arc<Self>) -> Result<()> {
        let wishes = {
            let mut work = self.work();
            if work.removed {
                drop(work);
                return Err(Error::NoMachine(self.name().to_string()));
            }
            work.removed = true;
            work.execs.clear();
            work.queue.cancel_all();
            if let Some(files) = &work.files {
                files.end();
            }
            work.wake_driver();
            work.queue.drop_wishes()
        };
        // outside the lock: those who wait for an answer are told by this
        drop(wishes);
        self.tell();
        if !self.driver_ends(Instant::now() + LEAVING) {
            tracing::warn!(machine = %self.name(), "removed while its driver still works");
        }
        Ok(())
    }

    /// The machine could not be removed after all.
    pub(crate) fn stay(&self) {
        self.work().removed = false;
        self.tell();
    }

    fn driver_ends(&self, until: Instant) -> bool {
        loop {
            let listener = self.listen();
            if !self.work().has_driver() {
                return true;
            }
            if listener.wait_deadline(until).is_none() {
                return !self.work().has_driver();
            }
        }
    }
}
