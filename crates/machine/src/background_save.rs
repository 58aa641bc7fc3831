//! An undo of a state that is still being saved.
//!
//!   instruction ─► capture ─► twin, or written ─► on disk ........... ─► on record, to be redone
//!                               └─ undo: the state before is restored, on record, answered
//!
//! After an instruction a thread holds the machine until it is saved, and the driver carries out an
//! undo meanwhile if one is the next request: as soon as the state to be left does not depend on
//! its tree any more. That state still goes to disk. If the write fails, or the process is killed,
//! it cannot be redone; nothing else is lost.

use crate::action::{Action, EarlyStep, ReplySender};
use crate::driver::Driver;
use crate::early_restore::EarlyRestore;
use crate::error::Result;
use crate::history::BranchOrigin;
use crate::life::end;
use crate::live::LiveMachine;
use crate::pinned::PinnedImage;
use crate::unsaved::SharedState;
use crate::work::silence;
use parking_lot::Mutex;
use stasis_api::{EventKind, Timestamp};
use stasis_engine::{Captured, UnsavedState};
use stasis_records::NewCheckpoint;
use stasis_sys::{fds, libc};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};

const PAGE: u64 = 4096;
/// Poll interval of the driver when nothing wakes it.
const LOOK_MS: i32 = 50;

/// The outcome of a capture.
pub(crate) enum Capture {
    Taken(Captured),
    /// The machine has moved to an earlier state meanwhile, on record and in memory.
    Left,
}

/// A machine that a thread is saving.
struct Saving {
    live: Arc<LiveMachine>,
    /// The outcome. When it arrives, no other thread holds the machine.
    captured: Receiver<Result<Captured>>,
}

/// Callers that are offered a state before it is on disk.
pub(crate) type AskedState = Arc<Mutex<Option<ReplySender<(BranchOrigin, Option<u64>)>>>>;

impl Driver {
    /// Saves the state after an instruction. An undo does not wait for this.
    pub(crate) fn checkpoint_behind(&mut self) {
        self.yields = true;
        let _ = self.checkpoint();
        self.yields = false;
    }

    /// An undo. If the state it leaves is not saved yet, the undo runs while that state is written.
    pub(crate) fn undo_behind(&mut self, request: EarlyStep, reply: ReplySender<()>) {
        let mut work = self.machine.work();
        if self.live.is_none() || work.queue.is_saved() {
            drop(work);
            return reply.give(self.undo(request));
        }
        work.queue.request_first(Action::Undo(request, reply));
        drop(work);
        self.checkpoint_behind();
        // still present if it was not carried out: the state is saved by now, or cannot be
        let is_undo = |action: &Action| matches!(action, Action::Undo(..));
        let left = self.machine.work().queue.take_request_if(is_undo);
        if let Some(Action::Undo(request, reply)) = left {
            reply.give(self.undo(request));
        }
    }

    /// Captures the machine. As soon as its state can no longer change, branches may start from it
    /// and its requesters are answered.
    pub(crate) fn capture_live(&mut self) -> Result<Capture> {
        let asked: AskedState = Arc::new(Mutex::new(self.wants_state.take()));
        let captured = match self.yields {
            true => self.capture_behind(&asked),
            false => self.capture_here(&asked).map(Capture::Taken),
        };
        self.wants_state = asked.lock().take();
        captured
    }

    fn capture_here(&mut self, asked: &AskedState) -> Result<Captured> {
        let Some(live) = &self.live else { return Err(self.broken("it is not in memory")) };
        live.capture_sharing(&self.host, &self.machine.account(), self.share(asked))
    }

