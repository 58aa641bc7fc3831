//! A fair queue for captures, restores and other expensive work, shared between owners.
//!
//! A capture waits for the threads it stops, which need a processor for that. More captures at
//! once than there are processors to serve them stop each other's trees for longer and finish no
//! sooner, so the rest wait in this queue. A waiting tree keeps running.
//!
//!   free turn ─► the owner who has the fewest turns now, among those the one served longest ago
//!             ─► of that owner, the one that waited longest
//!
//! So one owner with hundreds of machines delays another by no more than the turns that are being
//! used. A turn that is held for longer than anything should take no longer counts, so a
//! hung capture does not delay others.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than any capture takes that ends at all.
const OVERDUE: Duration = Duration::from_secs(60);

pub struct FairQueue {
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
    /// Active entries: the account, and since when.
    taken: BTreeMap<u64, (String, Instant)>,
    waiting: HashMap<String, VecDeque<Waiter>>,
    /// When each waiting or active account was last served.
    last: HashMap<String, u64>,
}

/// Its number, and what wakes it. Only the next waiter is woken.
#[derive(Clone)]
struct Waiter(u64, Arc<Condvar>);

/// One turn, until it is dropped.
pub struct QueueTurn<'a>(&'a FairQueue, u64);

impl State {
    /// How many turns are used, by all owners or by one. Overdue turns do not count.
    fn used(&self, owner: Option<&str>, overdue: Duration, now: Instant) -> usize {
        let counts = |(own, since): &&(String, Instant)| {
            owner.is_none_or(|owner| own == owner) && now.duration_since(*since) < overdue
        };
        self.taken.values().filter(counts).count()
    }

    /// The waiter that gets the next turn, if a turn is free.
    fn first(&self, queue: &FairQueue, now: Instant) -> Option<Waiter> {
        if self.used(None, queue.overdue, now) >= queue.all {
            return None;
        }
        let rank = |(owner, waiting): (&String, &VecDeque<Waiter>)| {
            let last = self.last.get(owner).copied().unwrap_or(0);
            let waiter = waiting.front()?.clone();
            Some(((self.used(Some(owner), queue.overdue, now), last, waiter.0), waiter))
        };
        let ranked = self.waiting.iter().filter_map(rank);
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, waiter)| waiter)
    }

    fn wake_first(&self, queue: &FairQueue) {
        if let Some(Waiter(_, wakeup)) = self.first(queue, Instant::now()) {
            wakeup.notify_one();
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

    /// Forgets owners that neither wait nor have a turn.
    fn forget_idle(&mut self) {
        const MOST: usize = 1024;
        if self.last.len() > MOST {
            let (waiting, taken) = (&self.waiting, &self.taken);
            let has = |owner: &String| taken.values().any(|(own, _)| own == owner);
            self.last.retain(|owner, _| waiting.contains_key(owner) || has(owner));
        }
    }
}

impl FairQueue {
    /// As many at once as this host can serve: while one writes to disk another computes.
    pub fn for_this_host() -> FairQueue {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        FairQueue::new(2 * processors)
    }

    /// Restores wait for other processes more than captures do.
    pub fn for_restores() -> FairQueue {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        FairQueue::new(4 * processors)
    }

    /// As many at once as the caller says.
    pub fn new(all: usize) -> FairQueue {
        FairQueue { all, overdue: OVERDUE, state: Mutex::default() }
    }

    /// Whether a tree may be standing still: what can wait should not take its processors.
    pub fn any_taken(&self) -> bool {
        !self.state().taken.is_empty()
    }

    pub fn take(&self, owner: &str) -> QueueTurn<'_> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let wakeup = Arc::new(Condvar::new());
        let waiter = Waiter(number, wakeup.clone());
        state.waiting.entry(owner.to_owned()).or_default().push_back(waiter);
        loop {
            let now = Instant::now();
            if state.first(self, now).is_some_and(|first| first.0 == number) {
                state.give(owner, number, now);
                state.forget_idle();
                // there may be a turn for the next one, too
                state.wake_first(self);
                return QueueTurn(self, number);
            }
            // looks again when one may have become overdue
            wakeup.wait_for(&mut state, self.overdue);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl QueueTurn<'_> {
    /// Whether no other turn is taken or waited for.
    pub fn is_alone(&self) -> bool {
        let state = self.0.state();
        state.taken.len() <= 1 && state.waiting.is_empty()
    }
}

impl Drop for QueueTurn<'_> {
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
        let queue = FairQueue::new(2);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (queue, inside, most) = (&queue, &inside, &most);
                scope.spawn(move || {
                    for _ in 0..100 {
                        let _turn = queue.take(["a", "b", "c"][thread % 3]);
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 2);
        assert!(!queue.any_taken());
    }

    fn waiting(queue: &FairQueue) -> usize {
        queue.state().waiting.values().map(VecDeque::len).sum()
    }

    /// One owner has a hundred waiting when another comes with one: that one is next.
    #[test]
    fn a_crowd_of_one_owner_does_not_delay_another() {
        let queue = FairQueue::new(1);
        let held = queue.take("crowd");
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let wait = |owner: &'static str| {
                let (queue, tell, before) = (&queue, tell.clone(), waiting(&queue));
                scope.spawn(move || {
                    let _turn = queue.take(owner);
                    tell.send(owner).expect("somebody listens");
                });
                while waiting(queue) == before {
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
        let mut queue = FairQueue::new(1);
        queue.overdue = Duration::from_millis(20);
        let hung = queue.take("hung");
        let next = queue.take("next");
        assert!(!next.is_alone());
        drop(hung);
        assert!(next.is_alone());
        drop(next);
        assert!(!queue.any_taken());
    }
}
