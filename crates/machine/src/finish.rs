//! The end of an instruction: its record, and the report to followers.

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::life::StateLoss;
use crate::lines::OutputLines;
use crate::outcome::{explain, failure_of, outcome_of};
use crate::run::{Interrupt, begun};
use crate::state::StateEvent;
use crate::work::LastEnd;
use stasis_api::{Durability, Exec, Failure, Instruction, Outcome, Receipt, Status, Timestamp};
use stasis_protocol::Done;
use stasis_records::FinishedInstruction;
use std::time::{Duration, Instant};

impl Driver {
    /// The running instruction is over, recorded or not: wakes its followers.
    pub(crate) fn is_over(&self, seq: u64) {
        let state = self.machine.work().step(StateEvent::Over);
        self.machine.tell();
        self.machine.ended(seq, self.ended, self.runtime);
        self.passed(state);
    }

    /// The records cannot be written: the instruction stays recorded as running, until the next
    /// start of the service marks it as lost.
    pub(crate) fn not_recorded(&self, seq: u64, error: &Error) {
        if self.machine.is_removed() {
            return;
        }
        tracing::error!(machine = %self.machine.name(), seq, %error, "result not recorded");
        let words = format!("instruction {seq} is over, but its end is not on record: {error}");
        self.machine.leave_unrecorded([seq], &words);
    }

    pub(crate) fn finish_done(
        &mut self,
        seq: u64,
        exec: &Exec,
        done: Done,
        interrupt: Option<Interrupt>,
        lines: &mut OutputLines,
        started: Instant,
    ) -> Result<()> {
        if let Some(live) = &mut self.live {
            let rest = live.rest()?;
            self.digest(seq, rest, lines);
        }
        self.push(lines.finish());
        self.artifacts = self.artifacts_of(seq, lines);
        let language = self.machine.language();
        let stopped = stasis_agent::was_interrupted(language, &done);
        let run = Duration::try_from_secs_f64(done.runtime_ms / 1000.0).unwrap_or(Duration::MAX);
        let mut outcome = outcome_of(done);
        let status = match &interrupt {
            Some(_) if stopped => Status::Interrupted,
            _ => Status::of(&outcome),
        };
        if status == Status::Interrupted {
            explain(&mut outcome, interrupt.and_then(|interrupt| interrupt.timeout), language);
        }
        {
            let mut work = self.machine.work();
            // run time only: nothing could be lost while it waited
            let exact = self.machine.is_exact(exec);
            work.queue.ran(Instant::now(), run.min(started.elapsed()), exact);
            work.last_ran = Some(seq);
        }
        // recorded before the checkpoint: an unrecorded answer must not be durable
        self.record(seq, status, outcome.clone(), lines.count(), None)?;
        if self.machine.durability(exec) == Durability::Local {
            let failed = self.checkpoint().err().map(|error| error.to_string());
            self.notes.extend(failed.map(|why| format!("not on disk yet: {why}")));
            self.record(seq, status, outcome, lines.count(), None)?;
        }
        self.notes.clear();
        Ok(())
    }

    /// The machine crashed while the instruction ran, and rolled back to its last checkpoint.
    pub(crate) fn finish_crashed(
        &mut self,
        seq: u64,
        why: &str,
        started: Instant,
        outputs: u64,
    ) -> Result<()> {
        self.close_calls();
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

    /// The machine could not enter memory: nothing ran, nothing changed.
    pub(crate) fn finish_unstarted(&mut self, seq: u64, error: &Error, outputs: u64) -> Result<()> {
        let outcome = Outcome { error: Some(failure_of(error)), ..Outcome::default() };
        self.record(seq, Status::Cancelled, outcome, outputs, None)
    }

    /// Changes the machine's state as an instruction of its log, between two others.
    pub(crate) fn note<T>(
        &mut self,
        code: String,
        act: impl FnOnce(&mut Driver, u64) -> Result<(T, Outcome)>,
    ) -> Result<T> {
        let started = Instant::now();
        let at = Timestamp::now();
        let seq = self.machine.begin_note(code.clone(), at)?;
        self.under_way = Some(Instruction { started_at: Some(at), ..begun(seq, code, at) });
        self.artifacts.clear();
        self.imports = Default::default();
        let acted = act(self, seq);
        if self.live.is_some() {
            let exact = self.machine.is_exact(&Exec::default());
            let mut work = self.machine.work();
            work.queue.ran(Instant::now(), started.elapsed(), exact);
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
        let lost = self.live.is_none().then(|| StateLoss {
            code: "machine.state_lost",
            words: self.lost().unwrap_or_else(|| "its process ended".into()),
        });
        let status = if lost.is_none() { Status::of(&outcome) } else { Status::Lost };
        let recorded = self.record(seq, status, outcome, 0, lost);
        if let Err(error) = &recorded {
            self.not_recorded(seq, error);
        }
        self.step(StateEvent::Over);
        self.machine.tell();
        recorded.and(value)
    }

    /// The loss since the last instruction ended; reported once.
    fn lost(&self) -> Option<String> {
        self.machine.work().lost.take()
    }

    fn record(
        &mut self,
        seq: u64,
        status: Status,
        outcome: Outcome,
        outputs: u64,
        fall: Option<StateLoss>,
    ) -> Result<()> {
        let rest = self.unsaved_output().filter(|(own, _)| *own == seq);
        let rest = rest.map(|(_, chunks)| chunks).unwrap_or_default();
        let shown = self.machine.work().feed.as_ref().map(|feed| feed.shown.clone());
        let mut notes = self.notes.clone();
        notes.extend(self.lost());
        let receipt = Receipt {
            address: self.machine.address(seq),
            intact: fall.is_none(),
            durable: self.machine.durable(),
            lost: fall.map(|fall| fall.words),
            notes,
            modules: self.imports.modules.clone(),
        };
        let (shown, artifacts) = (shown.unwrap_or_default(), self.artifacts.clone());
        let outcome = Outcome { shown, artifacts, ..outcome };
        let at = Timestamp::now();
        let end = FinishedInstruction { seq, status, at, outputs, outcome, receipt };
        self.ended = status;
        let ran = Duration::try_from_secs_f64(end.outcome.runtime_ms / 1000.0);
        self.runtime = ran.ok().filter(|_| status != Status::Cancelled);
        self.host.records.finish(self.machine.id, end.clone(), rest)?;
        let known = self.under_way.as_ref().filter(|own| own.seq == seq);
        let ended = known.map(|own| over(own.clone(), end));
        self.machine.work().ended = ended.map(|instruction| LastEnd { instruction, chunks: None });
        Ok(())
    }
}

/// An instruction as recorded after its end.
fn over(own: Instruction, end: FinishedInstruction) -> Instruction {
    // the records keep milliseconds
    let whole = |at: Timestamp| Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
    Instruction {
        status: end.status,
        queued_at: whole(own.queued_at),
        started_at: own.started_at.map(whole),
        finished_at: Some(whole(end.at)),
        outputs: end.outputs,
        outcome: Some(end.outcome),
        receipt: Some(end.receipt),
        ..own
    }
}
