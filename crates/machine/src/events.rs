//! Events: a bounded log of all changes, for any number of followers.
//!
//!   host, machines, drivers ──► log (memory) ──► followers
//!                                  └─ now and then, a batch ──► records ──► the next start
//!
//! Adding an event takes a lock and no I/O. A thread writes new events to the records several times
//! a second. A crash can lose the last ones, so each start begins with an event that says so, and
//! with ids far above all earlier ones.

use crate::error::{ErrorContext, Result};
use crate::host::{Host, HostInner};
use crate::machine::Machine;
use crate::observe::ObservedEvent;
use event_listener::EventListener;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use stasis_api::{Event, EventKind, Name, RefusedAccess, Status, Timestamp};
use stasis_records::Records;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Number of events kept.
const KEPT: usize = 10_000;
/// Larger than the number of ids a process can assign without recording them.
const LEAP: u64 = 1_000_000;
/// Interval between writes of new events.
const OFTEN: Duration = Duration::from_millis(200);
/// Rules whose refusals are counted one by one, and the name of all others.
const MOST_RULES: usize = 1000;
const OTHER: &str = "(others)";

/// An event, and the account that may see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    /// None: every account.
    account: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, String>,
    event: Event,
}

struct Log {
    kept: VecDeque<Arc<Entry>>,
    next: u64,
    /// The highest id no longer kept.
    gone: u64,
    /// The highest id in the records.
    written: u64,
    counts: HashMap<EventKind, u64>,
    /// Refusals by policy and rule.
    refusals: BTreeMap<RefusalKey, u64>,
}

/// The policy and the rule of a refusal; empty, if there is none.
pub type RefusalKey = (String, String);

impl Log {
    fn count_refusal(&mut self, refused: &RefusedAccess) {
        let text = |own: &Option<String>| own.clone().unwrap_or_default();
        let mut by = (text(&refused.policy), text(&refused.rule));
        if self.refusals.len() >= MOST_RULES && !self.refusals.contains_key(&by) {
            by = (OTHER.into(), OTHER.into());
        }
        *self.refusals.entry(by).or_default() += 1;
    }
}

pub(crate) struct EventLog {
    log: Mutex<Log>,
    changed: event_listener::Event,
}

/// The events a follower subscribes to.
#[derive(Debug, Clone, Default)]
pub struct EventSelector {
    pub account: String,
    pub machine: Option<String>,
    pub tag: Option<(String, String)>,
    pub kind: Option<String>,
}

/// New events for a follower.
pub struct EventBatch {
    pub events: Vec<Event>,
    /// The id to continue from.
    pub after: u64,
    /// Whether events were missed because they are no longer kept.
    pub missed: bool,
}

/// New events of all machines, for callers that distribute them to accounts.
pub struct AllEvents {
    /// Account, machine, and what happened there.
    pub happened: Vec<(String, Name, EventKind)>,
    pub after: u64,
    pub missed: bool,
}

/// Details of an event besides its kind.
#[derive(Default)]
pub(crate) struct EventDetail {
    pub seq: Option<u64>,
    pub status: Option<Status>,
    pub about: Option<String>,
    pub refused: Option<RefusedAccess>,
}

impl EventLog {
    pub fn open(store: &Records) -> Result<EventLog> {
        let mut kept = VecDeque::new();
        for batch in store.events()? {
            // an unreadable batch counts as missing
            let batch: Vec<Entry> = serde_json::from_str(&batch).unwrap_or_default();
            kept.extend(batch.into_iter().map(Arc::new));
        }
        let last = kept.back().map_or(0, |entry: &Arc<Entry>| entry.event.id);
        let gone = kept.front().map_or(0, |entry: &Arc<Entry>| entry.event.id - 1);
        let next = if last == 0 { 1 } else { last + LEAP };
        let log = Log {
            kept,
            next,
            gone,
            written: last,
            counts: HashMap::new(),
            refusals: BTreeMap::new(),
        };
        let events = EventLog { log: Mutex::new(log), changed: event_listener::Event::new() };
        events.tell(None, BTreeMap::new(), None, EventKind::ServiceStarted, EventDetail::default());
        Ok(events)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    fn tell(
        &self,
        account: Option<String>,
        tags: BTreeMap<String, String>,
        machine: Option<Name>,
        kind: EventKind,
        about: EventDetail,
    ) {
        let EventDetail { seq, status, about, refused } = about;
        let at = Timestamp::now();
        let mut log = self.log();
        let id = log.next;
        log.next += 1;
        *log.counts.entry(kind).or_default() += 1;
        if let Some(refused) = &refused {
            log.count_refusal(refused);
        }
        let event = Event { id, at, kind, machine, seq, status, about, refused };
        log.kept.push_back(Arc::new(Entry { account, tags, event }));
        if log.kept.len() > KEPT {
            log.gone = log.kept.pop_front().map_or(log.gone, |entry| entry.event.id);
        }
        drop(log);
        self.changed.notify(usize::MAX);
    }

    fn after(&self, after: u64, wanted: &EventSelector, most: usize) -> EventBatch {
        let log = self.log();
        let missed = after < log.gone;
        let first = log.kept.partition_point(|entry| entry.event.id <= after);
        let mut news = EventBatch { events: Vec::new(), after, missed };
        for entry in log.kept.iter().skip(first) {
            if news.events.len() >= most {
                return news;
            }
            news.after = entry.event.id;
            if entry.fits(wanted) {
                news.events.push(entry.event.clone());
            }
        }
        news
    }

    fn everywhere(&self, after: u64, most: usize) -> AllEvents {
        let log = self.log();
        let missed = after < log.gone;
        let first = log.kept.partition_point(|entry| entry.event.id <= after);
        let new = log.kept.iter().skip(first).take(most);
        let after = new.clone().next_back().map_or(after, |entry| entry.event.id);
        let one = |entry: &Arc<Entry>| {
            Some((entry.account.clone()?, entry.event.machine.clone()?, entry.event.kind))
        };
        AllEvents { happened: new.filter_map(one).collect(), after, missed }
    }

    /// Records new events.
    pub fn write(&self, store: &Records) {
        let (new, gone) = {
            let mut log = self.log();
            let first = log.kept.partition_point(|entry| entry.event.id <= log.written);
            let new: Vec<Arc<Entry>> = log.kept.iter().skip(first).cloned().collect();
            log.written = log.next - 1;
            (new, log.gone)
        };
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return };
        let (first, last) = (first.event.id, last.event.id);
        let entries: Vec<&Entry> = new.iter().map(|entry| &**entry).collect();
        let batch = serde_json::to_string(&entries).unwrap_or_default();
        if let Err(error) = store.log_events(first, last, batch, gone) {
            tracing::error!(%error, "events were not recorded");
        }
    }
}

