//! Saves a machine in memory, swaps it out, and rolls it back.

use crate::background_save::Capture;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::limits::ExitCause;
use crate::live::{AgentEvent, LiveMachine};
use crate::machine::Machine;
use crate::observe::ObservedEvent;
use crate::pinned::PinnedImage;
use crate::state::StateEvent;
use stasis_api::{EventKind, Instruction, Status, Stream, Timestamp};
use stasis_engine::ImageId;
use stasis_protocol::Report;
use stasis_records::{FinishedInstruction, HeldImage, NewCheckpoint};
use std::time::Instant;

const PAGE: u64 = 4096;

/// The machine's memory was lost; it is at its last checkpoint again.
pub struct StateLoss {
    /// A stable name for programs.
    pub code: &'static str,
    /// The cause, the machine's current state, and the lost instructions.
    pub words: String,
}

pub(crate) fn end(live: LiveMachine, machine: &Machine) {
    if let Err(error) = live.tree.kill() {
        tracing::warn!(machine = %machine.name(), %error, "ending the tree");
    }
    let remains = stasis_engine::remains();
    if remains > 0 {
        tracing::warn!(machine = %machine.name(), remains, "the kernel has not ended some trees");
    }
}

impl Driver {
    /// Saves the state after the last instruction that ran, including later changes to files.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        let files = self.machine.work().files.clone();
        // held until it is marked as saved: later changes must be marked as unsaved
        let _still = files.as_ref().map(|files| files.still());
        self.save()
    }

    /// Saves the state and frees the memory.
    pub(crate) fn swap_out(&mut self) -> Result<()> {
        if self.live.is_none() {
            return Ok(());
        }
        let files = self.machine.work().files.clone();
        let _still = files.as_ref().map(|files| files.still());
        self.save()?;
        self.let_go();
        self.machine.event_at(EventKind::MachineSwapped, self.last_ran());
        Ok(())
    }

    fn save(&mut self) -> Result<()> {
        if self.live.is_none() {
            return Err(self.broken("it is not in memory"));
        }
        if !self.step(StateEvent::Save) {
            return Err(self.machine.removed());
        }
        self.machine.observe(ObservedEvent::Saving);
        self.machine.settled();
        let saved = self.save_state();
        self.machine.work().shared = None;
        let told = if saved.is_ok() { ObservedEvent::Saved } else { ObservedEvent::NotSaved };
        self.machine.observe(told);
        self.step(StateEvent::Saved);
        saved
    }

    fn save_state(&mut self) -> Result<()> {
        let Capture::Taken(captured) = self.capture()? else { return Ok(()) };
        let (image, seq) = (PinnedImage(captured.image), self.last_ran());
        let head = self.machine.record().head_seq;
        match seq.filter(|_| seq != head) {
            // nothing ran since: the same state, except for files and what a wake renewed
            None => self.host.records.replace_head(self.machine.id, &image, seq)?,
            Some(seq) => {
                // a page counts even if another machine has the same one: reported sizes must not
                // depend on other accounts
                let pages = captured.pages.new + captured.pages.elsewhere;
                let (at, bytes) = (Timestamp::now(), pages * PAGE);
                let new = NewCheckpoint { seq, at, bytes };
                self.host.records.checkpoint(self.machine.id, &image, new)?;
            }
        }
        self.moved_to(image.id(), seq);
        self.machine.event_at(EventKind::CheckpointMade, seq);
        Ok(())
    }

    /// Ends the tree without saving; unsaved state is lost.
    pub(crate) fn let_go(&mut self) {
        self.endings.wait();
        if let Some(live) = self.part() {
            end(live, &self.machine);
        }
    }

    /// The same, without waiting for the end: another tree takes its place.
    pub(crate) fn let_go_behind(&mut self) {
        let Some(live) = self.part() else { return };
        let machine = self.machine.clone();
        let thread = std::thread::Builder::new().name("stasis-end".into());
        // if the thread cannot be started, the tree was dropped, which ends it too
        let work = self.host.users.counted(move || end(live, &machine));
        self.endings.add(thread.spawn(work).ok());
    }

    fn part(&mut self) -> Option<LiveMachine> {
        self.endings.wait_saved();
        let live = self.live.take();
        let state = self.machine.work().step(StateEvent::Out);
        self.machine.tell();
        self.passed(state);
        live
    }

    pub(crate) fn moved_to(&self, image: ImageId, seq: Option<u64>) {
        let mut record = self.machine.record();
        record.head_image = image;
        record.head_seq = seq;
        drop(record);
        let mut work = self.machine.work();
        work.queue.saved();
        work.pinned = None;
        drop(work);
        self.machine.tell();
    }

    /// An image of the tree. If that is refused, the machine is pinned with the reason.
    fn capture(&mut self) -> Result<Capture> {
        let captured = self.answered().and_then(|()| self.capture_live());
        if let Ok(Capture::Taken(captured)) = &captured {
            self.machine.work().pause = captured.pause;
        }
        let ended = self.live.as_ref().is_some_and(|live| !live.tree.is_alive());
        if captured.is_err() && ended {
            self.fall_back_between("its process ended");
            return Err(Error::Ended(self.machine.name().to_string()));
        }
        captured.inspect_err(|error| {
            let mut work = self.machine.work();
            work.pinned = Some(error.to_string());
            work.queue.refused(Instant::now());
            drop(work);
            self.machine.tell();
            self.machine.event_about(EventKind::MachinePinned, &error.to_string());
        })
    }

    /// Waits until the agent has answered every order.
    pub(crate) fn answered(&mut self) -> Result<()> {
        let Some(live) = &mut self.live else { return Ok(()) };
        for one in live.settle()? {
            match one {
                AgentEvent::Stdout(bytes) => self.keep_early(Stream::Stdout, bytes),
                AgentEvent::Stderr(bytes) => self.keep_early(Stream::Stderr, bytes),
                AgentEvent::Report(Report::Awake { changed, .. }) => self.note_fresh(&changed),
                AgentEvent::Report(_) | AgentEvent::Gone(_) => {}
            }
        }
        Ok(())
    }

    pub(crate) fn broken(&self, what: &str) -> Error {
        Error::Broken { machine: self.machine.name().to_string(), what: what.to_owned() }
    }

    /// The tree has exited or must be killed: the machine returns to its last checkpoint. `during`
    /// is the instruction that ran.
    pub(crate) fn fall_back(&mut self, why: &str, during: Option<u64>) -> StateLoss {
        let cause = match &self.live {
            Some(live) => ExitCause::of(&live.tree),
            None => ExitCause { code: "machine.process_ended", words: None },
        };
        self.let_go();
        let why = cause.words.as_deref().unwrap_or(why);
        let head = self.machine.record().head_seq;
        let until = self.last_ran().filter(|ran| Some(*ran) != during);
        let place = match self.machine.durable() {
            Some(address) => format!("the machine is back at `{address}`"),
            None => "the machine is back at its beginning".to_owned(),
        };
        let mut words = format!("{why}; {place}");
        let lost = self.ran_between(head, until);
        if !lost.is_empty() {
            let numbers: Vec<String> = lost.iter().map(u64::to_string).collect();
            words += &format!("; the effects of instruction {} are lost, too", numbers.join(", "));
        }
        for seq in lost {
            let _ = self.mark_lost(seq, &words);
        }
        let removed = {
            let mut work = self.machine.work();
            work.falls += 1;
            work.last_ran = head;
            !work.state().accepts()
        };
        if !removed {
            self.machine.event_about(EventKind::MachineFellBack, &words);
        }
        self.machine.observe(ObservedEvent::RolledBack);
        StateLoss { code: cause.code, words }
    }

    /// The same while no instruction runs: the next receipt reports it.
    pub(crate) fn fall_back_between(&mut self, why: &str) {
        let words = self.fall_back(why, None).words;
        self.machine.work().lost = Some(words);
    }

    /// The last instruction whose effects are in memory.
    pub(crate) fn last_ran(&self) -> Option<u64> {
        self.machine.work().last_ran
    }

    /// Instructions that ran after `head`, up to `until`.
    fn ran_between(&self, head: Option<u64>, until: Option<u64>) -> Vec<u64> {
        let Some(until) = until else { return Vec::new() };
        let from = head.map_or(0, |seq| seq + 1);
        let limit = (until + 1).saturating_sub(from);
        let list = self.host.records.instructions(self.machine.id, from, limit).unwrap_or_default();
        let ran = |own: &Instruction| own.status.has_run() && !own.rolled_back;
        list.into_iter().filter(ran).map(|own| own.seq).collect()
    }

    fn mark_lost(&self, seq: u64, words: &str) -> Result<()> {
        let old = self.machine.instruction(seq)?;
        self.machine.record_lost(old, words)
    }
}

