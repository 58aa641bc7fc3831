//! Taking turns at captures and restores, fairly between owners.
//!
//! A capture waits for the threads it stops, which need a processor for that. More captures at
//! once than there are processors to serve them stop each other's trees for longer and finish no
//! sooner, so the rest wait until it is their turn. Nobody is stopped while waiting.
//!
//!   free turn ─► the owner who has the fewest turns now, among those the one served longest ago
//!             ─► of that owner, whoever waited longest
//!
//! So one owner with hundreds of machines delays another by no more than the turns that are being
//! used. A turn that is held for longer than anything should take counts no more: whoever hangs
//! costs others nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longer than any capture takes that ends at all.
const OVERDUE: Duration = Duration::from_secs(60);

pub struct Turns {
    all: usize,
    overdue: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Numbers of waiters and holders, in the order they came.
    next: u64,
    /// Counts how often a turn was given.
    served: u64,
    /// Those who have a turn: whose it is, and since when.
    taken: BTreeMap<u64, (String, Instant)>,
    waiting: HashMap<String, VecDeque<Waiter>>,
    /// When those who wait or have a turn were served last.
    last: HashMap<String, u64>,
}

/// Its number, and what wakes it: only whoever is next is woken.
#[derive(Clone)]
struct Waiter(u64, Arc<Condvar>);

/// One turn, until it is dropped.
pub struct Turn<'a>(&'a Turns, u64);

impl State {
    /// How many turns are used, by everybody or by one owner. Overdue ones are not.
    fn used(&self, owner: Option<&str>, overdue: Duration, now: Instant) -> usize {
        let counts = |(own, since): &&(String, Instant)| {
            owner.is_none_or(|owner| own == owner) && now.duration_since(*since) < overdue
        };
        self.taken.values().filter(counts).count()
    }

    /// Who gets the next turn, if there is one for somebody.
    fn first(&self, turns: &Turns, now: Instant) -> Option<Waiter> {
        if self.used(None, turns.overdue, now) >= turns.all {
            return None;
        }
        let rank = |(owner, queue): (&String, &VecDeque<Waiter>)| {
            let last = self.last.get(owner).copied().unwrap_or(0);
            let waiter = queue.front()?.clone();
            Some(((self.used(Some(owner), turns.overdue, now), last, waiter.0), waiter))
        };
        let ranked = self.waiting.iter().filter_map(rank);
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, waiter)| waiter)
    }

    fn wake_first(&self, turns: &Turns) {
        if let Some(Waiter(_, bell)) = self.first(turns, Instant::now()) {
            bell.notify_one();
        }
    }

    fn give(&mut self, owner: &str, number: u64, now: Instant) {
        if let Some(queue) = self.waiting.get_mut(owner) {
            queue.retain(|waiter| waiter.0 != number);
            if queue.is_empty() {
                self.waiting.remove(owner);
            }
        }
        self.served += 1;
        self.last.insert(owner.to_owned(), self.served);
        self.taken.insert(number, (owner.to_owned(), now));
    }

    /// Forgets owners who neither wait nor have a turn: it does not matter who they were.
    fn forget_idle(&mut self) {
        const MOST: usize = 1024;
        if self.last.len() > MOST {
            let (waiting, taken) = (&self.waiting, &self.taken);
            let has = |owner: &String| taken.values().any(|(own, _)| own == owner);
            self.last.retain(|owner, _| waiting.contains_key(owner) || has(owner));
        }
    }
}

impl Turns {
    /// As many at once as this host can serve: while one writes to disk another computes.
    pub fn for_this_host() -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Turns::new(2 * processors)
    }

    /// Restores wait for other processes more than captures do.
    pub fn for_restores() -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Turns::new(4 * processors)
    }

    fn new(all: usize) -> Turns {
        Turns { all, overdue: OVERDUE, state: Mutex::default() }
    }

    /// Whether a tree may be standing still: what can wait should not take its processors.
    pub fn any_taken(&self) -> bool {
        !self.state().taken.is_empty()
    }

    pub fn take(&self, owner: &str) -> Turn<'_> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let bell = Arc::new(Condvar::new());
        let waiter = Waiter(number, bell.clone());
        state.waiting.entry(owner.to_owned()).or_default().push_back(waiter);
        loop {
            let now = Instant::now();
            if state.first(self, now).is_some_and(|first| first.0 == number) {
                state.give(owner, number, now);
                state.forget_idle();
                // there may be a turn for the next one, too
                state.wake_first(self);
                return Turn(self, number);
            }
            // looks again when one may have become overdue
            let waited = bell.wait_timeout(state, self.overdue);
            state = waited.unwrap_or_else(|poison| poison.into_inner()).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.taken.remove(&self.1);
        state.wake_first(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[test]
    fn no_more_at_once_than_there_are_turns() {
        let turns = Turns::new(2);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (turns, inside, most) = (&turns, &inside, &most);
                scope.spawn(move || {
                    for _ in 0..100 {
                        let _turn = turns.take(["a", "b", "c"][thread % 3]);
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 2);
        assert!(!turns.any_taken());
    }

    fn waiting(turns: &Turns) -> usize {
        turns.state().waiting.values().map(VecDeque::len).sum()
    }

    /// One owner has a hundred waiting when another comes with one: that one is next.
    #[test]
    fn a_crowd_of_one_owner_does_not_delay_another() {
        let turns = Turns::new(1);
        let held = turns.take("crowd");
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let wait = |owner: &'static str| {
                let (turns, tell, before) = (&turns, tell.clone(), waiting(&turns));
                scope.spawn(move || {
                    let _turn = turns.take(owner);
                    tell.send(owner).expect("somebody listens");
                });
                while waiting(turns) == before {
                    std::thread::yield_now();
                }
            };
            (0..100).for_each(|_| wait("crowd"));
            (0..3).for_each(|_| wait("other"));
            drop(held);
        });
        let order: Vec<&str> = told.try_iter().collect();
        let places: Vec<usize> = (0..order.len()).filter(|at| order[*at] == "other").collect();
        // in turn, and the crowd was served last
        assert_eq!((order.len(), places), (103, vec![0, 2, 4]), "{order:?}");
    }

    #[test]
    fn a_turn_that_is_never_given_back_does_not_count_for_ever() {
        let mut turns = Turns::new(1);
        turns.overdue = Duration::from_millis(20);
        let hung = turns.take("hung");
        let next = turns.take("next");
        drop((hung, next));
        assert!(!turns.any_taken());
    }
}
