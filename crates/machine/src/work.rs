//! The work of a machine, under one lock: its state, its queue, and the output for followers.

use crate::action::Action;
use crate::feed::OutputFeed;
use crate::files::MachineFiles;
use crate::queue::{Queue, Rules};
use crate::settings::Settings;
use crate::state::{MachineState, StateEvent};
use crate::unsaved::SharedState;
use stasis_api::{Chunk, Exec, Instruction, Timestamp};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Work {
    state: MachineState,
    pub queue: Queue<Action>,
    /// Instructions that wait, in full.
    pub execs: HashMap<u64, WaitingExec>,
    /// The running instruction, for its followers.
    pub feed: Option<OutputFeed>,
    /// The instruction that ended last, so that its followers need not read the records.
    pub ended: Option<LastEnd>,
    /// The running instruction is to be interrupted.
    pub interrupt: bool,
    /// Instructions whose end is on no record, and why.
    pub unrecorded: HashMap<u64, String>,
    /// The last instruction whose effects are in memory or, swapped out, in the image.
    pub last_ran: Option<u64>,
    /// The way to its files while it is in memory.
    pub files: Option<Arc<MachineFiles>>,
    /// Why the last checkpoint was refused.
    pub pinned: Option<String>,
    /// What was lost with the machine's memory since the last instruction ended, and why.
    pub lost: Option<String>,
    /// How often what was in memory was given up for an earlier state.
    pub falls: u64,
    /// The next wake is one to an earlier state.
    pub rolled_back: bool,
    /// How long the last checkpoint held the machine up.
    pub pause: Duration,
    /// The state being saved, from which branches may start.
    pub shared: Option<SharedState>,
    /// Wakes the driver, if there is one.
    wakeup: Option<File>,
}

/// Output is kept in memory after an instruction's end up to this many bytes.
const KEPT_OUTPUT: usize = 64 << 10;

/// An instruction that ended, as it is on record.
pub(crate) struct LastEnd {
    pub instruction: Instruction,
    /// Its output, if that is short.
    pub chunks: Option<Vec<Chunk>>,
}

/// An instruction that waits.
#[derive(Debug, Clone)]
pub(crate) struct WaitingExec {
    pub exec: Exec,
    pub queued_at: Timestamp,
}

impl Work {
    pub fn new(settings: &Settings, head: Option<u64>) -> Work {
        let rules = Rules {
            settle: settings.settle,
            at_risk: settings.at_risk,
            idle_swap: settings.idle_swap,
            max_queue: settings.max_queue,
        };
        Work {
            state: MachineState::Swapped,
            queue: Queue::new(rules, Instant::now()),
            execs: HashMap::new(),
            feed: None,
            ended: None,
            interrupt: false,
            unrecorded: HashMap::new(),
            last_ran: head,
            files: None,
            pinned: None,
            lost: None,
            falls: 0,
            rolled_back: false,
            pause: Duration::ZERO,
            shared: None,
            wakeup: None,
        }
    }

    pub fn state(&self) -> MachineState {
        self.state
    }

    /// Moves the machine to its next state, with what every state promises. `None`, and nothing
    /// happens, where the event is impossible.
    pub fn step(&mut self, event: StateEvent) -> Option<MachineState> {
        let before = self.state;
        self.state = before.after(event)?;
        if let StateEvent::Take(seq) = event {
            self.feed = Some(OutputFeed::new(seq));
        }
        if self.state.instruction().is_none() && self.state.accepts() {
            self.close_feed();
            self.interrupt = false;
        }
        if event == StateEvent::Out {
            // nothing of it is unsaved, because it was saved or is lost
            self.files = None;
            self.ended = None;
            self.queue.saved();
        }
        Some(self.state)
    }

    /// The instruction under way is over: nothing is added to its output.
    fn close_feed(&mut self) {
        let (Some(feed), Some(ended)) = (self.feed.take(), &mut self.ended) else { return };
        let bytes: usize = feed.chunks.iter().map(|chunk| chunk.data.len()).sum();
        if feed.seq == ended.instruction.seq && bytes <= KEPT_OUTPUT {
            ended.chunks = Some(feed.chunks);
        }
    }

    /// Instructions that run or wait.
    pub fn pending(&self) -> usize {
        self.queue.waiting() + usize::from(self.state.instruction().is_some())
    }

    /// Takes away all instructions that wait and are on record: none of them will run.
    pub fn cancel_all(&mut self) -> Vec<u64> {
        let cancelled = self.queue.cancel_all();
        cancelled.iter().for_each(|seq| drop(self.execs.remove(seq)));
        cancelled
    }

    /// Gives up the place of an instruction that is on no record.
    pub fn withdraw(&mut self, seq: u64) {
        self.queue.withdraw(seq);
        self.execs.remove(&seq);
        // those behind it may run now
        self.wake_driver();
    }

    /// Has the instruction under way interrupted, if it is this one; any, for `None`. Whether.
    pub fn interrupt(&mut self, seq: Option<u64>) -> bool {
        let own = self.state.instruction();
        let found = own.is_some() && (seq.is_none() || seq == own);
        if found {
            self.interrupt = true;
            self.wake_driver();
        }
        found
    }

    /// Notes that the machine in memory was changed from outside: a checkpoint follows. Without a
    /// machine in memory there is nothing to be saved.
    pub fn touched(&mut self) {
        if self.state.is_in_memory() {
            self.queue.touched(Instant::now());
            self.wake_driver();
        }
    }

    pub fn has_driver(&self) -> bool {
        self.wakeup.is_some()
    }

    /// Gives the machine a driver, or takes it away.
    pub fn set_driver(&mut self, wakeup: Option<File>) {
        self.wakeup = wakeup;
    }

    /// An eventfd can always be written to once more, so this fails only without a driver.
    pub fn wake_driver(&self) -> bool {
        self.wakeup.as_ref().is_some_and(|wakeup| signal(wakeup).is_ok())
    }
}

fn signal(mut wakeup: &File) -> io::Result<()> {
    match wakeup.write_all(&1u64.to_ne_bytes()) {
        // the driver has not looked for a long time: it will find it rung
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

/// A wake-up is written, and silenced by reading.
pub(crate) fn silence(mut wakeup: &File) {
    let mut count = [0; 8];
    let _ = wakeup.read(&mut count);
}
