//! Changes on the host, for subscribed clients: machines created, removed or changed. One task
//! follows the host's events while there are listeners.
//!
//!   events of the host ──► one change per machine and moment ──► listeners

use parking_lot::Mutex;
use stasis_api::{EventKind, Name};
use stasis_machine::{AllEvents, Host};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::broadcast;

/// Interval between reads, so that rapid changes of a machine are reported once.
const BREATH: Duration = Duration::from_millis(100);
/// How often it checks for listeners while nothing happens.
const SELDOM: Duration = Duration::from_secs(5);
/// Maximum events per read.
const MOST: usize = 10_000;
/// Queued changes for a slow listener; if it misses some, it is notified that everything may have
/// changed.
const BACKLOG: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceChange {
    /// Machines of an account were created or removed.
    List(String),
    /// A machine changed.
    Machine {
        account: String,
        name: Name,
    },
    /// The lists of tools or prompts changed.
    Tools,
    Prompts,
    /// The change is unknown.
    Anything,
}

pub struct Changes {
    host: Weak<Host>,
    sender: broadcast::Sender<ResourceChange>,
    watched: Mutex<bool>,
}

impl Changes {
    pub fn new(host: &Arc<Host>) -> Arc<Changes> {
        let (sender, _) = broadcast::channel(BACKLOG);
        Arc::new(Changes { host: Arc::downgrade(host), sender, watched: Mutex::default() })
    }

    /// All changes from now on.
    pub fn listen(self: &Arc<Self>) -> broadcast::Receiver<ResourceChange> {
        let receiver = self.sender.subscribe();
        let mut watched = self.watched.lock();
        if !std::mem::replace(&mut *watched, true) {
            let after = self.host.upgrade().map_or(0, |host| host.last_event());
            tokio::spawn(self.clone().watch(after));
        }
        receiver
    }

    pub fn tell(&self, change: ResourceChange) {
        // there may be no listener
        let _ = self.sender.send(change);
    }

    async fn watch(self: Arc<Self>, mut after: u64) {
        while !self.is_done() {
            let Some(host) = self.host.upgrade() else { continue };
            // before the read, so that later events wake this task
            let next = host.next_event();
            let news = host.happened_after(after, MOST);
            drop(host);
            if news.after == after {
                let _ = tokio::time::timeout(SELDOM, next).await;
                continue;
            }
            after = news.after;
            changes(news).into_iter().for_each(|change| self.tell(change));
            tokio::time::sleep(BREATH).await;
        }
    }

    /// Whether there are no listeners left. The next one starts a new task.
    fn is_done(&self) -> bool {
        let mut watched = self.watched.lock();
        *watched = self.sender.receiver_count() > 0 && self.host.strong_count() > 0;
        !*watched
    }
}

/// A receiver made before the client's subscription is confirmed, so that changes right after the
/// confirmation are not missed.
#[derive(Clone, Default)]
pub struct EarlyReceiver(Arc<Mutex<Option<broadcast::Receiver<ResourceChange>>>>);

impl EarlyReceiver {
    pub fn listen(&self, changes: &Arc<Changes>) {
        *self.0.lock() = Some(changes.listen());
    }

    pub fn take(&self) -> Option<broadcast::Receiver<ResourceChange>> {
        self.0.lock().take()
    }
}

/// Each change once. Lists come first, because they contain new machines.
fn changes(news: AllEvents) -> BTreeSet<ResourceChange> {
    let one = |(account, name, kind): (String, Name, EventKind)| match kind {
        EventKind::MachineCreated | EventKind::MachineRemoved => ResourceChange::List(account),
        _ => ResourceChange::Machine { account, name },
    };
    let missed = news.missed.then_some(ResourceChange::Anything);
    news.happened.into_iter().map(one).chain(missed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let happened = |account: &str, name: &str, kind| {
            (account.to_owned(), name.parse().expect("a name"), kind)
        };
        let happened = vec![
            happened("x", "a", EventKind::InstructionQueued),
            happened("x", "young", EventKind::MachineCreated),
            happened("x", "a", EventKind::InstructionFinished),
            happened("y", "gone", EventKind::MachineRemoved),
            happened("x", "younger", EventKind::MachineCreated),
        ];
        let told = changes(AllEvents { happened, after: 5, missed: false });
        let machine =
            ResourceChange::Machine { account: "x".into(), name: "a".parse().expect("a name") };
        let want = [ResourceChange::List("x".into()), ResourceChange::List("y".into()), machine];
        assert_eq!(told.into_iter().collect::<Vec<_>>(), want);
        let told = changes(AllEvents { happened: Vec::new(), after: 9, missed: true });
        assert_eq!(told, BTreeSet::from([ResourceChange::Anything]));
    }
}
