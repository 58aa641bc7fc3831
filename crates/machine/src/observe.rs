//! Timing events for the phases of an instruction, and the cause it was submitted for.
//!
//!   queued ─► taken up ─► (waking ─► awake) ─► running ─► ran ─► ended
//!                                        saving ─► saved, whenever it comes
//!
//! There is no observer by default, and then an event costs one check. The observer is called on
//! the machine's threads, possibly with its locks held: it must be quick, must not block, and must
//! not call machines.

use crate::machine::Machine;
use stasis_api::{Name, Status};
use stasis_protocol::Reason;
use stasis_records::MachineId;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a cause: today's `traceparent` has 55 bytes.
const LONGEST: usize = 128;

pub trait Observer: Send + Sync + fmt::Debug {
    fn see(&self, machine: MachineId, moment: ObservedEvent<'_>);
}

/// A phase of a machine's work. It has a number where that can differ from the instruction taken
/// up.
#[derive(Debug)]
pub enum ObservedEvent<'a> {
    Queued {
        seq: u64,
        name: &'a Name,
        account: &'a str,
        cause: Option<&'a TraceContext>,
    },
    TakenUp(u64),
    Waking(&'static str),
    Awake,
    /// The code was sent to the machine.
    Running,
    /// The instruction that was taken up is over, but not yet recorded.
    Ran,
    Ended {
        seq: u64,
        status: Status,
        /// Absent if it never ran, or if its end was reported before.
        runtime: Option<Duration>,
    },
    Saving,
    /// The state after everything that ran so far is on disk.
    Saved,
    NotSaved,
    /// Unsaved state is lost.
    RolledBack,
    Removed,
}

/// The cause of an instruction, opaque to all but the observer, such as a `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext(Arc<str>);

thread_local! {
    static CAUSE: RefCell<Option<TraceContext>> = const { RefCell::new(None) };
}

impl TraceContext {
    /// Untrusted: an overlong one is dropped.
    pub fn new(text: &str) -> Option<TraceContext> {
        (text.len() <= LONGEST).then(|| TraceContext(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Instructions that `act` submits on this thread have this cause.
    pub fn of<T>(cause: Option<TraceContext>, act: impl FnOnce() -> T) -> T {
        struct Before(Option<TraceContext>);
        impl Drop for Before {
            fn drop(&mut self) {
                CAUSE.replace(self.0.take());
            }
        }
        let _before = Before(CAUSE.replace(cause));
        act()
    }
}

impl Machine {
    pub(crate) fn observe(&self, moment: ObservedEvent<'_>) {
        if let Some(observer) = self.host.observer.get() {
            observer.see(self.id, moment);
        }
    }

    /// An instruction has a number and waits.
    pub(crate) fn observe_queued(&self, seq: u64, name: &Name, account: &str) {
        if let Some(observer) = self.host.observer.get() {
            CAUSE.with_borrow(|cause| {
                let cause = cause.as_ref();
                observer.see(self.id, ObservedEvent::Queued { seq, name, account, cause });
            });
        }
    }
}

/// The reason a machine enters memory, as a word.
pub(crate) fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::New => "new",
        Reason::Branch => "branch",
        Reason::Wake => "wake",
        Reason::Rollback => "rollback",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_ends_with_what_it_causes() {
        let now = || CAUSE.with_borrow(Option::clone);
        TraceContext::of(TraceContext::new("outer"), || {
            TraceContext::of(TraceContext::new("inner"), || {
                assert_eq!(now(), TraceContext::new("inner"))
            });
            assert_eq!(now(), TraceContext::new("outer"));
        });
        let broken = std::panic::catch_unwind(|| {
            TraceContext::of(TraceContext::new("x"), || panic!("over"))
        });
        assert!(broken.is_err());
        assert_eq!(now(), None);
        assert_eq!(TraceContext::new(&"x".repeat(LONGEST + 1)), None);
    }
}
