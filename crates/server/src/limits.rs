//! Bounds on what clients can make the service do at once.

use crate::failure::{Failure, Result};
use stasis_api::Problem;
use stasis_machine::Machine;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies: code, and everything else.
pub const CODE: usize = 32 << 20;
pub const SMALL: usize = 1 << 20;
/// Instructions of one account that may run or wait.
const PENDING: usize = 10_000;
/// WebSockets open at once.
const SOCKETS: i64 = 8192;
/// Calls that block: at once, and waiting for their turn.
const AT_ONCE: usize = 64;
const WAITING: usize = 8192;

/// Whether one more WebSocket may open.
pub fn room_for_socket(open: i64) -> Result<()> {
    if open < SOCKETS {
        return Ok(());
    }
    let said = "too many WebSockets are open";
    Err(Failure::new(Problem::Unavailable, "service.overloaded", said))
}

/// Blocking work, first come, first served.
pub struct Turns {
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Turns {
    pub fn new() -> Turns {
        Turns { turns: Arc::new(Semaphore::new(AT_ONCE)), waiting: AtomicUsize::new(0) }
    }

    pub async fn take(&self) -> Result<OwnedSemaphorePermit> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let said = "too many requests wait for their turn";
            return Err(Failure::new(Problem::Unavailable, "service.overloaded", said));
        }
        let _waits = Waits(&self.waiting);
        self.turns.clone().acquire_owned().await.map_err(|_| Failure::stopping())
    }
}

/// Counted back even if the client leaves while it waits.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Machines with something to do, by account and number.
type Busy = HashMap<String, HashMap<i64, Arc<Machine>>>;

/// How much an account may have waiting.
pub struct Quota {
    busy: Mutex<Busy>,
}

impl Quota {
    pub fn new() -> Quota {
        Quota { busy: Mutex::default() }
    }

    /// Whether the account may submit one more on this machine.
    pub fn admit(&self, account: &str, machine: &Arc<Machine>) -> Result<()> {
        let mut busy = self.busy.lock().unwrap_or_else(|poison| poison.into_inner());
        let machines = busy.entry(account.to_owned()).or_default();
        machines.retain(|_, machine| machine.pending() > 0);
        machines.insert(machine.number(), machine.clone());
        let pending: usize = machines.values().map(|machine| machine.pending()).sum();
        if pending < PENDING {
            return Ok(());
        }
        let said = format!("account `{account}` has {pending} instructions waiting");
        let failure = Failure::new(Problem::TooMany, "account.queue_full", said);
        Err(failure.hint("wait for some to end, or cancel what waits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_come_back() {
        let turns = Turns::new();
        let first = turns.take().await.expect("a turn");
        assert_eq!(turns.turns.available_permits(), AT_ONCE - 1);
        drop(first);
        assert_eq!(turns.turns.available_permits(), AT_ONCE);
        assert_eq!(turns.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn those_who_would_wait_too_long_are_sent_away() {
        let turns = Turns::new();
        turns.waiting.store(WAITING, Ordering::Relaxed);
        let sent_away = turns.take().await.expect_err("no turn");
        assert_eq!(sent_away.problem, Problem::Unavailable);
    }
}
