//! Accepts, cancels and interrupts instructions.
//!
//!   submit ─► quota, budget ─► number and place in the queue ─► on record ─► driver woken
//!
//! The number, the slot and the order of the records are decided under the machine's lock, which is
//! released while the record is written. Until it is written, the driver takes neither this
//! instruction nor a later one. If recording fails, slot and number are released.

use crate::driver::Driver;
use crate::error::{Error, ErrorContext, Result};
use crate::machine::Machine;
use crate::removal::NOT_RUN;
use crate::state::StateEvent;
use crate::work::{WaitingExec, Work};
use stasis_api::{Checkpoints, EventKind, Exec, Status, Timestamp};
use stasis_policy::budget::BudgetKind;
use stasis_records::{NewInstruction, PendingChange};
use stasis_sys::{fds, libc};
use std::sync::Arc;

/// Maximum length of an instruction's code.
const MAX_CODE: usize = 16 << 20;

impl Machine {
    /// Accepts an instruction; returns its number. It runs after the ones before it.
    pub fn submit(self: &Arc<Self>, exec: Exec) -> Result<u64> {
        if exec.code.len() > MAX_CODE {
            return Err(Error::Invalid(format!("code is at most {MAX_CODE} bytes")));
        }
        if exec.idempotency_key.as_ref().is_some_and(|key| !Exec::is_key(key)) {
            return Err(Error::Invalid("an idempotency key has 1 to 255 characters".into()));
        }
        if let Some(seq) = self.accepted_before(&exec)? {
            return Ok(seq);
        }
        if exec.interrupt {
            self.interrupt_all()?;
        }
        let (charge, (seq, accepted)) = self.host.in_turn(&self.account(), || {
            self.host.admit(self)?;
            drop(self.host.charge(self, BudgetKind::Cpu, 0)?);
            let charge = self.host.charge(self, BudgetKind::Instructions, 1)?;
            Ok((charge, self.reserve(exec)?))
        })?;
        match accepted.wait() {
            Ok(None) => {
                charge.keep();
                self.queue_up(seq)
            }
            Ok(Some(before)) => {
                self.withdraw(seq);
                Ok(before)
            }
            Err(error) => {
                self.withdraw(seq);
                Err(error.into())
            }
        }
    }

    /// Gives an instruction its number and its slot in the queue, and sends it to be recorded.
    fn reserve(self: &Arc<Self>, exec: Exec) -> Result<(u64, PendingChange<Option<u64>>)> {
        let mut work = self.work();
        if !work.state().accepts() {
            return Err(self.removed());
        }
        let mut record = self.record();
        let seq = record.next_seq;
        let exact = exec.checkpoints.unwrap_or(record.made.checkpoints) == Checkpoints::Exact;
        if !work.queue.reserve(seq, exact) {
            let name = record.made.name.to_string();
            return Err(Error::QueueFull(name, self.host.settings.max_queue));
        }
        let (status, at) = (Status::Queued, Timestamp::now());
        work.execs.insert(seq, WaitingExec { exec: exec.clone(), queued_at: at });
        record.next_seq = seq + 1;
        Ok((seq, self.host.records.accept(self.id, NewInstruction { seq, exec, status, at })))
    }

    /// Lets a recorded instruction run in turn; returns its number.
    fn queue_up(self: &Arc<Self>, seq: u64) -> Result<u64> {
        let mut work = self.work();
        if !work.state().accepts() {
            work.withdraw(seq);
            drop(work);
            self.leave_unrecorded([seq], NOT_RUN);
            return Err(self.removed());
        }
        if let Err(error) = self.ensure_driver(&mut work) {
            work.withdraw(seq);
            drop(work);
            self.end_unstarted(seq, "nothing could be started to run it")?;
            return Err(error);
        }
        // its slot says whether it needs a state of its own
        work.queue.offer(seq, true);
        let made = self.record().made.clone();
        // before the driver can see it, and before it can report that it started
        self.observe_queued(seq, &made.name, &made.account);
        self.event_at(EventKind::InstructionQueued, Some(seq));
        Ok(seq)
    }

    /// Releases the slot of an instruction that was not recorded, and its number, unless a later
    /// one was assigned.
    fn withdraw(&self, seq: u64) {
        let mut work = self.work();
        work.withdraw(seq);
        let mut record = self.record();
        if record.next_seq == seq + 1 {
            record.next_seq = seq;
        }
        drop((record, work));
        self.tell();
    }

