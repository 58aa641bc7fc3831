//! All requests to a machine.
//!
//!   at once   under the machine's lock, by the caller  submit, cancel, interrupt (`submit.rs`),
//!                                                      follow (`follow.rs`), remove (`removal.rs`)
//!   in turn   by the driver, between two instructions  every [`Action`]
//!
//! An action contains the reply channel to its caller. A dropped reply is an answer too, so no
//! caller waits for a dead driver. A machine that is being removed refuses everything.

use crate::early_restore::EarlyRestore;
use crate::error::{Error, Result};
use crate::history::BranchOrigin;
use crate::machine::Machine;
use crate::pinned::PinnedImage;
use crate::travel::AdoptPayload;
use stasis_api::{Adopted, Usage};
use stasis_protocol::Variable;
use std::sync::{Arc, mpsc};

/// A request that the driver executes in turn.
pub(crate) enum Action {
    Wake(ReplySender<()>),
    SwapOut(ReplySender<()>),
    /// Save unsaved changes.
    Checkpoint(ReplySender<()>),
    /// An image of the current state, and the instruction it follows.
    Image(ReplySender<(PinnedImage, Option<u64>)>),
    /// The same for a branch, which need not wait until the state is on disk.
    State(ReplySender<(BranchOrigin, Option<u64>)>),
    /// The state the machine started from could not be saved, so the machine is at an older state
    /// of its source.
    StartLost(String),
    /// Return to the state after an instruction, or to the beginning.
    RollBack(Option<u64>, ReplySender<()>),
    Undo(EarlyStep, ReplySender<()>),
    Redo(EarlyStep, ReplySender<()>),
    Variables(ReplySender<Vec<Variable>>),
    /// Completions of the code at this character.
    Complete(String, usize, ReplySender<(usize, Vec<String>)>),
    Usage(ReplySender<Usage>),
    /// Proportional and private memory, in KiB.
    Memory(ReplySender<(u64, u64)>),
    /// Enforce the currently recorded limits.
    Limit(ReplySender<()>),
    /// Copy variables and files from another state.
    Adopt(Arc<AdoptPayload>, ReplySender<Adopted>),
    /// Release memory and answer every waiting caller: the host is closing.
    Discard(ReplySender<()>),
}

/// How far to undo or redo.
#[derive(Debug, Clone, Copy)]
pub struct Steps {
    /// Number of instructions.
    pub n: usize,
    /// Whether to include the instructions that share a state with them.
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

/// The reply channel to the caller.
pub(crate) struct ReplySender<T>(mpsc::Sender<Result<T>>);

impl<T> ReplySender<T> {
    /// For callers that do not wait for the answer.
    pub fn discarded() -> ReplySender<T> {
        ReplySender(mpsc::channel().0)
    }

    pub fn give(self, answer: Result<T>) {
        // the caller may have stopped waiting
        let _ = self.0.send(answer);
    }
}

impl Machine {
    /// Submits an action and waits for the answer.
    pub(crate) fn request<T>(
        self: &Arc<Self>,
        action: impl FnOnce(ReplySender<T>) -> Action,
    ) -> Result<T> {
        let (reply, answers) = mpsc::channel();
        self.post(action(ReplySender(reply)))?;
        self.answer(&answers)
    }

    /// The state for a branch: the one being saved, if any, else one requested in turn. The choice
    /// is made under the lock, so that no offered state is missed.
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

    /// Waits for the answer to an action.
    fn answer<T>(&self, answers: &mpsc::Receiver<Result<T>>) -> Result<T> {
        let failed = || Error::Broken {
            machine: self.name().to_string(),
            what: "the driver failed before it answered".into(),
        };
        let answered = answers.recv().unwrap_or_else(|_| Err(failed()));
        // any failure has this cause
        answered.map_err(|error| if self.is_removed() { self.removed() } else { error })
    }

    /// Submits an action.
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
