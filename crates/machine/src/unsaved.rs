//! Branches of states that are not on disk yet.
//!
//!   source: capture ─► state in memory ─────► written ─► on record
//!                        └─► branch: answered, runs ... ─► on record with the image ─► saves
//!
//! A branch of a machine with much to save does not wait for the disk: it starts from the twin that
//! the source's capture is written from. Until the image exists, the record of the branch names an
//! older state of its source, nothing of the branch is saved, and no image of it is available. If
//! the process is killed meanwhile, or the state cannot be written, the branch is at that older
//! state, and the next receipt reports it.

use crate::action::Action;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::history::{Branch, BranchOrigin};
use crate::host::{Host, HostInner};
use crate::machine::Machine;
use crate::pinned::PinnedImage;
use crate::threads;
use crate::wake::RestoredTree;
use crate::work::Work;
use parking_lot::{Condvar, Mutex, MutexGuard};
use stasis_api::{Durability, Parent};
use stasis_engine::{ImageId, UnsavedState};
use stasis_records::{HeldImage, NewRecord};
use std::sync::Arc;

/// A state that a machine's driver is saving, for branches.
pub(crate) struct SharedState {
    pub state: UnsavedState,
    /// The instruction it follows.
    pub seq: Option<u64>,
    /// Whether a branch starts from it.
    pub taken: bool,
}

impl SharedState {
    /// Whether a branch depends on its being saved.
    fn is_needed(&self) -> bool {
        self.taken && matches!(self.state.image_now(), Ok(None))
    }
}

/// The first state of a branch, while it is not on disk.
#[derive(Clone)]
pub(crate) struct UnsavedStart {
    pub state: UnsavedState,
    /// The recorded state of its source meanwhile.
    pub older: Parent,
    pub older_image: ImageId,
}

/// The status of a machine that starts from an unsaved state.
#[derive(Default)]
pub(crate) struct StartCell {
    start: Mutex<Option<UnsavedStart>>,
    settled: Condvar,
}

impl StartCell {
    pub fn of(start: Option<UnsavedStart>) -> StartCell {
        StartCell { start: Mutex::new(start), settled: Condvar::new() }
    }
}

/// Whether a branch may start from an unsaved state: a branch that shares memory with others, or
/// must be on disk, waits.
pub(crate) fn may_start_unsaved(made: &NewRecord, branch: &Branch) -> bool {
    let closed = branch.network.as_ref().unwrap_or(&made.network).is_none();
    branch.names.len() == 1 && closed && made.durability != Durability::Local
}

impl Host {
    /// Waits until the state that a machine started from is on disk.
    pub fn wait_saved(&self, machine: &Arc<Machine>) -> Result<()> {
        machine.settled();
        let lost = machine.work().lost.clone();
        lost.map_or(Ok(()), |what| Err(Error::Broken { machine: machine.name().to_string(), what }))
    }

    /// Creates a branch of a state that is being saved, and updates its record afterwards.
    pub(crate) fn add_unsaved(
        &self,
        new: NewRecord,
        source: &Arc<Machine>,
        state: UnsavedState,
    ) -> Result<Arc<Machine>> {
        let (older_image, seq) = {
            let record = source.record();
            (record.head_image, record.head_seq)
        };
        let held = self.inner().hold(older_image, || source.removed())?;
        let older = Parent { machine: source.name(), seq };
        let mut record = self.inner().records.branch_unsaved(new, older.clone(), &held)?;
        // no image has this name, so code that does not first wait for the state finds none
        (record.start_image, record.head_image) = (state.id(), state.id());
        let machine = self.announce_unsaved(record, UnsavedStart { state, older, older_image });
        let own = machine.clone();
        let settle = self.inner().users.counted(move || own.settle_start());
        if threads::spawn("stasis-start", settle).is_err() {
            machine.clone().settle_start();
        }
        Ok(machine)
    }
}

impl Work {
    /// The state being saved, if it is that of `seq`, or the current one.
    pub(crate) fn take_shared(&mut self, seq: Option<u64>) -> Option<(UnsavedState, Option<u64>)> {
        if !self.state().accepts() {
            return None;
        }
        let shared = self.shared.as_mut().filter(|one| seq.is_none() || one.seq == seq)?;
        shared.state.image_now().ok()?;
        shared.taken = true;
        Some((shared.state.clone(), shared.seq))
    }
}

