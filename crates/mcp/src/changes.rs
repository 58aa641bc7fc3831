//! What changed on the host, for clients that want to be told: machines that came, went or did
//! something. One task looks while somebody listens, and none does otherwise.

use stasis_machine::Host;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::broadcast;

/// How often is looked.
const PERIOD: Duration = Duration::from_millis(250);
/// Changes that wait for a slow listener; one that misses some is told that all may have changed.
const BACKLOG: usize = 256;

#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Machines of an account came or went.
    List(String),
    /// Something happened on a machine.
    Machine {
        account: String,
        name: String,
    },
    /// There are other tools, or other prompts.
    Tools,
    Prompts,
}

pub struct Changes {
    host: Weak<Host>,
    sender: broadcast::Sender<Change>,
    watched: Mutex<bool>,
}

/// What is compared of a machine: account, then what grows or flips when it does something.
type Look = HashMap<String, (String, u64, bool, String)>;

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
            tokio::spawn(self.clone().watch());
        }
        receiver
    }

    pub fn tell(&self, change: Change) {
        // nobody may listen
        let _ = self.sender.send(change);
    }

    async fn watch(self: Arc<Self>) {
        let mut before = self.look().await;
        loop {
            tokio::time::sleep(PERIOD).await;
            if self.is_done() {
                return;
            }
            let now = self.look().await;
            if let (Some(before), Some(now)) = (&before, &now) {
                differences(before, now).into_iter().for_each(|change| self.tell(change));
            }
            before = now;
        }
    }

    /// Whether nobody listens any more; then the next one starts anew.
    fn is_done(&self) -> bool {
        let mut watched = self.watched.lock().unwrap_or_else(|poison| poison.into_inner());
        *watched = self.sender.receiver_count() > 0 && self.host.strong_count() > 0;
        !*watched
    }

    async fn look(&self) -> Option<Look> {
        let host = self.host.upgrade()?;
        let all = move || {
            let machines = host.machines().into_iter();
            let one = |machine: Arc<stasis_machine::Machine>| {
                let now = machine.describe();
                let at = now.checkpoint.map(|at| at.to_string()).unwrap_or_default();
                let seen = (machine.account(), now.instructions, now.has_pending_instruction, at);
                (now.name.to_string(), seen)
            };
            machines.map(one).collect()
        };
        tokio::task::spawn_blocking(all).await.ok()
    }
}

fn differences(before: &Look, now: &Look) -> Vec<Change> {
    let mut lists = Vec::new();
    let mut machines = Vec::new();
    for (name, seen) in now {
        let old = before.get(name);
        if old.is_none_or(|old| old.0 != seen.0) {
            lists.push(seen.0.clone());
        } else if old != Some(seen) {
            machines.push(Change::Machine { account: seen.0.clone(), name: name.clone() });
        }
    }
    let gone = before.iter().filter(|(name, _)| !now.contains_key(*name));
    lists.extend(gone.map(|(_, seen)| seen.0.clone()));
    lists.sort();
    lists.dedup();
    lists.into_iter().map(Change::List).chain(machines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(all: &[(&str, &str, u64)]) -> Look {
        let one = |(name, account, n): &(&str, &str, u64)| {
            (name.to_string(), (account.to_string(), *n, false, String::new()))
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn each_change_is_told_once() {
        let before = look(&[("a", "x", 1), ("b", "x", 1), ("gone", "y", 1)]);
        let now = look(&[("a", "x", 2), ("b", "x", 1), ("new", "x", 0)]);
        let want = [
            Change::List("x".into()),
            Change::List("y".into()),
            Change::Machine { account: "x".into(), name: "a".into() },
        ];
        assert_eq!(differences(&before, &now), want);
        assert_eq!(differences(&now, &now), []);
    }
}
