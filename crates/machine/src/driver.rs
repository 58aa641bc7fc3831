//! The driver: the one thread that changes a machine's state while it is in memory.
//!
//!   queue says ─► run an instruction, do a wish, save, swap out, or wait
//!
//! While an instruction runs, the driver listens to the machine, to its bell (somebody wants an
//! interrupt) and to the clock. An instruction that does not end after its timeout is interrupted;
//! one that does not heed that loses its machine's memory: the tree is ended and the next
//! instruction finds the last checkpoint. Whatever happens is in the instruction's receipt.

use crate::error::{Doing, Result};
use crate::host::Inner;
use crate::life::{Ahead, Fall};
use crate::lines::Lines;
use crate::live::{Heard, Live};
use crate::machine::Machine;
use crate::observe::Moment;
use crate::outcome::{explain, failure_of, outcome_of};
use crate::queue::{Around, Next};
use crate::traffic::LastAsked;
use stasis_api::{
    Durability, EventKind, Exec, Failure, Outcome, Receipt, Status, Stream, Timeout, Timestamp,
};
use stasis_engine::fault;
use stasis_protocol::{Done, Order, Report};
use stasis_store::Finished;
use stasis_sys::libc;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Something to do between two instructions.
pub type Wish = Box<dyn FnOnce(&mut Driver) + Send>;

/// Interrupts that are sent before the tree is ended, and the least time between two: one that
/// comes while the agent is about to start the code is not heeded.
const INTERRUPTS: u32 = 3;
const REMIND: Duration = Duration::from_secs(1);
/// How long an agent that comes into memory may take before it is interrupted all the same.
const WAKING: Duration = Duration::from_secs(5);
/// Output is written to the records in batches of at most this many lines.
const BATCH: usize = 512;

pub struct Driver {
    pub(crate) machine: Arc<Machine>,
    pub(crate) host: Arc<Inner>,
    pub(crate) live: Option<Live>,
    pub(crate) bell: File,
    /// Output that came while no instruction ran; it belongs to the next one.
    pub(crate) early: Vec<(Stream, Vec<u8>)>,
    /// What the next receipt should tell.
    pub(crate) notes: Vec<String>,
    /// Why the machine's memory was lost since the last instruction, if it was.
    pub(crate) fell: Option<String>,
    /// What the instruction left that its record does not hold.
    pub(crate) artifacts: Vec<stasis_api::Artifact>,
    /// How the instruction was recorded to have ended.
    ended: Status,
    asked: LastAsked,
    /// What a rollback will need, and what one left behind.
    pub(crate) ahead: Option<Ahead>,
    pub(crate) ending: Option<JoinHandle<()>>,
}

impl Drop for Driver {
    /// What it ended is gone when it is.
    fn drop(&mut self) {
        if let Some(ending) = self.ending.take() {
            let _ = ending.join();
        }
    }
}

/// How a run ended, as seen from outside.
enum End {
    Done(Done),
    /// The tree is gone or was ended: why.
    Fell(String),
}

/// An interrupt on its way.
struct Interrupt {
    /// When the last signal was sent, and how many were.
    at: Instant,
    sent: u32,
    why: Option<Duration>,
}

impl Driver {
    pub(crate) fn start(machine: Arc<Machine>, bell: File) -> Result<()> {
        let host = machine.host.clone();
        let mut driver = Driver {
            machine,
            host,
            live: None,
            bell,
            early: Vec::new(),
            notes: Vec::new(),
            fell: None,
            artifacts: Vec::new(),
            ended: Status::Lost,
            asked: LastAsked::default(),
            ahead: None,
            ending: None,
        };
        // a bug of ours must not leave requests that nobody answers
        let run = move || {
            while catch_unwind(AssertUnwindSafe(|| driver.run())).is_err() {
                let settled = catch_unwind(AssertUnwindSafe(|| driver.after_panic()));
                if settled.is_err() {
                    driver.give_up();
                }
            }
        };
        let thread = std::thread::Builder::new().name("stasis-driver".into());
        thread.spawn(run).doing(|| "start a driver".into()).map(drop)
    }

