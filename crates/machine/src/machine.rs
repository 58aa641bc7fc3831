//! A machine as the rest of the program sees it: its record and its current work.
//!
//!   submit, follow ─┐
//!   request ────────┼─► work: state + queue ◄─── driver ─► tree
//!   leave ──────────┘      (one lock)
//!
//! Any thread may inspect and request; only the driver acts. The driver's thread starts with the
//! first request, and ends when the machine is swapped out and its queue is empty.

use crate::agent::MachineAgent;
use crate::early_restore::EarlyTurns;
use crate::helpers::HelperThreads;
use crate::host::HostInner;
use crate::unsaved::StartCell;
use crate::work::Work;
use event_listener::{Event, EventListener};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use stasis_api::{Address, Checkpoints, Durability, Exec, Name, Parent};
use stasis_records::{MachineId, MachineRecord, NewRecord};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub struct Machine {
    pub(crate) id: MachineId,
    pub(crate) host: Arc<HostInner>,
    record: Mutex<MachineRecord>,
    work: Mutex<Work>,
    /// Held while its settings are changed.
    changing: Mutex<()>,
    /// Notified of every change that a follower may wait for.
    changed: Event,
    pub(crate) spoken: OnceLock<MachineAgent>,
    /// The state it starts from, until that is recorded.
    pub(crate) start: StartCell,
    /// A lent set of servers whose tools its code calls.
    pub(crate) tool_set: Mutex<Option<String>>,
    /// Headers of the connection whose code it runs, for mcp-v8's policies.
    pub(crate) shown_headers: Mutex<Value>,
    /// Find answers for its code.
    pub(crate) helpers: HelperThreads,
    pub(crate) early: EarlyTurns,
}

impl Machine {
    pub(crate) fn new(host: Arc<HostInner>, record: MachineRecord, start: StartCell) -> Machine {
        let work = Work::new(&host.settings, record.head_seq);
        Machine {
            id: record.id,
            host,
            record: Mutex::new(record),
            work: Mutex::new(work),
            changing: Mutex::default(),
            changed: Event::new(),
            spoken: OnceLock::new(),
            start,
            tool_set: Mutex::default(),
            shown_headers: Mutex::default(),
            helpers: HelperThreads::default(),
            early: EarlyTurns::default(),
        }
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, MachineRecord> {
        self.record.lock()
    }

    pub(crate) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock()
    }

    /// Held while the machine's settings change, and for nothing else.
    pub(crate) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    pub fn name(&self) -> Name {
        self.record().made.name.clone()
    }

    /// Pause of the machine during the last checkpoint.
    pub fn last_pause(&self) -> Duration {
        self.work().pause
    }

    /// Its account.
    pub fn account(&self) -> String {
        self.record().made.account.clone()
    }

    pub(crate) fn address(&self, seq: u64) -> Address {
        Address { machine: self.name(), seq: Some(seq) }
    }

    /// Whether it is in the state after this instruction.
    pub fn is_at(&self, seq: u64) -> bool {
        self.work().last_ran == Some(seq)
    }

    /// The newest checkpoint on disk.
    pub(crate) fn durable(&self) -> Option<Address> {
        let record = self.record();
        record.head_seq.map(|seq| Address { machine: record.made.name.clone(), seq: Some(seq) })
    }

    /// Since when it is idle in memory.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let work = self.work();
        let idle = work.state().is_in_memory() && work.pending() == 0;
        idle.then(|| work.queue.idle_since())
    }

    /// Its last use, as far as this process knows.
    pub(crate) fn used_at(&self) -> Instant {
        self.work().queue.idle_since()
    }

    /// The machine as clients see it.
    pub fn describe(&self) -> stasis_api::MachineInfo {
        let (state, pending, pinned, lost) = {
            let work = self.work();
            (work.state().shown(), work.pending() > 0, work.pinned.clone(), work.lost.clone())
        };
        let checkpoint = self.durable();
        let record = self.record().clone();
        let parent = self.parent(&record.made);
        stasis_api::MachineInfo {
            name: record.made.name,
            state,
            created_at: record.made.created_at,
            expires_at: record.made.expires_at,
            tags: record.made.tags,
            template: self.host.template_name(&record.made.template),
            limits: record.made.limits,
            durability: record.made.durability,
            checkpoints: record.made.checkpoints,
            network: record.made.network.clone(),
            running: state != stasis_api::State::Swapped,
            has_pending_instruction: pending,
            has_pending_instructions: pending,
            instructions: record.next_seq,
            checkpoint,
            lost,
            pinned,
            parent,
            retention: record.made.retention,
        }
    }

    /// The source of a branch, by its current name.
    fn parent(&self, made: &NewRecord) -> Option<Parent> {
        let mut parent = made.parent.clone()?;
        let now = made.parent_id.and_then(|id| self.host.records.machine_name(id).ok().flatten());
        parent.machine = now.unwrap_or(parent.machine);
        Some(parent)
    }

    pub(crate) fn tell(&self) {
        self.changed.notify(usize::MAX);
    }

    pub(crate) fn listen(&self) -> EventListener {
        self.changed.listen()
    }

    /// Whether an instruction needs a state of its own.
    pub(crate) fn is_exact(&self, exec: &Exec) -> bool {
        exec.checkpoints.unwrap_or(self.record().made.checkpoints) == Checkpoints::Exact
    }

    /// The durability requested for an instruction.
    pub(crate) fn durability(&self, exec: &Exec) -> Durability {
        exec.durability.unwrap_or(self.record().made.durability)
    }
}
