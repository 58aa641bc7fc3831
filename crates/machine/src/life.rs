//! What a driver does to its machine as a whole: wake it, save it, swap it out, let it fall back.

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::held::Held;
use crate::host::Inner;
use crate::limits::Cause;
use crate::live::{Heard, Live};
use crate::machine::Machine;
use crate::observe::{Moment, word};
use crate::standby::{self, Stood};
use stasis_api::{EventKind, Instruction, Status, Stream, Timestamp};
use stasis_engine::fault;
use stasis_protocol::{Reason, Report};
use stasis_store::{Finished, HeldImage, NewCheckpoint};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

const PAGE: u64 = 4096;

/// The machine's memory was lost; it is at its last checkpoint again.
pub struct Fall {
    /// A stable name for programs.
    pub code: &'static str,
    /// What happened, where the machine is now, and what is gone.
    pub words: String,
}

fn end(live: Live, machine: &Machine) {
    if let Err(error) = live.tree.kill() {
        tracing::warn!(machine = %machine.name(), %error, "ending the tree");
    }
}

/// A tree being restored before it is known whether it will be needed.
pub(crate) struct Ahead {
    image: String,
    standing: JoinHandle<Result<Stood>>,
}

impl Ahead {
    pub fn start(host: &Arc<Inner>, image: &str, owner: String) -> Option<Ahead> {
        let (host, image) = (host.clone(), image.to_owned());
        let own = image.clone();
        let thread = std::thread::Builder::new().name("stasis-ahead".into());
        let standing = thread.spawn(move || standby::stand(&host, &own, &owner)).ok()?;
        Some(Ahead { image, standing })
    }

    /// The tree, if it is one of that image; whoever finds none makes one, and meets what is wrong.
    fn finish(self, image: &str) -> Option<Stood> {
        let stood = self.standing.join().ok()?.ok()?;
        (self.image == image).then_some(stood)
    }
}

impl Driver {
    /// Brings the machine into memory, if it is not.
    pub(crate) fn ensure_live(&mut self) -> Result<()> {
        if self.live.is_some() {
            return Ok(());
        }
        let record = self.machine.record().clone();
        let fresh = record.head_image == record.start_image;
        let back = std::mem::take(&mut self.machine.work().rolled_back);
        let reason = match (fresh, &record.made.parent) {
            (true, None) => Reason::New,
            (true, Some(_)) => Reason::Branch,
            (false, _) if back => Reason::Rollback,
            (false, _) => Reason::Wake,
        };
        self.machine.observe(Moment::Waking(word(reason)));
        let ready = match reason {
            Reason::New => self.host.standby.take(&record.head_image),
            _ => self.ahead.take().and_then(|ahead| ahead.finish(&record.head_image)),
        };
        fault::point("driver.waking")?;
        self.live = Some(Live::wake(&self.host, &record, reason, ready)?);
        self.machine.work().live = true;
        self.open_files().and_then(|()| self.apply_limits()).inspect_err(|_| self.let_go())?;
        self.machine.observe(Moment::Awake);
        Ok(())
    }

