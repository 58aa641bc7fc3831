//! Bounds on what clients can make the service do at once.

use crate::failure::{Failure, Result};
use stasis_api::Problem;
use stasis_machine::Machine;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Bodies: code, and everything else.
pub const CODE: usize = 32 << 20;
pub const SMALL: usize = 1 << 20;
/// Instructions of one account that may run or wait.
const PENDING: usize = 10_000;
/// WebSockets open at once.
const SOCKETS: i64 = 8192;

/// Whether one more WebSocket may open.
pub fn room_for_socket(open: i64) -> Result<()> {
    if open < SOCKETS {
        return Ok(());
    }
    let said = "too many WebSockets are open";
    Err(Failure::new(Problem::Unavailable, "service.overloaded", said))
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
