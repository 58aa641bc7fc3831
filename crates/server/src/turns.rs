//! Turns for work that blocks: a bounded number at once, shared fairly between accounts.
//!
//!   account a: ● ● ● ● ●  ┐
//!   account b: ●          ├─ one of each in turn ──► at most 64 at once
//!   account c: ● ●        ┘
//!
//! Who comes when all turns are taken waits behind the others of the same account only. Beyond a
//! bound nobody waits: they are told to come again.

use crate::failure::{Failure, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// Calls that block: at once, and waiting for their turn.
const AT_ONCE: usize = 64;
const WAITING: usize = 8192;

#[derive(Clone)]
pub struct Turns(Arc<Mutex<Queue>>);

struct Queue {
    free: usize,
    waiting: usize,
    /// By account, in the order of arrival.
    lines: HashMap<String, VecDeque<oneshot::Sender<Turn>>>,
    /// Accounts that wait, the next first.
    next: VecDeque<String>,
}

/// Somebody's turn, until it is dropped.
pub struct Turn(Option<Turns>);

impl Turns {
    pub fn new() -> Turns {
        let (lines, next) = (HashMap::new(), VecDeque::new());
        Turns(Arc::new(Mutex::new(Queue { free: AT_ONCE, waiting: 0, lines, next })))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Waits for a turn. Who goes away while waiting is passed over.
    pub async fn take(&self, account: &str) -> Result<Turn> {
        let turn = {
            let mut queue = self.queue();
            if queue.free > 0 {
                queue.free -= 1;
                return Ok(Turn(Some(self.clone())));
            }
            if queue.waiting >= WAITING {
                let said = "too many requests wait for their turn";
                return Err(Failure::overloaded(said));
            }
            queue.wait(account)
        };
        turn.await.map_err(|_| Failure::stopping())
    }
}

impl Queue {
    fn wait(&mut self, account: &str) -> oneshot::Receiver<Turn> {
        let (give, get) = oneshot::channel();
        self.waiting += 1;
        let line = self.lines.entry(account.to_owned()).or_default();
        if line.is_empty() {
            self.next.push_back(account.to_owned());
        }
        line.push_back(give);
        get
    }

    /// The first who waits of the account whose turn it is.
    fn call(&mut self) -> Option<oneshot::Sender<Turn>> {
        let account = self.next.pop_front()?;
        let line = self.lines.get_mut(&account)?;
        let first = line.pop_front();
        self.waiting -= usize::from(first.is_some());
        match line.is_empty() {
            true => drop(self.lines.remove(&account)),
            false => self.next.push_back(account),
        }
        first
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        loop {
            let called = {
                let mut queue = turns.queue();
                let called = queue.call();
                queue.free += usize::from(called.is_none());
                called
            };
            let Some(called) = called else { return };
            match called.send(Turn(Some(turns.clone()))) {
                Ok(()) => return,
                // they went away: the next one's, without giving the turn back on the way
                Err(mut unwanted) => drop(unwanted.0.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_api::Problem;

    #[tokio::test]
    async fn turns_come_back() {
        let turns = Turns::new();
        let first = turns.take("a").await.expect("a turn");
        assert_eq!(turns.queue().free, AT_ONCE - 1);
        drop(first);
        assert_eq!(turns.queue().free, AT_ONCE);
    }

    #[tokio::test]
    async fn accounts_take_turns() {
        let turns = Turns::new();
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE {
            taken.push(turns.take("a").await.expect("a turn"));
        }
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for account in ["a", "a", "a", "a", "b", "c", "b"] {
            let (turns, own) = (turns.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let turn = turns.take(account).await.expect("a turn");
                own.lock().expect("a list").push(account);
                drop(turn);
            }));
            tokio::task::yield_now().await;
        }
        // one who does not wait any longer is passed over, and costs the account its turn
        tasks.remove(1).abort();
        tokio::task::yield_now().await;
        drop(taken.pop());
        for task in tasks {
            task.await.expect("done");
        }
        assert_eq!(*order.lock().expect("a list"), ["a", "b", "c", "b", "a", "a"]);
        drop(taken);
        let queue = turns.queue();
        assert_eq!((queue.free, queue.waiting), (AT_ONCE, 0));
    }

    #[tokio::test]
    async fn those_who_would_wait_too_long_are_sent_away() {
        let turns = Turns::new();
        turns.queue().free = 0;
        turns.queue().waiting = WAITING;
        let sent_away = turns.take("a").await.err().expect("no turn");
        assert_eq!(sent_away.problem, Problem::Unavailable);
    }
}
