//! The next run to start. Pure: no machine and no clock.
//!
//! Accounts share fairly: the one with the fewest running runs is next. Runs of one session follow
//! each other, each on the state of the last one. Runs of different sessions run in parallel, but
//! only so many of a front process that sets a maximum.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Maximum concurrent runs of all accounts.
const MOST_RUNNING: usize = 64;
/// Maximum waiting runs of one account.
const MOST_WAITING: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRun {
    pub account: String,
    pub id: String,
    pub session: Option<String>,
    pub group: Option<RunGroup>,
}

/// Runs of an account that share a maximum of their own (`--max-concurrent-executions`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunGroup {
    pub name: String,
    pub most: usize,
}

impl WaitingRun {
    fn line(&self) -> Option<(String, String)> {
        Some((self.account.clone(), self.session.clone()?))
    }

    fn group(&self) -> Option<(String, String)> {
        Some((self.account.clone(), self.group.as_ref()?.name.clone()))
    }
}

#[derive(Default)]
pub struct RunQueue {
    is_open: bool,
    waiting: BTreeMap<String, VecDeque<WaitingRun>>,
    /// Running runs, by account and id.
    running: BTreeMap<String, HashSet<String>>,
    /// Sessions with a running run, and which.
    sessions: HashMap<(String, String), String>,
    /// Running runs by account and group.
    groups: HashMap<(String, String), HashSet<String>>,
    /// Machines with a running run, by number.
    machines: HashSet<i64>,
}

impl RunQueue {
    /// Nothing starts before this time.
    pub fn open(&mut self) {
        self.is_open = true;
    }

    /// Whether there was space.
    pub fn push(&mut self, run: WaitingRun) -> bool {
        let own = self.waiting.entry(run.account.clone()).or_default();
        let room = own.len() < MOST_WAITING;
        if room {
            own.push_back(run);
        }
        room
    }

    /// The run that starts now. It counts as running until `ended`.
    pub fn next(&mut self) -> Option<WaitingRun> {
        if !self.is_open || self.running.values().map(HashSet::len).sum::<usize>() >= MOST_RUNNING {
            return None;
        }
        let is_free =
            |run: &WaitingRun| run.line().is_none_or(|line| !self.sessions.contains_key(&line));
        let ready = |run: &WaitingRun| is_free(run) && self.group_has_room(run);
        let places = self.waiting.iter().filter_map(|(account, runs)| {
            let at = runs.iter().position(ready)?;
            Some((self.running.get(account).map_or(0, HashSet::len), account.clone(), at))
        });
        let (_, account, at) = places.min()?;
        let own = self.waiting.get_mut(&account)?;
        let run = own.remove(at)?;
        if own.is_empty() {
            self.waiting.remove(&account);
        }
        self.began(&run);
        Some(run)
    }

    fn group_has_room(&self, run: &WaitingRun) -> bool {
        let Some(group) = &run.group else { return true };
        let now = run.group().and_then(|key| self.groups.get(&key)).map_or(0, HashSet::len);
        now < group.most
    }

    /// A run that an earlier process had started.
    pub fn began(&mut self, run: &WaitingRun) {
        self.running.entry(run.account.clone()).or_default().insert(run.id.clone());
        self.sessions.extend(run.line().map(|line| (line, run.id.clone())));
        if let Some(group) = run.group() {
            self.groups.entry(group).or_default().insert(run.id.clone());
        }
    }

