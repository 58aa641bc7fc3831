//! The way of instructions, for somebody who watches from outside; and on whose behalf they came.
//!
//!   queued ─► taken up ─► (waking ─► awake) ─► running ─► ran ─► ended
//!                                        saving ─► saved, whenever it comes
//!
//! Nobody watches by default, and then this costs nothing but a look. Whoever watches is called on
//! the machine's own threads, also with its locks held: it has to be quick, must not wait, and must
//! not call machines.

use crate::machine::Machine;
use stasis_api::{Name, Status};
use stasis_protocol::Reason;
use stasis_store::MachineId;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// The longest cause that is kept: a `traceparent` of today has 55 bytes.
const LONGEST: usize = 128;

pub trait Observer: Send + Sync + fmt::Debug {
    fn see(&self, machine: MachineId, moment: Moment<'_>);
}

/// What happens to a machine. There is a number where it can be another than the one taken up.
#[derive(Debug)]
pub enum Moment<'a> {
    Queued {
        seq: u64,
        name: &'a Name,
        account: &'a str,
        cause: Option<&'a Cause>,
    },
    TakenUp(u64),
    Waking(&'static str),
    Awake,
    /// The code was sent to the machine.
    Running,
    /// What was taken up is over, but not yet recorded.
    Ran,
    Ended(u64, Status),
    Saving,
    /// The state after all that ran up to now is on disk.
    Saved,
    NotSaved,
    /// What was not saved never will be.
    FellBack,
    Removed,
}

/// What an instruction comes from, in words that only the observer understands, such as a
/// `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause(Arc<str>);

thread_local! {
    static CAUSE: RefCell<Option<Cause>> = const { RefCell::new(None) };
}

impl Cause {
    /// From outside: too long a one is none.
    pub fn new(text: &str) -> Option<Cause> {
        (text.len() <= LONGEST).then(|| Cause(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whatever `act` submits on this thread comes from `cause`.
    pub fn of<T>(cause: Option<Cause>, act: impl FnOnce() -> T) -> T {
        struct Before(Option<Cause>);
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
    pub(crate) fn observe(&self, moment: Moment<'_>) {
        if let Some(observer) = &self.host.settings.observer {
            observer.see(self.id, moment);
        }
    }

    /// An instruction has its number, and nobody has taken it up yet.
    pub(crate) fn observe_queued(&self, seq: u64, name: &Name, account: &str) {
        if let Some(observer) = &self.host.settings.observer {
            CAUSE.with_borrow(|cause| {
                let cause = cause.as_ref();
                observer.see(self.id, Moment::Queued { seq, name, account, cause });
            });
        }
    }
}

/// Why a machine comes into memory, in a word.
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
        Cause::of(Cause::new("outer"), || {
            Cause::of(Cause::new("inner"), || assert_eq!(now(), Cause::new("inner")));
            assert_eq!(now(), Cause::new("outer"));
        });
        let broken = std::panic::catch_unwind(|| Cause::of(Cause::new("x"), || panic!("over")));
        assert!(broken.is_err());
        assert_eq!(now(), None);
        assert_eq!(Cause::new(&"x".repeat(LONGEST + 1)), None);
    }
}
