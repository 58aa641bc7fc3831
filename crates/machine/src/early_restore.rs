//! Restores that start before it is certain that they are needed.
//!
//!   undo, redo requested ─► the likely state is restored ......... ─► taken over, if it is the one
//!                      └──► the driver saves the state to be left, decides, records ──┘
//!
//! A restore takes about as long as saving a small state, so both run in parallel from the moment
//! of the request, and the restored agent gets its first order meanwhile. If another state is
//! decided on, or the machine's settings change before, the restored tree is ended unused.

use crate::error::Result;
use crate::host::HostInner;
use crate::machine::Machine;
use crate::network::Grants;
use crate::unsaved;
use crate::wake::{FirstOrder, RestoredTree, restore_at_once};
use stasis_engine::{ImageId, UnsavedState};
use stasis_protocol::Reason;
use stasis_records::MachineRecord;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A tree being restored before it is known whether it will be needed.
pub(crate) struct EarlyRestore {
    image: ImageId,
    standing: JoinHandle<(Result<RestoredTree>, EarlyTurn)>,
}

/// One early restore of a machine, until its tree is taken over or ended: many requests at once
/// must not stand many trees up.
#[derive(Default)]
pub(crate) struct EarlyTurns(Arc<AtomicBool>);

struct EarlyTurn(Arc<AtomicBool>);

impl EarlyTurns {
    fn take(&self) -> Option<EarlyTurn> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| EarlyTurn(self.0.clone()))
    }
}

impl Drop for EarlyTurn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl EarlyRestore {
    pub fn start(machine: &Machine, image: ImageId) -> Option<EarlyRestore> {
        EarlyRestore::begin(machine, image, move |host, record| {
            restore_at_once(host, image, &record.made.account)
        })
    }

    /// The same for a state that is written and not on disk yet.
    fn start_unsaved(machine: &Machine, state: UnsavedState) -> Option<EarlyRestore> {
        EarlyRestore::begin(machine, state.id(), move |host, record| {
            unsaved::restore(host, &state, &record.made.account)
        })
    }

    /// None, if another early restore of the machine is under way.
    fn begin(
        machine: &Machine,
        image: ImageId,
        restore: impl FnOnce(&HostInner, &MachineRecord) -> Result<RestoredTree> + Send + 'static,
    ) -> Option<EarlyRestore> {
        let turn = machine.early.take()?;
        let (host, record) = (machine.host.clone(), machine.record().clone());
        let users = host.users.clone();
        let restore = users.counted(move || {
            let made = restore(&host, &record);
            (made.and_then(|made| tell(&host, &record, image, made)), turn)
        });
        let thread = std::thread::Builder::new().name("stasis-ahead".into());
        Some(EarlyRestore { image, standing: thread.spawn(restore).ok()? })
    }

    /// The tree, if it has that image. Otherwise the caller restores, and gets the error.
    pub fn finish(self, image: ImageId) -> Option<RestoredTree> {
        let standby = self.standing.join().ok()?.0.ok()?;
        (self.image == image).then_some(standby)
    }
}

/// Sends the first order. A machine that begins again is told so by its driver.
fn tell(
    host: &HostInner,
    record: &MachineRecord,
    image: ImageId,
    mut made: RestoredTree,
) -> Result<RestoredTree> {
    if image != record.start_image {
        let granted = Grants::of(host, record)?;
        made.tell(host, record, FirstOrder::of(record, Reason::Rollback, &granted))?;
    }
    Ok(made)
}

impl Machine {
    /// Whether a request would be the next to run, so that its target state cannot change.
    pub(crate) fn is_next(&self) -> bool {
        let work = self.work();
        work.state().instruction().is_none() && !work.queue.has_requests()
    }

    /// Starts to restore the state `n` instructions back.
    pub(crate) fn restore_before(&self, n: usize) -> Option<EarlyRestore> {
        self.restore_early(|| {
            let ran = self.host.records.ran(self.id, None, n as u64 + 1).ok()?;
            let found = self.host.records.checkpoint_at(self.id, *ran.get(n)?).ok()?;
            found.map(|one| one.image)
        })
    }

    /// Starts to restore the state `n` instructions forward.
    pub(crate) fn restore_after(&self, n: usize) -> Option<EarlyRestore> {
        let undone = self.host.records.undone(self.id).ok()?;
        let wanted = *undone.get(n.checked_sub(1)?)?;
        if let Some(state) = self.left_state(wanted).filter(|_| self.may_restore_early()) {
            return EarlyRestore::start_unsaved(self, state);
        }
        self.restore_early(|| {
            let states = self.host.records.undone_checkpoints(self.id).ok()?;
            states.iter().find(|one| one.seq == wanted).map(|one| one.image)
        })
    }

    /// The state after an instruction that an undo left, while it is not on disk. One that is
    /// shared before it is written gets another name.
    fn left_state(&self, seq: u64) -> Option<UnsavedState> {
        let work = self.work();
        let left = work.left.as_ref().filter(|left| left.seq == Some(seq))?;
        Some(left.state.clone()).filter(UnsavedState::is_written)
    }

    /// Only a machine in memory. Machines with a network are excluded, because the network belongs
    /// to the final restore.
    fn may_restore_early(&self) -> bool {
        self.work().state().is_in_memory() && self.record().made.network.is_none()
    }

    fn restore_early(&self, image: impl FnOnce() -> Option<ImageId>) -> Option<EarlyRestore> {
        if !self.may_restore_early() {
            return None;
        }
        EarlyRestore::start(self, image()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let turns = EarlyTurns::default();
        let first = turns.take().expect("the first");
        assert!(turns.take().is_none());
        drop(first);
        assert!(turns.take().is_some());
    }
}
