//! A machine as the rest of the program holds it: its record, its queue, and what it does now.
//!
//! Everybody may look and ask; only the driver acts. The driver's thread starts when something is
//! asked of a machine that has none, and ends when the machine is out of memory and nothing waits.

use crate::driver::{Driver, Wish};
use crate::error::{Doing, Error, Result};
use crate::feed::Feed;
use crate::files::Files;
use crate::host::Inner;
use crate::queue::{Queue, Rules};
use event_listener::{Event, EventListener};
use stasis_api::{
    Address, Chunk, Durability, EventKind, Exec, Instruction, Name, Parent, State, Status,
    Timestamp,
};
use stasis_store::{MachineId, MachineRecord, NewInstruction, NewRecord};
use stasis_sys::{fds, libc};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

/// The longest code an instruction may have.
const MAX_CODE: usize = 16 << 20;
const LONGEST_KEY: usize = 255;

pub struct Machine {
    pub(crate) id: MachineId,
    pub(crate) host: Arc<Inner>,
    record: Mutex<MachineRecord>,
    work: Mutex<Work>,
    /// Told whenever something happened that a follower may wait for.
    changed: Event,
}

/// What is asked of a machine, and what it does.
pub(crate) struct Work {
    pub queue: Queue<Wish>,
    /// Instructions that wait, in full.
    pub execs: HashMap<u64, Exec>,
    pub running: Option<u64>,
    /// The last instruction whose effects are in memory or, swapped out, in the image.
    pub last_ran: Option<u64>,
    pub feed: Option<Feed>,
    pub live: bool,
    /// The way to its files while it is in memory.
    pub files: Option<Arc<Files>>,
    pub pinned: Option<String>,
    /// The instruction to interrupt.
    pub interrupt: Option<u64>,
    /// It was decided that the machine goes ([`crate::leave`]).
    pub removed: bool,
    /// How often what was in memory was given up for an earlier state.
    pub falls: u64,
    /// Went back to an earlier state, and was not woken since.
    pub rolled_back: bool,
    /// How long the last checkpoint held the machine up.
    pub pause: Duration,
    /// Wakes the driver, if there is one.
    bell: Option<File>,
}

/// What a follower of an instruction gets.
pub enum Progress {
    /// New lines of output.
    Chunks(Vec<Chunk>),
    /// It is over; all output was given.
    Over(Box<Instruction>),
    /// Nothing yet: wait for this, then ask again.
    Wait(EventListener),
}

impl Work {
    /// An instruction that waited runs from now on. Those who cancel and interrupt look at the
    /// queue and at this under one lock, so nothing is missed in between.
    pub(crate) fn begin(&mut self, seq: u64) {
        self.running = Some(seq);
        self.feed = Some(Feed::new(seq));
    }

    pub(crate) fn has_driver(&self) -> bool {
        self.bell.is_some()
    }

    pub(crate) fn wake_driver(&mut self) {
        if let Some(bell) = &mut self.bell {
            let _ = bell.write_all(&1u64.to_ne_bytes());
        }
    }

    /// Notes that the machine in memory was changed from outside: a checkpoint follows. Without a
    /// machine in memory there is nothing to be saved.
    pub(crate) fn touched(&mut self) {
        if self.live {
            self.queue.touched(Instant::now());
            self.wake_driver();
        }
    }

    /// The machine left memory: nothing of it is unsaved, because it was saved or is lost.
    pub(crate) fn left_memory(&mut self) {
        self.live = false;
        self.files = None;
        self.queue.saved();
    }
}