    /// Lets others at the machine's files, from now until it leaves memory.
    fn open_files(&self) -> Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        let files = Files::new(live.tree.inside()?);
        let mut work = self.machine.work();
        if work.removed {
            drop(work);
            return Err(self.machine.removed());
        }
        work.files = Some(Arc::new(files));
        drop(work);
        self.machine.event_at(EventKind::MachineWoken, None);
        self.machine.tell();
        Ok(())
    }

    /// Saves the state after the last instruction that ran, with what was done to files since.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        let files = self.machine.work().files.clone();
        // until it is noted as saved: what changes afterwards must be noted as unsaved
        let _still = files.as_ref().map(|files| files.still());
        self.save()
    }

    /// Saves the state and lets the memory go.
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
        self.machine.observe(Moment::Saving);
        let saved = self.save_state();
        let told = if saved.is_ok() { Moment::Saved } else { Moment::NotSaved };
        self.machine.observe(told);
        saved
    }

    fn save_state(&mut self) -> Result<()> {
        let captured = self.capture()?;
        let (image, seq) = (Held(captured.image), self.last_ran());
        let head = self.machine.record().head_seq;
        match seq.filter(|_| seq != head) {
            // nothing ran since: it is the same state, but for files and what a wake made fresh
            None => self.host.store.set_head(self.machine.id, &image, seq)?,
            Some(seq) => {
                // a page counts whether or not another machine has the same: what an account is
                // told must not depend on what others keep
                let pages = captured.pages.new + captured.pages.elsewhere;
                let (at, bytes) = (Timestamp::now(), pages * PAGE);
                let new = NewCheckpoint { seq, at, bytes };
                self.host.store.add_checkpoint(self.machine.id, &image, new)?;
            }
        }
        self.moved_to(image.name(), seq);
        self.machine.event_at(EventKind::CheckpointMade, seq);
        Ok(())
    }

    /// Ends the tree without saving; what was not saved is gone.
    pub(crate) fn let_go(&mut self) {
        if let Some(live) = self.part() {
            end(live, &self.machine);
        }
    }

    /// The same, without waiting for the end: another tree takes its place.
    pub(crate) fn let_go_behind(&mut self) {
        let Some(live) = self.part() else { return };
        let machine = self.machine.clone();
        let thread = std::thread::Builder::new().name("stasis-end".into());
        // one that cannot be started has dropped the tree, which ends it as well
        self.ending = thread.spawn(move || end(live, &machine)).ok();
    }

    fn part(&mut self) -> Option<Live> {
        if let Some(ending) = self.ending.take() {
            let _ = ending.join();
        }
        let live = self.live.take();
        self.machine.work().left_memory();
        self.machine.tell();
        live
    }

    pub(crate) fn moved_to(&self, image: String, seq: Option<u64>) {
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
    fn capture(&mut self) -> Result<stasis_engine::Captured> {
        let captured = self.answered().and_then(|()| {
            let Some(live) = &mut self.live else { return Err(self.broken("it is not in memory")) };
            live.capture(&self.host, &self.machine.account())
        });
        if let Ok(captured) = &captured {
            self.machine.work().pause = captured.pause;
        }
        let ended = self.live.as_ref().is_some_and(|live| !live.tree.is_alive());
        if captured.is_err() && ended {
            self.fell = Some(self.fall_back("its process ended", None).words);
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

    /// Waits until the agent has answered whatever was sent to it.
    pub(crate) fn answered(&mut self) -> Result<()> {
        let Some(live) = &mut self.live else { return Ok(()) };
        for one in live.settle()? {
            match one {
                Heard::Stdout(bytes) => self.keep_early(Stream::Stdout, bytes),
                Heard::Stderr(bytes) => self.keep_early(Stream::Stderr, bytes),
                Heard::Report(Report::Awake { changed, .. }) => self.note_fresh(&changed),
                Heard::Report(_) | Heard::Gone(_) => {}
            }
        }
        Ok(())
    }

    pub(crate) fn broken(&self, what: &str) -> Error {
        Error::Broken { machine: self.machine.name().to_string(), what: what.to_owned() }
    }

    /// Waits until the agent has answered.
    pub(crate) fn wake(&mut self) -> Result<()> {
        if self.live.is_some() {
            return Ok(());
        }
        let machine = self.machine.clone();
        machine.host.in_turn(&machine.account(), || {
            machine.host.admit_memory(&machine)?;
            self.ensure_live()
        })?;
        self.answered().inspect_err(|_| self.let_go())
    }

    /// The tree is gone or has to go: the machine is at its last checkpoint again. `during` is the
    /// instruction that ran.
    pub(crate) fn fall_back(&mut self, why: &str, during: Option<u64>) -> Fall {
        let cause = match &self.live {
            Some(live) => Cause::of(&live.tree),
            None => Cause { code: "machine.process_ended", words: None },
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
            words += &format!("; what instruction {} did is gone, too", numbers.join(", "));
        }
        for seq in lost {
            let _ = self.mark_lost(seq, &words);
        }
        let removed = {
            let mut work = self.machine.work();
            work.falls += 1;
            work.last_ran = head;
            work.removed
        };
        if !removed {
            self.machine.event_about(EventKind::MachineFellBack, &words);
        }
        self.machine.observe(Moment::FellBack);
        Fall { code: cause.code, words }
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
        let list = self.host.store.instructions(self.machine.id, from, limit).unwrap_or_default();
        let ran = |own: &Instruction| matches!(own.status, Status::Done | Status::Interrupted);
        list.into_iter().filter(|own| ran(own) && !own.rolled_back).map(|own| own.seq).collect()
    }

    fn mark_lost(&self, seq: u64, words: &str) -> Result<()> {
        let old = self.machine.instruction(seq)?;
        self.machine.record_lost(old, words)
    }
}

impl crate::machine::Machine {
    /// Writes down that what an instruction did is gone.
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
        };
        let (at, outputs) = (Timestamp::now(), old.outputs);
        let end = Finished { seq: old.seq, status, at, outputs, outcome, receipt };
        self.host.store.finish_instruction(self.id, &end)?;
        self.tell();
        self.ended(end.seq, end.status);
        Ok(())
    }
}
