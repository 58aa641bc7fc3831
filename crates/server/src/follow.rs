//! Follows an instruction without blocking a thread.

use crate::app::{App, Phase};
use crate::failure::{HttpFailure, Result};
use stasis_api::{Chunk, Instruction};
use stasis_machine::{FollowUpdate, Machine};
use std::sync::Arc;

pub enum FollowEvent {
    Chunks(Vec<Chunk>),
    Over(Box<Instruction>),
}

/// A position in an instruction's output.
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

    /// Only its end is needed.
    pub fn of_end(app: App, machine: Arc<Machine>, seq: u64) -> Follower {
        Follower::new(app, machine, seq, u64::MAX)
    }

    /// The next lines of output, or the end. May be dropped while it waits and called again.
    pub async fn next(&mut self) -> Result<FollowEvent> {
        loop {
            let wait = match self.look().await? {
                FollowUpdate::Chunks(chunks) => {
                    self.next = chunks.last().map_or(self.next, |chunk| chunk.seq + 1);
                    return Ok(FollowEvent::Chunks(chunks));
                }
                FollowUpdate::Over(instruction) => return Ok(FollowEvent::Over(instruction)),
                FollowUpdate::Wait(listener) => listener,
            };
            tokio::select! {
                // an end from before the shutdown is delivered, however late this runs
                biased;
                () = wait => {}
                () = self.app.reached(Phase::Closed) => return Err(HttpFailure::stopping()),
            }
        }
    }

    /// Its current status. The records are read only if memory no longer has it.
    async fn look(&self) -> Result<FollowUpdate> {
        if let Some(here) = self.machine.follow_here(self.seq, self.next)? {
            return Ok(here);
        }
        let (machine, seq, next) = (self.machine.clone(), self.seq, self.next);
        self.app.on_record(move || machine.follow(seq, next)).await
    }

    pub async fn end(&mut self) -> Result<Box<Instruction>> {
        loop {
            if let FollowEvent::Over(instruction) = self.next().await? {
                return Ok(instruction);
            }
        }
    }
}
