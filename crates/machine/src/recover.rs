//! What became of the instructions that were cut off when the last process ended.
//!
//!   saved by a checkpoint     as it was recorded
//!   ran, not saved            lost: the machine is at the checkpoint before it
//!   was running               lost: it is never run again
//!   waited                    runs now, unless something before it was lost

use crate::error::Result;
use crate::machine::Machine;
use stasis_api::Status;
use std::sync::Arc;

const STOPPED: &str = "the service ended before this was saved";
const NOT_RUN: &str =
    "the service ended while this waited, and what was to come before it is lost: it was not run";

impl Machine {
    /// Settles what the last process left open.
    pub(crate) fn recover(self: &Arc<Self>) -> Result<()> {
        let head = self.record().head_seq;
        let from = head.map_or(0, |seq| seq + 1);
        let mut anything_lost = false;
        for instruction in self.host.store.instructions(self.id, from, u32::MAX.into())? {
            let seq = instruction.seq;
            let unsettled = !instruction.rolled_back;
            match instruction.status {
                Status::Done | Status::Interrupted | Status::Running if unsettled => {
                    let place = match self.durable() {
                        Some(address) => format!("{STOPPED}; the machine is back at `{address}`"),
                        None => format!("{STOPPED}; the machine is back at its beginning"),
                    };
                    self.record_lost(instruction, &place)?;
                    anything_lost = true;
                }
                Status::Queued if anything_lost => self.record_cancelled(seq, NOT_RUN)?,
                _ => {}
            }
        }
        if !anything_lost {
            for (instruction, exec) in self.host.store.pending(self.id)? {
                self.requeue(instruction.seq, exec)?;
            }
        }
        Ok(())
    }
}