    /// Offers a state to branches before it is on disk.
    fn share(&self, asked: &AskedState) -> impl FnOnce(UnsavedState) + Send + 'static {
        let (machine, seq, asked) = (self.machine.clone(), self.last_ran(), asked.clone());
        move |state| {
            let mut asked: Vec<_> = asked.lock().take().into_iter().collect();
            let mut work = machine.work();
            // requests that arrived during the pause, before anything else they sent
            let is_state = |action: &Action| matches!(action, Action::State(_));
            while let Some(Action::State(reply)) = work.queue.take_request_if(is_state) {
                asked.push(reply);
            }
            let taken = !asked.is_empty();
            work.shared = Some(SharedState { state: state.clone(), seq, taken });
            work.wake_driver();
            drop(work);
            for reply in asked {
                reply.give(Ok((BranchOrigin::Unsaved(state.clone()), seq)));
            }
        }
    }

    fn capture_behind(&mut self, asked: &AskedState) -> Result<Capture> {
        let Some(live) = self.live.take() else { return Err(self.broken("it is not in memory")) };
        let live = Arc::new(live);
        let (own, machine, share) = (live.clone(), self.machine.clone(), self.share(asked));
        let (tell, captured) = mpsc::channel();
        let faults = stasis_engine::fault::owner();
        let save = move || {
            stasis_engine::fault::adopt(faults);
            let captured = own.capture_sharing_here(&machine.host, &machine.account(), share);
            drop(own);
            let _ = tell.send(captured);
            machine.work().wake_driver();
        };
        let thread = std::thread::Builder::new().name("stasis-save".into());
        if thread.spawn(self.host.users.counted(save)).is_err() {
            self.live = Arc::into_inner(live);
            return self.capture_here(asked).map(Capture::Taken);
        }
        let mut saving = Saving { live, captured };
        let captured = loop {
            match saving.captured.try_recv() {
                Ok(captured) => break captured,
                Err(TryRecvError::Disconnected) => resume_unwind(Box::new("saving failed")),
                Err(TryRecvError::Empty) => {}
            }
            if let Some((request, reply)) = self.undo_asked() {
                match self.undo_meanwhile(request, saving) {
                    Ok(()) => {
                        reply.give(Ok(()));
                        return Ok(Capture::Left);
                    }
                    Err(refused) => {
                        let (error, still) = *refused;
                        reply.give(Err(error));
                        saving = still;
                    }
                }
            }
            let _ = fds::poll_readable(self.wakeup.as_fd(), LOOK_MS);
            silence(&self.wakeup);
        };
        self.live = Arc::into_inner(saving.live);
        captured.map(Capture::Taken)
    }

    /// An undo that is the next request, of a state that can no longer change and that belongs to
    /// an instruction.
    fn undo_asked(&self) -> Option<(EarlyStep, ReplySender<()>)> {
        let (head, closed) = {
            let record = self.machine.record();
            (record.head_seq, record.made.network.is_none())
        };
        let mut work = self.machine.work();
        let is_new = work.shared.as_ref().is_some_and(|shared| shared.seq != head);
        if !is_new || !closed || !work.state().accepts() {
            return None;
        }
        let undo = work.queue.take_request_if(|action| matches!(action, Action::Undo(..)));
        match undo {
            Some(Action::Undo(request, reply)) => Some((request, reply)),
            _ => None,
        }
    }

    /// Goes back while the left state is being saved. If refused, nothing has changed.
    fn undo_meanwhile(
        &mut self,
        EarlyStep { steps, ahead }: EarlyStep,
        saving: Saving,
    ) -> std::result::Result<(), Box<(crate::error::Error, Saving)>> {
        let left = self.last_ran();
        let to = match self.undone_state(steps).and_then(|to| Ok((self.state_image(to)?, to))) {
            Ok(to) => to,
            Err(error) => return Err(Box::new((error, saving))),
        };
        let (image, to) = to;
        self.ahead = ahead.or_else(|| EarlyRestore::start(&self.machine, image.0.id));
        let recorded = self.host.records.roll_back(self.machine.id, &image, to, self.sync_time());
        if let Err(error) = self.is_kept(recorded, to) {
            self.ahead = None;
            return Err(Box::new((error, saving)));
        }
        let shared = self.machine.work().shared.take();
        // the tree's further effects are invisible, and not in the saved state
        let _ = saving.live.tree.signal(libc::SIGSTOP);
        if let Err(error) = self.go_to(&image, to, EventKind::MachineRolledBack) {
            tracing::warn!(machine = %self.machine.name(), %error, "after an undo");
        }
        // not before: an earlier state that was left is saved by now
        self.machine.work().left = shared;
        self.finish_behind(saving, left);
        self.come_back(true);
        Ok(())
    }

    /// Records the left state and ends its tree.
    fn finish_behind(&mut self, saving: Saving, left: Option<u64>) {
        let (machine, host) = (self.machine.clone(), self.host.clone());
        let (recording, recorded) = mpsc::channel();
        let finish = move || {
            let Saving { live, captured } = saving;
            match (captured.recv(), left) {
                (Ok(Ok(captured)), Some(seq)) => {
                    let pages = captured.pages.new + captured.pages.elsewhere;
                    let new = NewCheckpoint { seq, at: Timestamp::now(), bytes: pages * PAGE };
                    let image = PinnedImage(captured.image);
                    let kept = host.records.checkpoint_undone(machine.id, &image, new);
                    if let Err(error) = kept {
                        tracing::warn!(machine = %machine.name(), %error, "not to be redone");
                    }
                }
                (Ok(Err(error)), _) => {
                    tracing::warn!(machine = %machine.name(), %error, "not to be redone");
                }
                _ => tracing::error!(machine = %machine.name(), "saving failed"),
            }
            machine.work().left = None;
            // a redo goes on from here, beside the end of the tree
            drop(recording);
            if let Some(live) = Arc::into_inner(live) {
                end(live, &machine);
            }
        };
        let thread = std::thread::Builder::new().name("stasis-end".into());
        // if the thread cannot be started, the tree was dropped, which ends it too
        self.endings.save(thread.spawn(self.host.users.counted(finish)).ok(), recorded);
    }
}