impl crate::machine::Machine {
    /// Records that an instruction's effects are lost.
    pub(crate) fn record_lost(&self, old: stasis_api::Instruction, words: &str) -> Result<()> {
        self.record_end(old, Status::Lost, words)
    }

    pub(crate) fn record_cancelled(&self, seq: u64, words: &str) -> Result<()> {
        let old = self.instruction(seq)?;
        self.record_end(old, Status::Cancelled, words)
    }

    fn record_end(&self, old: stasis_api::Instruction, status: Status, words: &str) -> Result<()> {
        let lost = status == Status::Lost;
        let code = if lost { "machine.state_lost" } else { "instruction.cancelled" };
        let failure = stasis_api::Failure {
            name: code.into(),
            message: words.to_owned(),
            traceback: format!("{code}: {words}"),
        };
        let known = old.outcome.unwrap_or_default();
        let outcome = stasis_api::Outcome { error: known.error.or(Some(failure)), ..known };
        let receipt = stasis_api::Receipt {
            address: self.address(old.seq),
            intact: !lost,
            durable: self.durable(),
            lost: lost.then(|| words.to_owned()),
            notes: Vec::new(),
            modules: Vec::new(),
        };
        let (at, outputs) = (Timestamp::now(), old.outputs);
        let end = FinishedInstruction { seq: old.seq, status, at, outputs, outcome, receipt };
        self.host.records.finish(self.id, end, Vec::new())?;
        self.work().ended = None;
        self.tell();
        self.ended(old.seq, status, None);
        Ok(())
    }
}