    fn run(&mut self) {
        loop {
            let now = Instant::now();
            let mut work = self.machine.work();
            if work.removed {
                drop(work);
                self.let_go();
                self.machine.dismiss(&mut self.machine.work());
                return;
            }
            let crowded = self.host.traffic.is_crowded(now);
            let next = work.queue.next(now, Around { live: self.live.is_some(), crowded });
            match &next {
                Next::Wait(_) if self.live.is_none() => {
                    self.machine.dismiss(&mut work);
                    return;
                }
                // before anybody else looks: it waits or runs, and is never neither
                Next::Run(seq) => work.begin(*seq),
                _ => {}
            }
            drop(work);
            match next {
                Next::Wish(wish) => {
                    let _ = fault::point("driver.asked");
                    wish(self);
                }
                Next::Run(seq) => self.instruction(seq),
                Next::Checkpoint => drop(self.checkpoint()),
                Next::SwapOut => drop(self.swap_out()),
                Next::Wait(until) => self.idle(until),
            }
        }
    }

    /// The machine is back at its last checkpoint, and what waits goes on from there.
    fn after_panic(&mut self) {
        const WHY: &str = "an internal error";
        tracing::error!(machine = %self.machine.name(), "driver failed; its machine falls back");
        self.live = None;
        let seq = self.machine.work().running;
        match seq {
            Some(seq) => {
                let _ = self.finish_fallen(seq, WHY, Instant::now(), 0);
                self.is_over(seq);
            }
            None => self.fell = Some(self.fall_back(WHY, None).words),
        }
    }

    /// Not even that: nothing is left that waits.
    fn give_up(&mut self) {
        self.live = None;
        let wishes = {
            let mut work = self.machine.work();
            work.left_memory();
            work.running = None;
            work.feed = None;
            work.execs.clear();
            work.queue.cancel_all();
            work.queue.drop_wishes()
        };
        drop(wishes);
        self.machine.tell();
    }

    /// Waits; the machine may say something or end meanwhile.
    fn idle(&mut self, until: Option<Instant>) {
        let Some(live) = &mut self.live else { return };
        let heard = match live.wait(&self.bell, until) {
            Ok(heard) => heard,
            Err(error) => vec![Heard::Gone(error.to_string())],
        };
        for one in heard {
            match one {
                Heard::Stdout(bytes) => self.keep_early(Stream::Stdout, bytes),
                Heard::Stderr(bytes) => self.keep_early(Stream::Stderr, bytes),
                Heard::Report(Report::Awake { changed, .. }) => self.note_fresh(&changed),
                Heard::Report(_) => {}
                Heard::Gone(why) => {
                    let fall = self.fall_back(&format!("{why} while no instruction ran"), None);
                    self.fell = Some(fall.words);
                    return;
                }
            }
        }
    }

    /// What the agent made new when the machine came into memory.
    pub(crate) fn note_fresh(&mut self, changed: &[String]) {
        if !changed.is_empty() {
            self.notes.push(format!("made fresh: {}", changed.join(", ")));
        }
    }

    pub(crate) fn keep_early(&mut self, stream: Stream, bytes: Vec<u8>) {
        let held: usize = self.early.iter().map(|(_, bytes)| bytes.len()).sum();
        if held + bytes.len() <= self.host.settings.max_output {
            self.early.push((stream, bytes));
        }
    }