impl Machine {
    pub(crate) fn new(host: Arc<Inner>, record: MachineRecord) -> Machine {
        let settings = &host.settings;
        let rules = Rules {
            settle: settings.settle,
            at_risk: settings.at_risk,
            idle_swap: settings.idle_swap,
            max_queue: settings.max_queue,
        };
        let work = Work {
            queue: Queue::new(rules, Instant::now()),
            execs: HashMap::new(),
            running: None,
            last_ran: record.head_seq,
            feed: None,
            live: false,
            files: None,
            pinned: None,
            interrupt: None,
            removed: false,
            falls: 0,
            rolled_back: false,
            pause: Duration::ZERO,
            bell: None,
        };
        Machine {
            id: record.id,
            host,
            record: Mutex::new(record),
            work: Mutex::new(work),
            changed: Event::new(),
        }
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, MachineRecord> {
        self.record.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    pub(crate) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    pub fn name(&self) -> Name {
        self.record().made.name.clone()
    }

    /// How long the last checkpoint held the machine up.
    pub fn last_pause(&self) -> Duration {
        self.work().pause
    }

    /// Whose it is.
    pub fn account(&self) -> String {
        self.record().made.account.clone()
    }

    pub(crate) fn address(&self, seq: u64) -> Address {
        Address { machine: self.name(), seq: Some(seq) }
    }

    /// The newest checkpoint on disk.
    pub(crate) fn durable(&self) -> Option<Address> {
        let record = self.record();
        record.head_seq.map(|seq| Address { machine: record.made.name.clone(), seq: Some(seq) })
    }

    /// Since when it is in memory with nothing to do.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let work = self.work();
        let idle = work.live && work.running.is_none() && work.queue.waiting() == 0;
        idle.then(|| work.queue.idle_since())
    }

    /// When it was used last, as far as this process knows.
    pub(crate) fn used_at(&self) -> Instant {
        self.work().queue.idle_since()
    }

    /// The machine as clients see it.
    pub fn describe(&self) -> stasis_api::Machine {
        let (live, running, waiting, pinned) = {
            let work = self.work();
            (work.live, work.running.is_some(), work.queue.waiting(), work.pinned.clone())
        };
        let checkpoint = self.durable();
        let record = self.record().clone();
        let state = match (running, live) {
            (true, _) => State::Running,
            (false, true) => State::Ready,
            (false, false) => State::Swapped,
        };
        let pending = running || waiting > 0;
        let parent = self.parent(&record.made);
        stasis_api::Machine {
            name: record.made.name,
            state,
            created_at: record.made.created_at,
            expires_at: record.made.expires_at,
            tags: record.made.tags,
            template: self.host.template_name(&record.made.template),
            limits: record.made.limits,
            durability: record.made.durability,
            network: record.made.network,
            running: live || running,
            has_pending_instruction: pending,
            has_pending_instructions: pending,
            instructions: record.next_seq,
            checkpoint,
            pinned,
            parent,
            retention: record.made.retention,
        }
    }

    /// Where a branch came from, by the name that has now.
    fn parent(&self, made: &NewRecord) -> Option<Parent> {
        let mut parent = made.parent.clone()?;
        let now = made.parent_id.and_then(|id| self.host.store.machine_name(id).ok().flatten());
        parent.machine = now.unwrap_or(parent.machine);
        Some(parent)
    }

    /// Accepts an instruction; its number. It runs when those before it are over.
    pub fn submit(self: &Arc<Self>, exec: Exec) -> Result<u64> {
        if exec.code.len() > MAX_CODE {
            return Err(Error::Invalid(format!("code is at most {MAX_CODE} bytes")));
        }
        let wrong = |key: &String| key.is_empty() || key.len() > LONGEST_KEY;
        if exec.idempotency_key.as_ref().is_some_and(wrong) {
            return Err(Error::Invalid(format!("an idempotency key has 1 to {LONGEST_KEY} bytes")));
        }
        if let Some(seq) = self.accepted_before(&exec)? {
            return Ok(seq);
        }
        if exec.interrupt {
            self.interrupt_all()?;
        }
        self.host.in_turn(&self.account(), || {
            self.host.admit(self)?;
            self.accept(exec)
        })
    }

    /// Gives an instruction its number and its place in the queue.
    fn accept(self: &Arc<Self>, exec: Exec) -> Result<u64> {
        let mut work = self.work();
        if work.removed {
            return Err(self.removed());
        }
        // first: what is accepted has a driver
        self.ring(&mut work)?;
        let mut record = self.record();
        // Asked again where nobody else can be accepted: a retry may come while the first try is
        // still on its way here.
        if let Some(seq) = self.accepted_before(&exec)? {
            return Ok(seq);
        }
        let seq = record.next_seq;
        if !work.queue.offer(seq) {
            let name = record.made.name.to_string();
            return Err(Error::QueueFull(name, self.host.settings.max_queue));
        }
        let (status, at) = (Status::Queued, Timestamp::now());
        let new = NewInstruction { seq, exec, status, at };
        if let Err(error) = self.host.store.add_instruction(self.id, &new) {
            work.queue.cancel(seq);
            return Err(error.into());
        }
        record.next_seq = seq + 1;
        work.execs.insert(seq, new.exec);
        // before the driver can hear of it
        self.observe_queued(seq, &record.made.name, &record.made.account);
        drop(record);
        // before the driver can tell that it started
        self.event_at(EventKind::InstructionQueued, Some(seq));
        Ok(seq)
    }

    /// The number an instruction with the same idempotency key already has.
    fn accepted_before(&self, exec: &Exec) -> Result<Option<u64>> {
        let Some(key) = &exec.idempotency_key else { return Ok(None) };
        Ok(self.host.store.instruction_with_key(self.id, key)?)
    }

    /// Writes an instruction down that its driver carries out itself, at once; its number.
    pub(crate) fn begin_note(&self, code: String) -> Result<u64> {
        let mut record = self.record();
        let seq = record.next_seq;
        let exec = Exec { code, ..Exec::default() };
        let new = NewInstruction { seq, exec, status: Status::Running, at: Timestamp::now() };
        self.host.store.add_instruction(self.id, &new)?;
        record.next_seq = seq + 1;
        Ok(seq)
    }

    /// Takes an instruction that was accepted by an earlier process.
    pub(crate) fn requeue(self: &Arc<Self>, seq: u64, exec: Exec) -> Result<()> {
        let mut work = self.work();
        self.ring(&mut work)?;
        work.queue.offer(seq);
        work.execs.insert(seq, exec);
        Ok(())
    }

    /// Wakes the driver, or starts one.
    pub(crate) fn ring(self: &Arc<Self>, work: &mut Work) -> Result<()> {
        if let Some(bell) = &mut work.bell {
            return bell.write_all(&1u64.to_ne_bytes()).doing(|| "wake a driver".into());
        }
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        let bell = fds::eventfd(0, flags).doing(|| "make a bell".into())?;
        let copy = bell.try_clone().doing(|| "copy a bell".into())?;
        Driver::start(self.clone(), bell.into())?;
        work.bell = Some(copy.into());
        Ok(())
    }

    /// The driver has nothing to do, and ends.
    pub(crate) fn dismiss(&self, work: &mut Work) {
        work.bell = None;
        self.tell();
    }

    /// Has the driver do something between two instructions, and waits for the answer.
    pub(crate) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&mut Driver) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answers) = mpsc::channel();
        {
            let mut work = self.work();
            if work.removed {
                return Err(self.removed());
            }
            self.ring(&mut work)?;
            work.queue.wish(Box::new(move |driver: &mut Driver| {
                let _ = answer.send(job(driver));
            }));
        }
        let gone = || Error::Broken {
            machine: self.name().to_string(),
            what: "its driver ended before it answered".into(),
        };
        let answered = answers.recv().unwrap_or_else(|_| Err(gone()));
        // whatever failed then failed for this reason
        answered.map_err(|error| if self.is_removed() { self.removed() } else { error })
    }

    /// Has the driver do something between two instructions, and does not wait for it.
    pub(crate) fn wish(self: &Arc<Self>, job: impl FnOnce(&mut Driver) + Send + 'static) {
        let mut work = self.work();
        if !work.removed && self.ring(&mut work).is_ok() {
            work.queue.wish(Box::new(job));
        }
    }

    /// Interrupts what runs; its state is kept. Whether something ran.
    pub fn interrupt(self: &Arc<Self>) -> Result<bool> {
        let mut work = self.work();
        let Some(seq) = work.running else { return Ok(false) };
        work.interrupt = Some(seq);
        self.ring(&mut work)?;
        Ok(true)
    }

    /// Takes an instruction that waits out of the queue; whether it still waited.
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
            self.record_cancelled(seq, "it was cancelled before it ran")?;
        }
        Ok(waited)
    }

    /// Ends one instruction and no other, whether it waits or runs; the state is kept. Whether it
    /// did either.
    pub fn stop(self: &Arc<Self>, seq: u64) -> Result<bool> {
        if self.cancel(seq)? {
            return Ok(true);
        }
        let mut work = self.work();
        if work.running != Some(seq) {
            return Ok(false);
        }
        work.interrupt = Some(seq);
        self.ring(&mut work)?;
        Ok(true)
    }

    fn interrupt_all(self: &Arc<Self>) -> Result<()> {
        let waiting = {
            let mut work = self.work();
            let waiting = work.queue.cancel_all();
            for seq in &waiting {
                work.execs.remove(seq);
            }
            if let Some(seq) = work.running {
                work.interrupt = Some(seq);
                self.ring(&mut work)?;
            }
            waiting
        };
        for seq in waiting {
            self.record_cancelled(seq, "another instruction came first")?;
        }
        Ok(())
    }

    /// What an instruction has put out since chunk `from`, or how it ended.
    pub fn follow(&self, seq: u64, from: u64) -> Result<Progress> {
        let listener = self.changed.listen();
        if self.is_removed() {
            return Err(self.removed());
        }
        if let Some(feed) = self.work().feed.as_ref().filter(|feed| feed.seq == seq) {
            let new = feed.chunks.get(from as usize..).unwrap_or_default();
            if !new.is_empty() {
                return Ok(Progress::Chunks(new.to_vec()));
            }
            return Ok(Progress::Wait(listener));
        }
        let instruction = self.instruction(seq)?;
        if !instruction.status.is_over() {
            return Ok(Progress::Wait(listener));
        }
        if instruction.outputs > from {
            let chunks = self.host.store.outputs(self.id, seq, from)?;
            if !chunks.is_empty() {
                return Ok(Progress::Chunks(chunks));
            }
        }
        Ok(Progress::Over(Box::new(instruction)))
    }

    /// Waits for an instruction's end.
    pub fn wait(&self, seq: u64) -> Result<Instruction> {
        loop {
            // all output was seen: only the end is waited for
            match self.follow(seq, u64::MAX)? {
                Progress::Over(instruction) => return Ok(*instruction),
                Progress::Wait(listener) => event_listener::Listener::wait(listener),
                Progress::Chunks(_) => {}
            }
        }
    }

    /// All output of an instruction so far.
    pub fn outputs(&self, seq: u64, from: u64) -> Result<Vec<Chunk>> {
        match self.follow(seq, from)? {
            Progress::Chunks(chunks) => Ok(chunks),
            Progress::Over(_) | Progress::Wait(_) => Ok(Vec::new()),
        }
    }

    /// One instruction, with what holds of its state now.
    pub fn instruction(&self, seq: u64) -> Result<Instruction> {
        let missing = || match self.is_removed() {
            true => self.removed(),
            false => Error::NoInstruction { machine: self.name().to_string(), seq },
        };
        let found = self.host.store.instruction(self.id, seq)?;
        Ok(self.up_to_date(found.ok_or_else(missing)?))
    }

    /// Instructions from `from` on, oldest first.
    pub fn instructions(&self, from: u64, limit: u64) -> Result<Vec<Instruction>> {
        let list = self.host.store.instructions(self.id, from, limit)?;
        Ok(list.into_iter().map(|instruction| self.up_to_date(instruction)).collect())
    }

    /// A receipt says what was durable when it was written; by now more may be.
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

    pub(crate) fn tell(&self) {
        self.changed.notify(usize::MAX);
    }

    pub(crate) fn listen(&self) -> EventListener {
        self.changed.listen()
    }

    /// The durability an instruction asks for.
    pub(crate) fn durability(&self, exec: &Exec) -> Durability {
        exec.durability.unwrap_or(self.record().made.durability)
    }

    /// Waits until nothing runs or waits and all is saved: for those who measure or stop.
    pub fn settle(self: &Arc<Self>) -> Result<()> {
        loop {
            let listener = self.listen();
            {
                let work = self.work();
                if work.removed {
                    drop(work);
                    return Err(self.removed());
                }
                let busy = work.running.is_some() || work.queue.waiting() > 0;
                if !busy && (work.queue.is_saved() || work.pinned.is_some() || !work.live) {
                    return Ok(());
                }
            }
            event_listener::Listener::wait(listener);
        }
    }
}

/// The bell is rung by writing and silenced by reading.
pub(crate) fn silence(mut bell: &File) {
    let mut count = [0; 8];
    let _ = bell.read(&mut count);
}