impl Entry {
    fn fits(&self, wanted: &EventSelector) -> bool {
        let whose = self.account.as_ref().is_none_or(|own| *own == wanted.account);
        let machine = wanted
            .machine
            .as_ref()
            .is_none_or(|name| self.event.machine.as_ref().is_some_and(|own| own.as_str() == name));
        let tag = wanted.tag.as_ref().is_none_or(|(key, value)| self.tags.get(key) == Some(value));
        let kind = wanted.kind.as_ref().is_none_or(|kind| self.event.kind.word().starts_with(kind));
        whose && machine && tag && kind
    }
}

impl Host {
    /// Events after an id that match a filter, at most `most`.
    pub fn events_after(&self, after: u64, wanted: &EventSelector, most: usize) -> EventBatch {
        self.inner().events.after(after, wanted, most)
    }

    /// Events of all machines after an id, at most `most`.
    pub fn happened_after(&self, after: u64, most: usize) -> AllEvents {
        self.inner().events.everywhere(after, most)
    }

    /// The number of the newest event.
    pub fn last_event(&self) -> u64 {
        self.inner().events.log().next - 1
    }

    /// Wakes up on a new event.
    pub fn next_event(&self) -> EventListener {
        self.inner().events.changed.listen()
    }

    /// Number of refusals of each policy and rule since the start.
    pub fn refusal_counts(&self) -> Vec<(RefusalKey, u64)> {
        let log = self.inner().events.log();
        log.refusals.iter().map(|(by, count)| (by.clone(), *count)).collect()
    }

    /// Number of events of each kind since the start.
    pub fn event_counts(&self) -> Vec<(EventKind, u64)> {
        self.inner().events.log().counts.iter().map(|(kind, count)| (*kind, *count)).collect()
    }
}

impl HostInner {
    /// An event visible to every account.
    pub fn tell_all(&self, kind: EventKind, about: String) {
        let about = EventDetail { about: Some(about), ..EventDetail::default() };
        self.events.tell(None, BTreeMap::new(), None, kind, about);
    }
}

impl Machine {
    pub(crate) fn event(&self, kind: EventKind, about: EventDetail) {
        let (name, account, tags) = {
            let record = self.record();
            (record.made.name.clone(), record.made.account.clone(), record.made.tags.clone())
        };
        self.host.events.tell(Some(account), tags, Some(name), kind, about);
    }

    pub(crate) fn event_at(&self, kind: EventKind, seq: Option<u64>) {
        self.event(kind, EventDetail { seq, ..EventDetail::default() });
    }

    pub(crate) fn ended(&self, seq: u64, status: Status, runtime: Option<Duration>) {
        let (seq_of, how) = (Some(seq), Some(status));
        let about = EventDetail { seq: seq_of, status: how, ..EventDetail::default() };
        self.event(EventKind::InstructionFinished, about);
        self.observe(ObservedEvent::Ended { seq, status, runtime });
    }

    pub(crate) fn event_about(&self, kind: EventKind, what: &str) {
        self.event(kind, EventDetail { about: Some(what.to_owned()), ..EventDetail::default() });
    }
}

/// The thread that records events several times a second. It has ended once this is dropped, so it
/// is never the last to use the host.
pub(crate) struct EventWriter {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EventWriter {
    pub fn start(inner: &Arc<HostInner>) -> Result<EventWriter> {
        let (stop, stopped) = mpsc::channel::<()>();
        let inner = inner.clone();
        let write = move || {
            while stopped.recv_timeout(OFTEN) == Err(RecvTimeoutError::Timeout) {
                inner.events.write(&inner.records);
                inner.write_budgets();
            }
        };
        let thread = std::thread::Builder::new().name("stasis-events".into());
        let thread = thread.spawn(write).doing(|| "start a thread".into())?;
        Ok(EventWriter { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}
