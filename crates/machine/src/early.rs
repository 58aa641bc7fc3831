//! Restores that start before it is certain that they are needed.
//!
//!   undo, redo requested ─► the likely state is restored ......... ─► taken over, if it is the one
//!                      └──► the driver saves the state to be left, decides, records ──┘
//!
//! A restore takes about as long as the save of a small state, so the two run side by side, from
//! the moment of the request. A tree of another state than the one decided on is ended unseen.

use crate::error::Result;
use crate::host::HostInner;
use crate::machine::Machine;
use crate::wake::{RestoredTree, restore};
use stasis_engine::ImageId;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A tree being restored before it is known whether it will be needed.
pub(crate) struct EarlyRestore {
    image: ImageId,
    standing: JoinHandle<Result<RestoredTree>>,
}

impl EarlyRestore {
    pub fn start(host: &Arc<HostInner>, image: ImageId, owner: String) -> Option<EarlyRestore> {
        let host = host.clone();
        let thread = std::thread::Builder::new().name("stasis-ahead".into());
        let standing = thread.spawn(move || restore(&host, image, &owner)).ok()?;
        Some(EarlyRestore { image, standing })
    }

    /// The tree, if it is of that image. Without one the caller restores, and gets the error.
    pub fn finish(self, image: ImageId) -> Option<RestoredTree> {
        let standby = self.standing.join().ok()?.ok()?;
        (self.image == image).then_some(standby)
    }
}

impl Machine {
    /// Whether a request would be carried out next, so that nothing can change the state that it
    /// leads to.
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
        self.restore_early(|| {
            let undone = self.host.records.undone(self.id).ok()?;
            let wanted = *undone.get(n.checked_sub(1)?)?;
            let states = self.host.records.undone_checkpoints(self.id).ok()?;
            states.iter().find(|one| one.seq == wanted).map(|one| one.image)
        })
    }

    /// For a machine that is in memory: one that is not stays out of it. A way outside is made with
    /// the restore that is taken over, so a machine with a network does without.
    fn restore_early(&self, image: impl FnOnce() -> Option<ImageId>) -> Option<EarlyRestore> {
        if !self.work().state().is_in_memory() || !self.record().made.network.is_none() {
            return None;
        }
        EarlyRestore::start(&self.host, image()?, self.account())
    }
}