    /// Runs one instruction to its end, whichever that is.
    fn instruction(&mut self, seq: u64) {
        let started = Instant::now();
        let exec = self.machine.work().execs.remove(&seq).unwrap_or_default();
        let limits = self.machine.record().made.limits.or(self.host.settings.limits);
        let most = self.host.artifact_room(self.machine.id, limits);
        let room = self.host.settings.max_output;
        let mut lines = Lines::keeping(room, self.host.shelf.parts(most));
        self.artifacts.clear();
        let host = self.host.clone();
        host.traffic.ask(&mut self.asked, started);
        let arrival = self.live.is_none().then(|| host.traffic.arrive());
        self.machine.event_at(EventKind::InstructionStarted, Some(seq));
        self.machine.observe(Moment::TakenUp(seq));
        let ended = self.run_code(seq, &exec, &mut lines);
        drop(arrival);
        self.machine.observe(Moment::Ran);
        let result = match ended {
            Ok((End::Done(done), interrupt)) => {
                self.finish_done(seq, &exec, done, interrupt, &mut lines, started)
            }
            Ok((End::Fell(why), _)) => {
                self.push(lines.finish());
                self.artifacts = self.artifacts_of(seq, &mut lines);
                self.finish_fallen(seq, &why, started, lines.count())
            }
            Err(error) => self.finish_unstarted(seq, &error, lines.count()),
        };
        let result =
            result.or_else(|error| if self.machine.is_removed() { Ok(()) } else { Err(error) });
        if let Err(error) = result {
            // the records cannot be written: the instruction stays as running there, and whoever
            // asks again gets the database's error
            tracing::error!(machine = %self.machine.name(), seq, %error, "result not recorded");
        }
        self.is_over(seq);
    }

    fn is_over(&mut self, seq: u64) {
        let mut work = self.machine.work();
        work.running = None;
        work.feed = None;
        work.interrupt = None;
        drop(work);
        self.machine.tell();
        self.machine.ended(seq, self.ended);
    }