impl Machine {
    /// Its work, once no branch depends on a running capture of this machine.
    pub(crate) fn without_needy_branches(&self) -> MutexGuard<'_, Work> {
        loop {
            let work = self.work();
            let shared = work.shared.as_ref().filter(|shared| shared.is_needed());
            let Some(state) = shared.map(|shared| shared.state.clone()) else { return work };
            drop(work);
            let _ = state.saved();
        }
    }

    /// Its first state, while that is not recorded.
    pub(crate) fn unsaved_start(&self) -> Option<UnsavedState> {
        self.start.start.lock().as_ref().map(|start| start.state.clone())
    }

    /// Waits until its first state is on disk and recorded, or lost.
    pub(crate) fn settled(&self) {
        let mut start = self.start.start.lock();
        while start.is_some() {
            self.start.settled.wait(&mut start);
        }
    }

    /// Waits for its first state, and records it.
    fn settle_start(self: Arc<Machine>) {
        let Some(start) = self.start.start.lock().clone() else { return };
        let saved = start.state.saved().map_err(Into::into).and_then(|image| {
            let image = PinnedImage(image);
            stasis_engine::fault::point("branch.unsaved")?;
            self.host.records.start_saved(self.id, &image)?;
            Ok::<_, Error>(image)
        });
        match saved {
            Ok(image) => {
                let mut record = self.record();
                (record.start_image, record.head_image) = (image.id(), image.id());
            }
            Err(_) if self.is_removed() => {}
            Err(error) => self.lose_start(&start, &error.to_string()),
        }
        *self.start.start.lock() = None;
        self.start.settled.notify_all();
        self.tell();
    }

    /// The machine is at the recorded older state of its source.
    fn lose_start(self: &Arc<Machine>, start: &UnsavedStart, why: &str) {
        tracing::error!(machine = %self.name(), why, "the state of a branch was not saved");
        {
            let mut record = self.record();
            (record.start_image, record.head_image) = (start.older_image, start.older_image);
            record.made.parent = Some(start.older.clone());
        }
        let words = lost_words(why, &start.older);
        self.work().lost = Some(words.clone());
        let _ = self.post(Action::StartLost(words));
    }
}

/// The message for a branch whose first state is lost.
pub(crate) fn lost_words(why: &str, older: &Parent) -> String {
    let place = match older.seq {
        Some(seq) => format!("`{}@{seq}`", older.machine),
        None => format!("the beginning of `{}`", older.machine),
    };
    format!("the state this branch started from was not saved ({why}); the branch is at {place}")
}

impl Driver {
    /// The machine leaves memory for the older state in its record.
    pub(crate) fn start_lost(&mut self, words: &str) {
        let told = self.fall_back(words, None).words;
        let all = if told.starts_with(words) { told } else { format!("{words}; {told}") };
        self.machine.work().lost = Some(all);
    }
}

/// Restores a state that may not be on disk, for an account.
pub(crate) fn restore(host: &HostInner, state: &UnsavedState, owner: &str) -> Result<RestoredTree> {
    let one = |ends| host.engine.restore_unsaved(state, ends);
    let (line, tree) = crate::wake::in_turn(host, owner, one)?;
    Ok(RestoredTree::new(tree, line))
}

impl Host {
    /// The state that branches start from, and the instruction it follows. It is held until the
    /// branches are recorded: the source may be removed meanwhile, and a collection may run.
    pub(crate) fn origin(
        &self,
        source: &Arc<Machine>,
        branch: &Branch,
    ) -> Result<(BranchOrigin, Option<u64>)> {
        let unsaved = may_start_unsaved(&source.record().made, branch);
        match branch.seq {
            Some(wanted) => {
                let shared = unsaved.then(|| source.work().take_shared(Some(wanted))).flatten();
                if let Some((state, seq)) = shared {
                    return Ok((BranchOrigin::Unsaved(state), seq));
                }
                let image = self.checkpoint_image(source, wanted)?;
                Ok((BranchOrigin::Saved(image), Some(wanted)))
            }
            None if unsaved => source.request_state(),
            None => {
                let (image, seq) = source.request(Action::Image)?;
                Ok((BranchOrigin::Saved(image), seq))
            }
        }
    }
}
