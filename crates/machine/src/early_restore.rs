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
use std::thread::JoinHandle;

/// A tree being restored before it is known whether it will be needed.
pub(crate) struct EarlyRestore {
    image: ImageId,
    standing: JoinHandle<Result<RestoredTree>>,
}

impl EarlyRestore {
    pub fn start(machine: &Machine, image: ImageId) -> Option<EarlyRestore> {
        let (host, record) = (machine.host.clone(), machine.record().clone());
        let thread = std::thread::Builder::new().name("stasis-ahead".into());
        let users = host.users.clone();
        let work = users.counted(move || restore(&host, &record, image));
        let standing = thread.spawn(work).ok()?;
        Some(EarlyRestore { image, standing })
    }

    /// The same for a state that is written and not on disk yet.
    fn start_unsaved(machine: &Machine, state: UnsavedState) -> Option<EarlyRestore> {
        let (host, record) = (machine.host.clone(), machine.record().clone());
        let image = state.id();
        let users = host.users.clone();
        let restore = users.counted(move || {
            let made = unsaved::restore(&host, &state, &record.made.account)?;
            tell(&host, &record, image, made)
        });
        let thread = std::thread::Builder::new().name("stasis-ahead".into());
        Some(EarlyRestore { image, standing: thread.spawn(restore).ok()? })
    }

    /// The tree, if it has that image. Otherwise the caller restores, and gets the error.
    pub fn finish(self, image: ImageId) -> Option<RestoredTree> {
        let standby = self.standing.join().ok()?.ok()?;
        (self.image == image).then_some(standby)
    }
}

fn restore(host: &HostInner, record: &MachineRecord, image: ImageId) -> Result<RestoredTree> {
    let made = restore_at_once(host, image, &record.made.account)?;
    tell(host, record, image, made)
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