    /// A run has ended. Calling this again has no effect.
    pub fn ended(&mut self, run: &WaitingRun) {
        if let Some(own) = self.running.get_mut(&run.account) {
            own.remove(&run.id);
            if own.is_empty() {
                self.running.remove(&run.account);
            }
        }
        if let Some(line) = run.line()
            && self.sessions.get(&line).is_some_and(|id| *id == run.id)
        {
            self.sessions.remove(&line);
        }
        if let Some(group) = run.group()
            && let Some(own) = self.groups.get_mut(&group)
        {
            own.remove(&run.id);
            if own.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    /// Removes a run that has not started. Whether it existed.
    pub fn withdraw(&mut self, account: &str, id: &str) -> bool {
        let Some(own) = self.waiting.get_mut(account) else { return false };
        let before = own.len();
        own.retain(|run| run.id != id);
        before != own.len()
    }

    /// Reserves a machine for one run. Whether it was free.
    pub fn take_machine(&mut self, number: i64) -> bool {
        self.machines.insert(number)
    }

    pub fn free_machine(&mut self, number: i64) {
        self.machines.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(account: &str, id: &str, session: Option<&str>) -> WaitingRun {
        let session = session.map(str::to_owned);
        WaitingRun { account: account.into(), id: id.into(), session, group: None }
    }

    #[test]
    fn a_group_has_its_own_maximum() {
        let mut queue = RunQueue::default();
        let of = |account: &str, id: &str, name: &str| {
            let group = Some(RunGroup { name: name.into(), most: 2 });
            WaitingRun { group, ..run(account, id, None) }
        };
        for id in ["1", "2", "3"] {
            queue.push(of("a", id, "x"));
        }
        for (account, name) in [("a", "y"), ("b", "x")] {
            queue.push(of(account, &format!("{account}{name}"), name));
        }
        queue.push(run("a", "free", None));
        queue.open();
        let mut ids: Vec<_> = std::iter::from_fn(|| queue.next()).map(|run| run.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["1", "2", "ay", "bx", "free"]);
        for _ in 0..2 {
            queue.ended(&of("a", "1", "x"));
        }
        assert_eq!(queue.next().map(|run| run.id).as_deref(), Some("3"));
        assert_eq!(queue.next(), None);
        ["2", "3"].iter().for_each(|id| queue.ended(&of("a", id, "x")));
        assert_eq!(queue.groups.len(), 2, "empty groups are not kept");
    }

    #[test]
    fn a_session_is_a_line_and_accounts_take_turns() {
        let mut queue = RunQueue::default();
        for (account, id, session) in [
            ("a", "1", Some("s")),
            ("a", "2", Some("s")),
            ("a", "3", Some("t")),
            ("b", "4", Some("s")),
        ] {
            assert!(queue.push(run(account, id, session)));
        }
        assert_eq!(queue.next(), None, "it is not open yet");
        queue.open();
        let ids: Vec<_> = std::iter::from_fn(|| queue.next()).map(|run| run.id).collect();
        assert_eq!(ids, ["1", "4", "3"]);
        queue.ended(&run("a", "1", Some("s")));
        assert_eq!(queue.next().map(|run| run.id).as_deref(), Some("2"));
        assert_eq!(queue.next(), None);
    }

    /// An abandoned run ends again when its thread continues.
    #[test]
    fn a_turn_ends_once() {
        let mut queue = RunQueue::default();
        for id in ["1", "2", "3"] {
            queue.push(run("a", id, Some("s")));
        }
        queue.open();
        assert_eq!(queue.next().map(|run| run.id).as_deref(), Some("1"));
        queue.ended(&run("a", "1", Some("s")));
        assert_eq!(queue.next().map(|run| run.id).as_deref(), Some("2"));
        queue.ended(&run("a", "1", Some("s")));
        assert_eq!(queue.next(), None, "the second run is under way");
        queue.ended(&run("a", "2", Some("s")));
        assert_eq!(queue.next().map(|run| run.id).as_deref(), Some("3"));
    }

    #[test]
    fn a_run_that_waits_can_be_withdrawn() {
        let mut queue = RunQueue::default();
        queue.push(run("a", "1", None));
        assert!(!queue.withdraw("b", "1"));
        assert!(queue.withdraw("a", "1"));
        queue.open();
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn there_are_bounds() {
        let mut queue = RunQueue::default();
        for id in 0..MOST_WAITING {
            assert!(queue.push(run("a", &id.to_string(), None)));
        }
        assert!(!queue.push(run("a", "more", None)));
        assert!(queue.push(run("b", "other", None)));
        queue.open();
        assert_eq!(std::iter::from_fn(|| queue.next()).count(), MOST_RUNNING);
    }
}
