//! The work of a machine, under one lock: its state, its queue, and the output for followers.

use crate::action::Action;
use crate::feed::OutputFeed;
use crate::files::MachineFiles;
use crate::queue::{Queue, Rules};
use crate::settings::Settings;
use crate::state::{MachineState, StateEvent};
use crate::unsaved::SharedState;
use stasis_api::{Chunk, Exec, Instruction, Timestamp};
use stasis_records::ParkedMachine;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Work {
    state: MachineState,
    pub queue: Queue<Action>,
    /// Waiting instructions, in full.
    pub execs: HashMap<u64, WaitingExec>,
    /// The running instruction, for its followers.
    pub feed: Option<OutputFeed>,
    /// The last finished instruction, so that its followers need not read the records.
    pub ended: Option<LastEnd>,
    /// The running instruction must be interrupted.
    pub interrupt: bool,
    /// An instruction that an earlier process left waiting for a person.
    pub parked: Option<ParkedMachine>,
    /// The service ends while an instruction waits for a person: no other runs before that one.
    pub suspended: bool,
    /// Instructions whose end could not be recorded, and why.
    pub unrecorded: HashMap<u64, String>,
    /// The last instruction whose effects are in memory or, swapped out, in the image.
    pub last_ran: Option<u64>,
    /// Access to its files while it is in memory.
    pub files: Option<Arc<MachineFiles>>,
    /// Why the last checkpoint was refused.
    pub pinned: Option<String>,
    /// State lost with the machine's memory since the last instruction ended, and why.
    pub lost: Option<String>,
    /// How often the state in memory was dropped for an earlier one.
    pub falls: u64,
    /// The next wake is a rollback.
    pub rolled_back: bool,
    /// Pause of the machine during the last checkpoint.
    pub pause: Duration,
    /// The state being saved, from which branches may start.
    pub shared: Option<SharedState>,
    /// The state that an undo left before it was on disk, until it is.
    pub left: Option<SharedState>,
    /// Wakes the driver, if there is one.
    wakeup: Option<File>,
}

/// Maximum bytes of output kept in memory after an instruction's end.
const KEPT_OUTPUT: usize = 64 << 10;

/// A finished instruction, as recorded.
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
            parked: None,
            suspended: false,
            unrecorded: HashMap::new(),
            last_ran: head,
            files: None,
            pinned: None,
            lost: None,
            falls: 0,
            rolled_back: false,
            pause: Duration::ZERO,
            shared: None,
            left: None,
            wakeup: None,
        }
    }

    pub fn state(&self) -> MachineState {
        self.state
    }

    /// Moves the machine to its next state, with the invariants of every state. `None`, and no
    /// change, where the event is impossible.
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
            // nothing of it is unsaved: it was saved or is lost
            self.files = None;
            self.ended = None;
            self.queue.saved();
        }
        Some(self.state)
    }

    /// The running instruction is over: nothing is added to its output.
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

    /// Removes all waiting and recorded instructions: none of them will run.
    pub fn cancel_all(&mut self) -> Vec<u64> {
        let cancelled = self.queue.cancel_all();
        cancelled.iter().for_each(|seq| drop(self.execs.remove(seq)));
        cancelled
    }

    /// Releases the slot of an instruction that was not recorded.
    pub fn withdraw(&mut self, seq: u64) {
        self.queue.withdraw(seq);
        self.execs.remove(&seq);
        // the ones after it may run now
        self.wake_driver();
    }

    /// Requests an interrupt of the running instruction, if it is this one; of any, for `None`.
    /// Whether there was one.
    pub fn interrupt(&mut self, seq: Option<u64>) -> bool {
        let own = self.state.instruction();
        let found = own.is_some() && (seq.is_none() || seq == own);
        if found {
            self.interrupt = true;
            self.wake_driver();
        }
        found
    }

    /// Marks the machine in memory as changed from outside: a checkpoint follows. Without a machine
    /// in memory there is nothing to save.
    pub fn touched(&mut self) {
        if self.state.is_in_memory() {
            self.queue.touched(Instant::now());
            self.wake_driver();
        }
    }

    pub fn has_driver(&self) -> bool {
        self.wakeup.is_some()
    }

    /// Sets or clears the machine's driver.
    pub fn set_driver(&mut self, wakeup: Option<File>) {
        self.wakeup = wakeup;
    }

    /// An eventfd always accepts another write, so this fails only without a driver.
    pub fn wake_driver(&self) -> bool {
        self.wakeup.as_ref().is_some_and(|wakeup| signal(wakeup).is_ok())
    }
}

fn signal(mut wakeup: &File) -> io::Result<()> {
    match wakeup.write_all(&1u64.to_ne_bytes()) {
        // the driver has not read it for a long time: it will see the wake-up
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

/// A wake-up is written, and cleared by reading.
pub(crate) fn silence(mut wakeup: &File) {
    let mut count = [0; 8];
    let _ = wakeup.read(&mut count);
}
