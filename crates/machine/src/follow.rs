//! Follows instructions: streams output, and the end when it is recorded.
//!
//! A follower waits only for a queued or running instruction. If the end could not be recorded, the
//! follower gets the reason instead.

use crate::error::{Error, Result};
use crate::machine::Machine;
use event_listener::{EventListener, Listener};
use stasis_api::{Chunk, Instruction};
use std::sync::Arc;

/// An event for a follower.
pub enum FollowUpdate {
    /// New lines of output.
    Chunks(Vec<Chunk>),
    /// It is over; all output was delivered.
    Over(Box<Instruction>),
    /// Nothing yet: wait for this, then call again.
    Wait(EventListener),
}

impl Machine {
    /// Output of an instruction from chunk `from` on, or its end.
    pub fn follow(&self, seq: u64, from: u64) -> Result<FollowUpdate> {
        match self.follow_here(seq, from)? {
            Some(progress) => Ok(progress),
            None => self.follow_on_record(seq, from),
        }
    }

    /// The same from memory alone: while an instruction waits or runs, and right after its end.
    pub fn follow_here(&self, seq: u64, from: u64) -> Result<Option<FollowUpdate>> {
        let listener = self.listen();
        let work = self.work();
        if !work.state().accepts() {
            return Err(self.removed());
        }
        if let Some(feed) = work.feed.as_ref().filter(|feed| feed.seq == seq) {
            let new = feed.chunks.get(from as usize..).unwrap_or_default();
            return Ok(Some(match new.is_empty() {
                true => FollowUpdate::Wait(listener),
                false => FollowUpdate::Chunks(new.to_vec()),
            }));
        }
        if work.queue.has(seq) {
            return Ok(Some(FollowUpdate::Wait(listener)));
        }
        let Some(ended) = work.ended.as_ref().filter(|own| own.instruction.seq == seq) else {
            return Ok(None);
        };
        if ended.instruction.outputs > from {
            let rest = ended.chunks.as_ref().and_then(|chunks| chunks.get(from as usize..));
            let rest = rest.filter(|rest| !rest.is_empty());
            return Ok(rest.map(|rest| FollowUpdate::Chunks(rest.to_vec())));
        }
        let instruction = ended.instruction.clone();
        drop(work);
        Ok(Some(FollowUpdate::Over(Box::new(self.up_to_date(instruction)))))
    }

    fn follow_on_record(&self, seq: u64, from: u64) -> Result<FollowUpdate> {
        let listener = self.listen();
        let instruction = self.instruction(seq)?;
        if !instruction.status.is_over() {
            if let Some(what) = self.work().unrecorded.get(&seq).cloned() {
                return Err(Error::Broken { machine: self.name().to_string(), what });
            }
            return Ok(FollowUpdate::Wait(listener));
        }
        if instruction.outputs > from {
            let chunks = self.host.records.outputs(self.id, seq, from)?;
            if !chunks.is_empty() {
                return Ok(FollowUpdate::Chunks(chunks));
            }
        }
        Ok(FollowUpdate::Over(Box::new(instruction)))
    }

    /// Waits for an instruction's end.
    pub fn wait(&self, seq: u64) -> Result<Instruction> {
        loop {
            // all output was delivered: waits only for the end
            match self.follow(seq, u64::MAX)? {
                FollowUpdate::Over(instruction) => return Ok(*instruction),
                FollowUpdate::Wait(listener) => listener.wait(),
                FollowUpdate::Chunks(_) => {}
            }
        }
    }

    /// All output of an instruction so far.
    pub fn outputs(&self, seq: u64, from: u64) -> Result<Vec<Chunk>> {
        match self.follow(seq, from)? {
            FollowUpdate::Chunks(chunks) => Ok(chunks),
            FollowUpdate::Over(_) | FollowUpdate::Wait(_) => Ok(Vec::new()),
        }
    }

    /// One instruction, with the current durability of its state.
    pub fn instruction(&self, seq: u64) -> Result<Instruction> {
        let missing = || match self.is_removed() {
            true => self.removed(),
            false => Error::NoInstruction { machine: self.name().to_string(), seq },
        };
        let found = self.host.records.instruction(self.id, seq)?;
        Ok(self.up_to_date(found.ok_or_else(missing)?))
    }

    /// Instructions from `from` on, oldest first.
    pub fn instructions(&self, from: u64, limit: u64) -> Result<Vec<Instruction>> {
        let list = self.host.records.instructions(self.id, from, limit)?;
        Ok(list.into_iter().map(|instruction| self.up_to_date(instruction)).collect())
    }

    /// A receipt reports the durability at the time it was written; update it to the current one.
    fn up_to_date(&self, mut instruction: Instruction) -> Instruction {
        if let Some(receipt) = &mut instruction.receipt
            && receipt.intact
        {
            receipt.durable = self.durable();
        }
        if let Some(receipt) = &mut instruction.receipt {
            // names can be exchanged
            receipt.address = self.address(instruction.seq);
        }
        instruction
    }

    /// Waits until the queue is empty and everything is saved: for benchmarks and shutdown.
    pub fn settle(self: &Arc<Self>) -> Result<()> {
        loop {
            let listener = self.listen();
            {
                let work = self.work();
                let state = work.state();
                if !state.accepts() {
                    return Err(self.removed());
                }
                let safe = work.queue.is_saved() || work.pinned.is_some();
                if work.pending() == 0 && (safe || !state.takes_memory()) {
                    return Ok(());
                }
            }
            listener.wait();
        }
    }
}
