//! All requests to a machine.
//!
//!   at once   under the machine's lock, by the caller    submit, cancel, interrupt (`submit.rs`),
//!                                                        follow (`follow.rs`), remove (`leave.rs`)
//!   in turn   by the driver, between two instructions    every [`Action`]
//!
//! An action contains the reply channel to its caller. A dropped reply is an answer too, so no
//! caller waits for a dead driver. A machine that is being removed refuses everything.

use crate::early::EarlyRestore;
use crate::error::{Error, Result};
use crate::history::BranchOrigin;
use crate::machine::Machine;
use crate::pinned::PinnedImage;
use crate::travel::AdoptPayload;
use stasis_api::{Adopted, Usage};
use stasis_protocol::Variable;
use std::sync::{Arc, mpsc};

/// What is asked in turn.
pub(crate) enum Action {
    Wake(ReplySender<()>),
    SwapOut(ReplySender<()>),
    /// Save what is not saved.
    Checkpoint(ReplySender<()>),
    /// An image of the state now, and the instruction it is the state after.
    Image(ReplySender<(PinnedImage, Option<u64>)>),
    /// The same for a branch, which need not wait until the state is on disk.
    State(ReplySender<(BranchOrigin, Option<u64>)>),
    /// The state the machine started from could not be saved: it is at an older one of its source.
    StartLost(String),
    /// To the state after an instruction, or to the beginning.
    RollBack(Option<u64>, ReplySender<()>),
    Undo(EarlyStep, ReplySender<()>),
    Redo(EarlyStep, ReplySender<()>),
    Variables(ReplySender<Vec<Variable>>),
    /// Names that could stand in the code at the character.
    Complete(String, usize, ReplySender<(usize, Vec<String>)>),
    Usage(ReplySender<Usage>),
    /// Proportional and private memory, in KiB.
    Memory(ReplySender<(u64, u64)>),
    /// Enforce the limits that are on record now.
    Limit(ReplySender<()>),
    /// Take over variables and files of another state.
    Adopt(Arc<AdoptPayload>, ReplySender<Adopted>),
    /// Let go of memory and of all that waits: the host ends.
    Discard(ReplySender<()>),
}

/// How far to undo or redo.
#[derive(Debug, Clone, Copy)]
pub struct Steps {
    /// How many instructions.
    pub n: usize,
    /// Whether to take those along that share a state with them.
    pub grouped: bool,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps { n: 1, grouped: false }
    }
}

/// An undo or a redo, and the restore that began with the request.
pub(crate) struct EarlyStep {
    pub steps: Steps,
    pub ahead: Option<EarlyRestore>,
}

/// The way back to the caller.
pub(crate) struct ReplySender<T>(mpsc::Sender<Result<T>>);

impl<T> ReplySender<T> {
    /// For callers that do not wait for the answer.
    pub fn discarded() -> ReplySender<T> {
        ReplySender(mpsc::channel().0)
    }

    pub fn give(self, answer: Result<T>) {
        // the caller may have gone away
        let _ = self.0.send(answer);
    }
}

impl Machine {
    /// Asks for something in turn, and waits for the answer.
    pub(crate) fn request<T>(
        self: &Arc<Self>,
        action: impl FnOnce(ReplySender<T>) -> Action,
    ) -> Result<T> {
        let (reply, answers) = mpsc::channel();
        self.post(action(ReplySender(reply)))?;
        self.answer(&answers)
    }

    /// The state for a branch: the one being saved, if there is one, or one that is asked for in
    /// turn. Which of the two is decided under the lock, so that none that comes is missed.
    pub(crate) fn request_state(self: &Arc<Self>) -> Result<(BranchOrigin, Option<u64>)> {
        let (reply, answers) = mpsc::channel();
        let mut work = self.work();
        if !work.state().accepts() {
            drop(work);
            return Err(self.removed());
        }
        if let Some((state, seq)) = work.take_shared(None) {
            return Ok((BranchOrigin::Unsaved(state), seq));
        }
        self.ensure_driver(&mut work)?;
        work.queue.request(Action::State(ReplySender(reply)));
        drop(work);
        self.answer(&answers)
    }

    /// Waits for what was asked in turn.
    fn answer<T>(&self, answers: &mpsc::Receiver<Result<T>>) -> Result<T> {
        let failed = || Error::Broken {
            machine: self.name().to_string(),
            what: "the driver failed before it answered".into(),
        };
        let answered = answers.recv().unwrap_or_else(|_| Err(failed()));
        // whatever failed then failed for this reason
        answered.map_err(|error| if self.is_removed() { self.removed() } else { error })
    }

    /// Asks for something in turn.
    pub(crate) fn post(self: &Arc<Self>, action: Action) -> Result<()> {
        let mut work = self.work();
        if !work.state().accepts() {
            drop(work);
            return Err(self.removed());
        }
        self.ensure_driver(&mut work)?;
        work.queue.request(action);
        Ok(())
    }
}
