//! A fair queue for blocking work: bounded concurrency, shared between accounts.
//!
//!   account a: ● ● ● ● ●  ┐
//!   account b: ●          ├─ one of each in turn ──► at most 64 at once
//!   account c: ● ●        ┘
//!
//! A request that finds all slots taken waits only behind requests of its own account. Past a
//! bound, requests are refused and may be retried.

use crate::failure::{HttpFailure, Result};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Blocking calls: running at once, and waiting.
const AT_ONCE: usize = 64;
const WAITING: usize = 8192;

#[derive(Clone)]
pub struct AccountQueue(Arc<Mutex<Queue>>);

struct Queue {
    free: usize,
    waiting: usize,
    /// By account, in the order of arrival.
    lines: HashMap<String, VecDeque<oneshot::Sender<AccountTurn>>>,
    /// Waiting accounts, the next one first.
    next: VecDeque<String>,
}

/// One slot, until dropped.
pub struct AccountTurn(Option<AccountQueue>);

impl AccountQueue {
    pub fn new() -> AccountQueue {
        let (lines, next) = (HashMap::new(), VecDeque::new());
        AccountQueue(Arc::new(Mutex::new(Queue { free: AT_ONCE, waiting: 0, lines, next })))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock()
    }

    /// Waits for a slot. A request that is dropped while it waits is skipped.
    pub async fn take(&self, account: &str) -> Result<AccountTurn> {
        let turn = {
            let mut queue = self.queue();
            if queue.free > 0 {
                queue.free -= 1;
                return Ok(AccountTurn(Some(self.clone())));
            }
            if queue.waiting >= WAITING {
                let said = "too many requests are waiting";
                return Err(HttpFailure::overloaded(said));
            }
            queue.wait(account)
        };
        turn.await.map_err(|_| HttpFailure::stopping())
    }
}

impl Queue {
    fn wait(&mut self, account: &str) -> oneshot::Receiver<AccountTurn> {
        let (give, get) = oneshot::channel();
        self.waiting += 1;
        let line = self.lines.entry(account.to_owned()).or_default();
        if line.is_empty() {
            self.next.push_back(account.to_owned());
        }
        line.push_back(give);
        get
    }

    /// The first waiting request of the next account.
    fn call(&mut self) -> Option<oneshot::Sender<AccountTurn>> {
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

impl Drop for AccountTurn {
    fn drop(&mut self) {
        let Some(all) = self.0.take() else { return };
        loop {
            let called = {
                let mut queue = all.queue();
                let called = queue.call();
                queue.free += usize::from(called.is_none());
                called
            };
            let Some(called) = called else { return };
            match called.send(AccountTurn(Some(all.clone()))) {
                Ok(()) => return,
                // they were dropped: try the next account, without releasing the slot in between
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
    async fn slots_come_back() {
        let accounts = AccountQueue::new();
        let first = accounts.take("a").await.expect("a turn");
        assert_eq!(accounts.queue().free, AT_ONCE - 1);
        drop(first);
        assert_eq!(accounts.queue().free, AT_ONCE);
    }

    #[tokio::test]
    async fn accounts_take_turns() {
        let accounts = AccountQueue::new();
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE {
            taken.push(accounts.take("a").await.expect("a turn"));
        }
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for account in ["a", "a", "a", "a", "b", "c", "b"] {
            let (accounts, own) = (accounts.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let turn = accounts.take(account).await.expect("a turn");
                own.lock().push(account);
                drop(turn);
            }));
            tokio::task::yield_now().await;
        }
        // a dropped request is skipped, and costs the account its slot
        tasks.remove(1).abort();
        tokio::task::yield_now().await;
        drop(taken.pop());
        for task in tasks {
            task.await.expect("done");
        }
        assert_eq!(*order.lock(), ["a", "b", "c", "b", "a", "a"]);
        drop(taken);
        let queue = accounts.queue();
        assert_eq!((queue.free, queue.waiting), (AT_ONCE, 0));
    }

    #[tokio::test]
    async fn those_who_would_wait_too_long_are_sent_away() {
        let accounts = AccountQueue::new();
        accounts.queue().free = 0;
        accounts.queue().waiting = WAITING;
        let sent_away = accounts.take("a").await.err().expect("no turn");
        assert_eq!(sent_away.problem, Problem::Unavailable);
    }
}
