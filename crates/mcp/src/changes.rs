//! What changed on the host, for clients that want to be told: machines that came, went or did
//! something. One task follows the host's events while somebody listens, and none does otherwise.
//!
//!   events of the host ──► one change per machine and moment ──► listeners

use stasis_api::{EventKind, Name};
use stasis_machine::{Everywhere, Host};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::broadcast;

/// Between two looks, so that machines in a hurry are told of once and not a thousand times.
const BREATH: Duration = Duration::from_millis(100);
/// How often is looked whether anybody still listens, when nothing happens.
const SELDOM: Duration = Duration::from_secs(5);
/// Events of one look.
const MOST: usize = 10_000;
/// Changes that wait for a slow listener; one that misses some is told that all may have changed.
const BACKLOG: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Machines of an account came or went.
    List(String),
    /// Something happened on a machine.
    Machine {
        account: String,
        name: Name,
    },
    /// There are other tools, or other prompts.
    Tools,
    Prompts,
    /// It is not known what changed.
    Anything,
}

pub struct Changes {
    host: Weak<Host>,
    sender: broadcast::Sender<Change>,
    watched: Mutex<bool>,
}

impl Changes {
    pub fn new(host: &Arc<Host>) -> Arc<Changes> {
        let (sender, _) = broadcast::channel(BACKLOG);
        Arc::new(Changes { host: Arc::downgrade(host), sender, watched: Mutex::default() })
    }

    /// All changes from now on.
    pub fn listen(self: &Arc<Self>) -> broadcast::Receiver<Change> {
        let receiver = self.sender.subscribe();
        let mut watched = self.watched.lock().unwrap_or_else(|poison| poison.into_inner());
        if !std::mem::replace(&mut *watched, true) {
            let after = self.host.upgrade().map_or(0, |host| host.last_event());
            tokio::spawn(self.clone().watch(after));
        }
        receiver
    }

    pub fn tell(&self, change: Change) {
        // nobody may listen
        let _ = self.sender.send(change);
    }

    async fn watch(self: Arc<Self>, mut after: u64) {
        while !self.is_done() {
            let Some(host) = self.host.upgrade() else { continue };
            // before the look: what happens after it is heard of
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

    /// Whether nobody listens any more; then the next one starts anew.
    fn is_done(&self) -> bool {
        let mut watched = self.watched.lock().unwrap_or_else(|poison| poison.into_inner());
        *watched = self.sender.receiver_count() > 0 && self.host.strong_count() > 0;
        !*watched
    }
}

/// A receiver from before a client was told that it is listened for it: what the client does the
/// moment it hears that must not be missed.
#[derive(Clone, Default)]
pub struct Early(Arc<Mutex<Option<broadcast::Receiver<Change>>>>);

impl Early {
    pub fn hear(&self, changes: &Arc<Changes>) {
        *self.0.lock().unwrap_or_else(|poison| poison.into_inner()) = Some(changes.listen());
    }

    pub fn take(&self) -> Option<broadcast::Receiver<Change>> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner()).take()
    }
}

/// Each change once. Lists come first: a machine that is new is in them.
fn changes(news: Everywhere) -> BTreeSet<Change> {
    let one = |(account, name, kind): (String, Name, EventKind)| match kind {
        EventKind::MachineCreated | EventKind::MachineRemoved => Change::List(account),
        _ => Change::Machine { account, name },
    };
    let missed = news.missed.then_some(Change::Anything);
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
        let told = changes(Everywhere { happened, after: 5, missed: false });
        let machine = Change::Machine { account: "x".into(), name: "a".parse().expect("a name") };
        let want = [Change::List("x".into()), Change::List("y".into()), machine];
        assert_eq!(told.into_iter().collect::<Vec<_>>(), want);
        let told = changes(Everywhere { happened: Vec::new(), after: 9, missed: true });
        assert_eq!(told, BTreeSet::from([Change::Anything]));
    }
}
