//! Removal of a machine.
//!
//!   decided under the lock of its work ─► tree killed ─► driver ended ─► record removed
//!      └─ from here on nothing is accepted; all callers that wait get `removed`
//!
//! Every action checks the state under the same lock, so none starts after the decision. A driver
//! that does not stop in time is abandoned: the records refuse its writes, and it exits when it
//! sees the state. If the record cannot be removed, the machine returns to its last checkpoint.

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::state::StateEvent;
use event_listener::Listener;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time for a driver to end after its tree was killed.
const LEAVING: Duration = Duration::from_secs(5);

/// The error for waiting instructions if the removal fails.
pub(crate) const NOT_RUN: &str = "it was not run: the machine was to be removed, which failed";

impl Machine {
    /// Whether the removal was decided.
    pub(crate) fn is_removed(&self) -> bool {
        !self.work().state().accepts()
    }

    pub(crate) fn removed(&self) -> Error {
        Error::Removed(self.name().to_string())
    }

    /// Decides the removal, for one caller; no other call finds the machine.
    pub(crate) fn leave(self: &Arc<Self>) -> Result<()> {
        let requests = {
            let mut work = self.without_needy_branches();
            if work.step(StateEvent::Remove).is_none() {
                drop(work);
                return Err(Error::NoMachine(self.name().to_string()));
            }
            let dropped = work.cancel_all();
            work.unrecorded.extend(dropped.into_iter().map(|seq| (seq, NOT_RUN.to_owned())));
            if let Some(files) = &work.files {
                files.end();
            }
            work.wake_driver();
            work.queue.drop_requests()
        };
        // outside the lock: this answers the waiting callers
        drop(requests);
        self.tell();
        if !self.driver_ends(Instant::now() + LEAVING) {
            tracing::warn!(machine = %self.name(), "removed while its driver still works");
        }
        Ok(())
    }

    /// The removal failed.
    pub(crate) fn stay(&self) {
        self.work().step(StateEvent::Stay);
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
