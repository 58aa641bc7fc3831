//! Following an instruction without holding a thread.

use crate::app::{App, Phase};
use crate::failure::{Failure, Result};
use stasis_api::{Chunk, Instruction};
use stasis_machine::{Machine, Progress};
use std::sync::Arc;

pub enum Event {
    Chunks(Vec<Chunk>),
    Over(Box<Instruction>),
}

/// A place in the output of an instruction.
pub struct Follower {
    app: App,
    machine: Arc<Machine>,
    pub seq: u64,
    next: u64,
}

impl Follower {
    pub fn new(app: App, machine: Arc<Machine>, seq: u64, from: u64) -> Follower {
        Follower { app, machine, seq, next: from }
    }

    /// Only its end is of interest.
    pub fn of_end(app: App, machine: Arc<Machine>, seq: u64) -> Follower {
        Follower::new(app, machine, seq, u64::MAX)
    }

    /// The next lines of output, or the end. May be dropped while it waits and called again.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            let wait = match self.machine.follow(self.seq, self.next)? {
                Progress::Chunks(chunks) => {
                    self.next = chunks.last().map_or(self.next, |chunk| chunk.seq + 1);
                    return Ok(Event::Chunks(chunks));
                }
                Progress::Over(instruction) => return Ok(Event::Over(instruction)),
                Progress::Wait(listener) => listener,
            };
            tokio::select! {
                // what ended before the service closed is told, however late this is looked at
                biased;
                () = wait => {}
                () = self.app.reached(Phase::Closed) => return Err(Failure::stopping()),
            }
        }
    }

    pub async fn end(&mut self) -> Result<Box<Instruction>> {
        loop {
            if let Event::Over(instruction) = self.next().await? {
                return Ok(instruction);
            }
        }
    }
}
