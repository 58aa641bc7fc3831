//! What an account may have: machines, memory, instructions, disk.
//!
//!   submit ─┐                       ┌─► refused: 429, and idle machines leave memory
//!   wake ───┤                       │
//!   update ─┼─► the account's turn ─┤
//!   create ─┘                       └─► done, before the next of the account is looked at
//!
//! Looked at where something is added, so that no way in goes around it. Memory counts as what
//! machines in memory, or on their way there, may take; when it is used up, the account's own
//! machines that do nothing leave memory, so that a second try succeeds. Disk counts what
//! checkpoints added to the store, and artifacts. Code that waits is held in memory, so its bytes
//! are bounded too, for every account.

use crate::error::{Error, Result};
use crate::host::{Host, Inner};
use crate::machine::Machine;
use stasis_api::{Limits, State};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The account that runs the service, which nothing is refused but a queue without end.
const FIRST: &str = "root";
/// Instructions of one account that may run or wait, whatever its quota.
const PENDING: u64 = 10_000;
/// Bytes of code of one account that may wait, whatever its quota.
const PENDING_CODE: u64 = 128 << 20;

/// Absent means no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    pub machines: Option<u64>,
    pub memory_mb: Option<u64>,
    /// That run or wait.
    pub instructions: Option<u64>,
    pub disk_mb: Option<u64>,
}

/// What an account has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub machines: u64,
    pub memory_mb: u64,
    pub instructions: u64,
}

type Members = HashMap<i64, Weak<Machine>>;

/// The machines of each account.
#[derive(Default)]
pub(crate) struct Accounts(Mutex<HashMap<String, Arc<Account>>>);

#[derive(Default)]
pub(crate) struct Account {
    members: Mutex<Members>,
    /// Those that have had something to do since it was last asked.
    busy: Mutex<Members>,
    turn: Mutex<()>,
    /// What machines in memory may still take while a lower limit is on its way to them, in MB.
    held: Mutex<Vec<(i64, u64)>>,
}

/// A machine counts with this much memory as long as this lives, whatever its record says.
pub(crate) struct Held {
    account: Arc<Account>,
    machine: i64,
    mb: u64,
}