    fn run_code(
        &mut self,
        seq: u64,
        exec: &Exec,
        lines: &mut Lines,
    ) -> Result<(End, Option<Interrupt>)> {
        self.host.store.start_instruction(self.machine.id, seq, Timestamp::now())?;
        fault::point("driver.instruction")?;
        self.ensure_live()?;
        for (stream, bytes) in std::mem::take(&mut self.early) {
            self.push(lines.take(stream, &bytes));
        }
        let order = Order::Exec(stasis_protocol::Exec {
            seq,
            code: exec.code.clone(),
            max_bytes: self.host.settings.max_result,
            max_whole: self.host.settings.max_artifact,
        });
        if let Some(live) = &mut self.live
            && let Err(error) = live.line.send(&order)
        {
            return Ok((End::Fell(error.to_string()), None));
        }
        self.machine.observe(Moment::Running);
        let limit = match exec.timeout {
            Timeout::Default => self.host.settings.timeout,
            Timeout::Seconds(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Timeout::Never => None,
        };
        self.listen(seq, limit, lines)
    }

    /// Listens until the instruction is over. An interrupt waits until the agent is awake: it
    /// would not hear it.
    fn listen(
        &mut self,
        seq: u64,
        limit: Option<Duration>,
        lines: &mut Lines,
    ) -> Result<(End, Option<Interrupt>)> {
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let mut interrupt: Option<Interrupt> = None;
        loop {
            let Some(live) = &mut self.live else {
                return Ok((End::Fell("its process ended".into()), interrupt));
            };
            let wake = match &interrupt {
                None if !live.awake && begun.elapsed() < WAKING => Some(begun + WAKING),
                None => deadline,
                Some(last) => Some(last.at + REMIND),
            };
            let heard = live.wait(&self.bell, wake)?;
            if let Some(end) = self.digest(seq, heard, lines) {
                return Ok((end, interrupt));
            }
            let now = Instant::now();
            let (asked, removed) = {
                let work = self.machine.work();
                (work.interrupt == Some(seq), work.removed)
            };
            if removed {
                return Ok((End::Fell("the machine was removed".into()), interrupt));
            }
            let timed_out = deadline.is_some_and(|deadline| now >= deadline);
            let deaf = self.live.as_ref().is_some_and(|live| !live.awake) && now < begun + WAKING;
            interrupt = match interrupt {
                None if (asked || timed_out) && !deaf => {
                    self.signal();
                    let why = limit.filter(|_| !asked);
                    Some(Interrupt { at: now, sent: 1, why })
                }
                Some(last) if now < last.at + REMIND => Some(last),
                Some(last) if last.sent < INTERRUPTS => {
                    self.signal();
                    Some(Interrupt { at: now, sent: last.sent + 1, ..last })
                }
                Some(last) => {
                    let why = "it did not heed an interrupt and was ended".to_owned();
                    return Ok((End::Fell(why), Some(last)));
                }
                None => None,
            };
        }
    }

    fn signal(&self) {
        if let Some(live) = &self.live {
            let _ = live.tree.signal(libc::SIGINT);
        }
    }

    /// Takes in what was heard; the end, if that was in it.
    fn digest(&mut self, seq: u64, heard: Vec<Heard>, lines: &mut Lines) -> Option<End> {
        let mut end = None;
        for one in heard {
            match one {
                Heard::Stdout(bytes) => self.push(lines.take(Stream::Stdout, &bytes)),
                Heard::Stderr(bytes) => self.push(lines.take(Stream::Stderr, &bytes)),
                Heard::Report(Report::Awake { changed, .. }) => self.note_fresh(&changed),
                Heard::Report(Report::Display { seq: own, data, .. }) if own == seq => {
                    let account = self.machine.account();
                    if let Some(feed) = &mut self.machine.work().feed {
                        feed.show(&account, data);
                    }
                    self.machine.tell();
                }
                Heard::Report(Report::Part { seq: own, name, kind, text, last }) if own == seq => {
                    if let Some(parts) = lines.parts() {
                        parts.piece(name, kind, &text, last);
                    }
                }
                Heard::Report(Report::Done(done)) if done.seq == seq => {
                    end = Some(End::Done(done));
                }
                Heard::Report(_) => {}
                Heard::Gone(why) => {
                    end.get_or_insert(End::Fell(why));
                }
            }
        }
        end
    }

    /// New lines for followers and, in batches, for the records.
    fn push(&mut self, chunks: Vec<stasis_api::Chunk>) {
        if chunks.is_empty() {
            return;
        }
        let mut work = self.machine.work();
        let Some(feed) = &mut work.feed else { return };
        feed.chunks.extend(chunks);
        let full = feed.chunks.len() - feed.saved >= BATCH;
        drop(work);
        self.machine.tell();
        if full {
            self.save_output();
        }
    }

    /// Writes output down that is not yet.
    fn save_output(&self) {
        let (seq, batch) = {
            let mut work = self.machine.work();
            let Some(feed) = &mut work.feed else { return };
            let batch = feed.chunks[feed.saved..].to_vec();
            feed.saved = feed.chunks.len();
            (feed.seq, batch)
        };
        if let Err(error) = self.host.store.add_outputs(self.machine.id, seq, &batch)
            && !self.machine.is_removed()
        {
            tracing::error!(machine = %self.machine.name(), seq, %error, "output not recorded");
        }
    }

    fn finish_done(
        &mut self,
        seq: u64,
        exec: &Exec,
        done: Done,
        interrupt: Option<Interrupt>,
        lines: &mut Lines,
        started: Instant,
    ) -> Result<()> {
        if let Some(live) = &mut self.live {
            let rest = live.rest()?;
            self.digest(seq, rest, lines);
        }
        self.push(lines.finish());
        self.artifacts = self.artifacts_of(seq, lines);
        let stopped = done.error.as_ref().is_some_and(|error| error.name == "KeyboardInterrupt");
        let status = match &interrupt {
            Some(_) if stopped => Status::Interrupted,
            _ => Status::Done,
        };
        let run = Duration::try_from_secs_f64(done.runtime_ms / 1000.0).unwrap_or(Duration::MAX);
        let mut outcome = outcome_of(done);
        if status == Status::Interrupted {
            explain(&mut outcome, interrupt.and_then(|interrupt| interrupt.why));
        }
        {
            let mut work = self.machine.work();
            // not what it took: while it waited, nothing was done that could be lost
            work.queue.ran(Instant::now(), run.min(started.elapsed()));
            work.last_ran = Some(seq);
        }
        // recorded before the checkpoint: an answer that is not known must not be durable
        self.record(seq, status, outcome.clone(), lines.count(), None)?;
        if self.machine.durability(exec) == Durability::Local {
            let failed = self.checkpoint().err().map(|error| error.to_string());
            self.notes.extend(failed.map(|why| format!("not on disk yet: {why}")));
            self.record(seq, status, outcome, lines.count(), None)?;
        }
        self.notes.clear();
        Ok(())
    }

    /// The machine fell back to its last checkpoint while the instruction ran.
    fn finish_fallen(&mut self, seq: u64, why: &str, started: Instant, outputs: u64) -> Result<()> {
        let fall = self.fall_back(why, Some(seq));
        let failure = Failure {
            name: fall.code.to_owned(),
            message: fall.words.clone(),
            traceback: format!("{}: {}", fall.code, fall.words),
        };
        let runtime_ms = started.elapsed().as_secs_f64() * 1000.0;
        let outcome = Outcome { error: Some(failure), runtime_ms, ..Outcome::default() };
        self.record(seq, Status::Lost, outcome, outputs, Some(fall))?;
        self.notes.clear();
        Ok(())
    }

    /// The machine could not be brought into memory: nothing ran, nothing changed.
    fn finish_unstarted(
        &mut self,
        seq: u64,
        error: &crate::error::Error,
        outputs: u64,
    ) -> Result<()> {
        let outcome = Outcome { error: Some(failure_of(error)), ..Outcome::default() };
        self.record(seq, Status::Cancelled, outcome, outputs, None)
    }

    /// Does something to the machine's state as an instruction of its log, between two others.
    pub(crate) fn note<T>(
        &mut self,
        code: String,
        act: impl FnOnce(&mut Driver, u64) -> Result<(T, Outcome)>,
    ) -> Result<T> {
        let started = Instant::now();
        let seq = self.machine.begin_note(code)?;
        let acted = act(self, seq);
        if self.live.is_some() {
            let mut work = self.machine.work();
            work.queue.ran(Instant::now(), started.elapsed());
            work.last_ran = Some(seq);
        }
        let (value, mut outcome) = match acted {
            Ok((value, outcome)) => (Ok(value), outcome),
            Err(error) => {
                let failure = failure_of(&error);
                (Err(error), Outcome { error: Some(failure), ..Outcome::default() })
            }
        };
        outcome.runtime_ms = started.elapsed().as_secs_f64() * 1000.0;
        let lost = self.live.is_none().then(|| Fall {
            code: "machine.state_lost",
            words: self.fell.take().unwrap_or_else(|| "its process ended".into()),
        });
        let status = if lost.is_none() { Status::Done } else { Status::Lost };
        self.record(seq, status, outcome, 0, lost)?;
        self.machine.tell();
        value
    }

    fn record(
        &mut self,
        seq: u64,
        status: Status,
        outcome: Outcome,
        outputs: u64,
        fall: Option<Fall>,
    ) -> Result<()> {
        self.save_output();
        let shown = self.machine.work().feed.as_ref().map(|feed| feed.shown.clone());
        let mut notes = self.notes.clone();
        notes.extend(self.fell.take());
        let receipt = Receipt {
            address: self.machine.address(seq),
            intact: fall.is_none(),
            durable: self.machine.durable(),
            lost: fall.map(|fall| fall.words),
            notes,
        };
        let (shown, artifacts) = (shown.unwrap_or_default(), self.artifacts.clone());
        let outcome = Outcome { shown, artifacts, ..outcome };
        let at = Timestamp::now();
        let end = Finished { seq, status, at, outputs, outcome, receipt };
        self.ended = status;
        Ok(self.host.store.finish_instruction(self.machine.id, &end)?)
    }
}
