//! Recovery: the outcome of instructions that were unfinished when the last process ended.
//!
//!   saved by a checkpoint     as it was recorded
//!   ran, not saved            lost: the machine is at the checkpoint before it
//!   was running               lost: it is never run again
//!   waited for a person       goes on from its image when there is an answer (`park.rs`)
//!   waited                    runs now, unless something before it was lost
//!
//! A branch whose first state was not on disk is at an older state of its source, and everything
//! that ran in it is lost.

use crate::error::Result;
use crate::machine::Machine;
use crate::unsaved::lost_words;
use crate::work::WaitingExec;
use stasis_api::{Exec, Status, Timestamp, ToolCallState};
use stasis_records::{CallEnd, ParkedMachine};
use std::sync::Arc;

pub(crate) const STOPPED: &str = "the service ended before this was saved";
const NOT_RUN: &str = "an earlier instruction was lost, so this one was not run";

impl Machine {
    /// The instruction that waits for a person, if it can go on.
    fn parked_instruction(self: &Arc<Self>) -> Result<Option<ParkedMachine>> {
        let records = &self.host.records;
        let parked = records.parked(self.id)?;
        let runs = |parked: &ParkedMachine| -> Result<bool> {
            let own = records.instruction(self.id, parked.seq)?;
            Ok(own.is_some_and(|own| own.status == Status::Running && !own.rolled_back))
        };
        let parked = match parked {
            Some(parked) if runs(&parked)? && !self.record().lost_start => Some(parked),
            Some(stale) => {
                let at = Timestamp::now();
                let end = CallEnd { state: ToolCallState::Cancelled, at, error: None };
                records.end_call(stale.call, end)?;
                records.unpark(self.id)?;
                None
            }
            None => None,
        };
        self.work().parked = parked.clone();
        Ok(parked)
    }

    /// Settles the instructions that the last process, or a failed driver, left unfinished; records
    /// why.
    pub(crate) fn recover(self: &Arc<Self>, why: &str) -> Result<()> {
        let (head, lost_start) = {
            let record = self.record();
            let older = record.made.parent.as_ref().filter(|_| record.lost_start);
            (record.head_seq, older.map(|older| lost_words(why, older)))
        };
        let from = head.map_or(0, |seq| seq + 1);
        let parked = self.parked_instruction()?;
        let is_kept = |seq: u64| parked.as_ref().is_some_and(|parked| seq <= parked.seq);
        let mut lost: Vec<u64> = Vec::new();
        let mut told = None;
        for instruction in self.host.records.instructions(self.id, from, u32::MAX.into())? {
            let seq = instruction.seq;
            let unsettled = !instruction.rolled_back;
            match instruction.status {
                // the image of the one that waits has it
                status if unsettled && status.has_run() && is_kept(seq) => {
                    self.work().last_ran = Some(seq);
                }
                Status::Running if is_kept(seq) => {}
                status if unsettled && (status.has_run() || status == Status::Running) => {
                    let place = match self.durable() {
                        Some(address) => format!("{why}; the machine is back at `{address}`"),
                        None => format!("{why}; the machine is back at its beginning"),
                    };
                    self.record_lost(instruction, &place)?;
                    lost.push(seq);
                    told = Some(place);
                }
                Status::Lost if unsettled => {
                    // nothing ran since: no client has been informed
                    told = instruction.receipt.and_then(|receipt| receipt.lost);
                }
                // it is being accepted right now
                Status::Queued if self.work().queue.has(seq) => {}
                Status::Queued if !lost.is_empty() || lost_start.is_some() => {
                    self.record_cancelled(seq, NOT_RUN)?;
                }
                _ => {}
            }
        }
        if let (Some(words), true) = (&told, !lost.is_empty()) {
            let numbers: Vec<String> = lost.iter().map(u64::to_string).collect();
            told = Some(format!(
                "{words}; the effects of instruction {} are lost",
                numbers.join(", ")
            ));
        }
        let has_lost_start = lost_start.is_some();
        self.work().lost = match (lost_start, told) {
            (Some(start), Some(told)) => Some(format!("{start}; {told}")),
            (start, told) => start.or(told),
        };
        if lost.is_empty() && !has_lost_start { self.requeue_all() } else { Ok(()) }
    }

    /// Queues the recorded instructions that are not over, in order.
    fn requeue_all(self: &Arc<Self>) -> Result<()> {
        let pending = self.host.records.pending(self.id)?.into_iter();
        let known = |seq| self.work().queue.has(seq);
        for (instruction, exec) in pending.filter(|(one, _)| !known(one.seq)) {
            // the client that would have answered `input()` has disconnected
            let exec = Exec { input: false, ..exec };
            let waiting = WaitingExec { exec, queued_at: instruction.queued_at };
            self.requeue(instruction.seq, waiting)?;
        }
        Ok(())
    }
}