impl Held {
    fn new(account: Arc<Account>, machine: i64, mb: u64) -> Held {
        lock(&account.held).push((machine, mb));
        Held { account, machine, mb }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = lock(&self.account.held);
        if let Some(at) = held.iter().position(|one| *one == (self.machine, self.mb)) {
            held.swap_remove(at);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

impl Accounts {
    fn of(&self, account: &str) -> Arc<Account> {
        let mut all = lock(&self.0);
        match all.get(account) {
            Some(known) => known.clone(),
            None => all.entry(account.to_owned()).or_default().clone(),
        }
    }

    pub fn add(&self, machine: &Arc<Machine>) {
        let account = self.of(&machine.account());
        lock(&account.members).insert(machine.id.0, Arc::downgrade(machine));
    }

    pub fn remove(&self, machine: &Machine) {
        let account = self.of(&machine.account());
        lock(&account.members).remove(&machine.id.0);
    }
}

impl Account {
    fn machines(&self) -> Vec<Arc<Machine>> {
        lock(&self.members).values().filter_map(Weak::upgrade).collect()
    }

    /// Instructions that run or wait, and bytes of code that wait, if this machine is about to
    /// have one.
    fn pending_with(&self, machine: &Arc<Machine>) -> (u64, u64) {
        let mut busy = lock(&self.busy);
        let (mut pending, mut code) = (0, 0);
        let mut count = |machine: &Machine| {
            let own = machine.pending() as u64;
            pending += own;
            code += machine.waiting_code();
            own > 0
        };
        busy.retain(|_, machine| machine.upgrade().is_some_and(|machine| count(&machine)));
        busy.entry(machine.id.0).or_insert_with(|| {
            count(machine);
            Arc::downgrade(machine)
        });
        (pending, code)
    }

    /// What machines in memory, or on their way there, may take; but for one.
    fn memory_mb(&self, but: Option<&Machine>) -> u64 {
        let others =
            self.machines().into_iter().filter(|own| but.is_none_or(|but| own.id != but.id));
        let held = lock(&self.held);
        let there = others.filter(|own| is_there(own));
        let most = |own: Arc<Machine>| {
            let held = held.iter().filter(|(id, _)| *id == own.id.0).map(|(_, mb)| *mb).max();
            own.memory_mb().max(held).unwrap_or(0)
        };
        there.map(most).sum()
    }

    /// Moves machines that do nothing out of memory, without waiting for it.
    fn make_room(&self) {
        for machine in self.machines() {
            let idle = machine.state() == State::Ready && machine.pending() == 0;
            if idle {
                machine.wish(|driver| drop(driver.swap_out()));
            }
        }
    }
}

/// Whether a machine is in memory, or on its way there.
fn is_there(machine: &Machine) -> bool {
    machine.state() != State::Swapped || machine.pending() > 0
}

impl Inner {
    fn quota_of(&self, account: &str) -> Quota {
        if account == FIRST { Quota::default() } else { self.settings.quota }
    }

    /// Looks at an account and adds to what it has, one at a time where there is a bound: two who
    /// look at the same time would both fit.
    pub(crate) fn in_turn<T>(&self, name: &str, add: impl FnOnce() -> Result<T>) -> Result<T> {
        let account = self.accounts.of(name);
        let bounded = self.quota_of(name) != Quota::default();
        let _turn = bounded.then(|| lock(&account.turn));
        add()
    }

    /// Whether an account may make this many machines more.
    pub(crate) fn admit_machines(&self, name: &str, count: usize) -> Result<()> {
        let quota = self.quota_of(name);
        let over =
            |what, used, most| Err(Error::OverQuota { account: name.to_owned(), what, used, most });
        if let Some(most) = quota.machines {
            let used = self.accounts.of(name).machines().len() as u64;
            if used + count as u64 > most {
                return over("machines", used, most);
            }
        }
        if let Some(most) = quota.disk_mb {
            let used = self.store.disk_of(name)? >> 20;
            if used >= most {
                return over("MB on disk", used, most);
            }
        }
        Ok(())
    }

    /// Whether a machine may be given something to do.
    pub(crate) fn admit(&self, machine: &Arc<Machine>) -> Result<()> {
        let name = machine.account();
        let account = self.accounts.of(&name);
        let most = self.quota_of(&name).instructions.unwrap_or(PENDING).min(PENDING);
        let (used, code) = account.pending_with(machine);
        if used >= most {
            return Err(Error::OverQuota { account: name, what: "instructions", used, most });
        }
        if code >= PENDING_CODE {
            let (what, used, most) = ("MB of code that waits", code >> 20, PENDING_CODE >> 20);
            return Err(Error::OverQuota { account: name, what, used, most });
        }
        if self.quota_of(&name) == Quota::default() {
            return Ok(());
        }
        self.admit_machines(&name, 0)?;
        self.admit_memory(machine)
    }

    /// Whether a machine may come into memory, unless it is there.
    pub(crate) fn admit_memory(&self, machine: &Machine) -> Result<()> {
        let name = machine.account();
        let Some(most) = self.quota_of(&name).memory_mb else { return Ok(()) };
        if is_there(machine) {
            return Ok(());
        }
        self.fits_memory(name, machine, machine.memory_mb().unwrap_or(0), most)
    }

    /// Whether a machine's memory limit may become another one. One that is out of memory may have
    /// any: it is looked at when it comes back. The machine counts with the higher of the two
    /// limits until what this gives is dropped, which is when the new one is in force.
    pub(crate) fn admit_memory_change(&self, machine: &Machine, limits: Limits) -> Result<Held> {
        let name = machine.account();
        let account = self.accounts.of(&name);
        let old = machine.memory_mb().unwrap_or(0);
        let new = limits.or(self.settings.limits).memory_mb.unwrap_or(0);
        if let Some(most) = self.quota_of(&name).memory_mb
            && new > old
            && is_there(machine)
        {
            self.fits_memory(name, machine, new, most)?;
        }
        Ok(Held::new(account, machine.id.0, old.max(new)))
    }

    /// Whether a machine with this memory fits beside the account's others that are in memory.
    fn fits_memory(&self, name: String, machine: &Machine, own: u64, most: u64) -> Result<()> {
        let account = self.accounts.of(&name);
        let used = account.memory_mb(Some(machine));
        if used.saturating_add(own) <= most {
            return Ok(());
        }
        account.make_room();
        Err(Error::OverQuota { account: name, what: "MB of memory", used, most })
    }
}

impl Host {
    /// What an account has, but for its disk.
    pub fn used(&self, account: &str) -> Used {
        let account = self.inner().accounts.of(account);
        let machines = account.machines();
        Used {
            machines: machines.len() as u64,
            memory_mb: account.memory_mb(None),
            instructions: machines.iter().map(|machine| machine.pending() as u64).sum(),
        }
    }

    /// Whether an account may give one of its machines something to do.
    pub fn admit(&self, machine: &Arc<Machine>) -> Result<()> {
        self.inner().admit(machine)
    }
}