    /// The number of an earlier instruction with the same idempotency key.
    fn accepted_before(&self, exec: &Exec) -> Result<Option<u64>> {
        let Some(key) = &exec.idempotency_key else { return Ok(None) };
        Ok(self.host.records.instruction_with_key(self.id, key)?)
    }

    /// Records an instruction that its driver executes itself, at once; returns its number.
    pub(crate) fn begin_note(&self, code: String, at: Timestamp) -> Result<u64> {
        let exec = Exec { code, ..Exec::default() };
        let (seq, accepted) = {
            let mut work = self.work();
            let mut record = self.record();
            let seq = record.next_seq;
            if work.step(StateEvent::Take(seq)).is_none() {
                drop(record);
                return Err(self.removed());
            }
            record.next_seq = seq + 1;
            let new = NewInstruction { seq, exec, status: Status::Running, at };
            (seq, self.host.records.accept(self.id, new))
        };
        if let Err(error) = accepted.wait() {
            self.work().step(StateEvent::Over);
            self.withdraw(seq);
            return Err(error.into());
        }
        Ok(seq)
    }

    /// Takes over an instruction accepted by an earlier process.
    pub(crate) fn requeue(self: &Arc<Self>, seq: u64, waiting: WaitingExec) -> Result<()> {
        let mut work = self.work();
        self.ensure_driver(&mut work)?;
        work.queue.offer(seq, self.is_exact(&waiting.exec));
        work.execs.insert(seq, waiting);
        Ok(())
    }

    /// Wakes the driver, or starts one.
    pub(crate) fn ensure_driver(self: &Arc<Self>, work: &mut Work) -> Result<()> {
        if work.wake_driver() {
            return Ok(());
        }
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        let wakeup = fds::eventfd(0, flags).doing(|| "make an eventfd".into())?;
        let copy = wakeup.try_clone().doing(|| "copy an eventfd".into())?;
        Driver::start(self.clone(), wakeup.into())?;
        work.set_driver(Some(copy.into()));
        Ok(())
    }

    /// Interrupts the running instruction; its state is kept. Whether one ran.
    pub fn interrupt(self: &Arc<Self>) -> Result<bool> {
        Ok(self.work().interrupt(None))
    }

    /// Removes a waiting instruction from the queue; whether it still waited.
    pub fn cancel(self: &Arc<Self>, seq: u64) -> Result<bool> {
        let waited = {
            let mut work = self.work();
            let waited = work.queue.cancel(seq);
            if waited {
                work.execs.remove(&seq);
            }
            waited
        };
        if waited {
            self.end_unstarted(seq, "it was cancelled before it ran")?;
        }
        Ok(waited)
    }

    /// Ends only this instruction, whether it waits or runs; the state is kept. Whether it did
    /// either.
    pub fn stop(self: &Arc<Self>, seq: u64) -> Result<bool> {
        Ok(self.cancel(seq)? || self.work().interrupt(Some(seq)))
    }

    fn interrupt_all(self: &Arc<Self>) -> Result<()> {
        let waiting = {
            let mut work = self.work();
            work.interrupt(None);
            work.cancel_all()
        };
        // each of them gets its end, whatever happens to the others
        let ends =
            waiting.into_iter().map(|seq| self.end_unstarted(seq, "another instruction ran first"));
        ends.collect::<Vec<_>>().into_iter().collect()
    }

    /// Records that an instruction will not run. If that fails, its followers get the reason.
    pub(crate) fn end_unstarted(&self, seq: u64, words: &str) -> Result<()> {
        let recorded = self.record_cancelled(seq, words);
        if let Err(error) = &recorded {
            let words = format!("instruction {seq}: {words}, which is not on record: {error}");
            self.leave_unrecorded([seq], &words);
        }
        recorded
    }

    /// The ends of these could not be recorded, and their followers get an error.
    pub(crate) fn leave_unrecorded(&self, all: impl IntoIterator<Item = u64>, words: &str) {
        let mut work = self.work();
        work.unrecorded.extend(all.into_iter().map(|seq| (seq, words.to_owned())));
        drop(work);
        self.tell();
    }
}
