//! Quotas of accounts: machines, memory, instructions, disk.
//!
//!   submit ─┐                       ┌─► refused: 429, and idle machines leave memory
//!   wake ───┤                       │
//!   update ─┼─► the account's turn ─┤
//!   create ─┘                       └─► counted, before the next of the account is looked at
//!
//! Quotas are checked where something is added, so no entry point bypasses them. Memory counts the
//! limits of machines that are in memory or entering it. When it is used up, the account's idle
//! machines are swapped out, so a retry succeeds. Disk counts the data that checkpoints added to
//! the store, and artifacts. Queued code is held in memory, so its bytes are bounded for every
//! account.

use crate::action::{Action, ReplySender};
use crate::error::{Error, Result};
use crate::host::{Host, HostInner};
use crate::machine::Machine;
use parking_lot::Mutex;
use stasis_api::{Limits, State};
use stasis_policy::quota::{OverQuota, Quota};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Resources of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaUsage {
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
    /// Machines with work since the last query.
    busy: Mutex<Members>,
    turn: Mutex<()>,
    /// Machines that were admitted and are being recorded.
    coming: AtomicU64,
    /// Memory in MB that machines in memory may still use until a lower limit takes effect.
    held: Mutex<Vec<(i64, u64)>>,
}

/// Counts a machine with this much memory until dropped, regardless of its record.
pub(crate) struct MemoryReservation {
    account: Arc<Account>,
    machine: i64,
    mb: u64,
}

impl MemoryReservation {
    fn new(account: Arc<Account>, machine: i64, mb: u64) -> MemoryReservation {
        account.held.lock().push((machine, mb));
        MemoryReservation { account, machine, mb }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let mut held = self.account.held.lock();
        if let Some(at) = held.iter().position(|one| *one == (self.machine, self.mb)) {
            held.swap_remove(at);
        }
    }
}

/// Counts machines until dropped or until they are members themselves.
pub(crate) struct ExpectedMachines {
    account: Arc<Account>,
    count: u64,
}

impl Drop for ExpectedMachines {
    fn drop(&mut self) {
        self.account.coming.fetch_sub(self.count, Ordering::Relaxed);
    }
}

impl Accounts {
    fn of(&self, account: &str) -> Arc<Account> {
        let mut all = self.0.lock();
        match all.get(account) {
            Some(known) => known.clone(),
            None => all.entry(account.to_owned()).or_default().clone(),
        }
    }

    pub fn add(&self, machine: &Arc<Machine>) {
        let account = self.of(&machine.account());
        account.members.lock().insert(machine.id.0, Arc::downgrade(machine));
    }

    pub fn remove(&self, machine: &Machine) {
        let account = self.of(&machine.account());
        account.members.lock().remove(&machine.id.0);
    }
}

impl Account {
    fn machines(&self) -> Vec<Arc<Machine>> {
        self.members.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Instructions that run or wait, and bytes of waiting code, if this machine gets another one.
    fn pending_with(&self, machine: &Arc<Machine>) -> (u64, u64) {
        let mut busy = self.busy.lock();
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

    /// Memory limits of machines in memory or entering it, except one.
    fn memory_mb(&self, but: Option<&Machine>) -> u64 {
        let others =
            self.machines().into_iter().filter(|own| but.is_none_or(|but| own.id != but.id));
        let held = self.held.lock();
        let there = others.filter(|own| is_there(own));
        let most = |own: Arc<Machine>| {
            let held = held.iter().filter(|(id, _)| *id == own.id.0).map(|(_, mb)| *mb).max();
            own.memory_mb().max(held).unwrap_or(0)
        };
        there.map(most).sum()
    }

    /// Swaps out idle machines, without waiting.
    fn make_room(&self) {
        for machine in self.machines() {
            let idle = machine.state() == State::Ready && machine.pending() == 0;
            if idle {
                // a machine that is being removed frees memory as well
                let _ = machine.post(Action::SwapOut(ReplySender::discarded()));
            }
        }
    }
}

/// Whether a machine is in memory or entering it.
fn is_there(machine: &Machine) -> bool {
    let work = machine.work();
    work.state().takes_memory() || work.pending() > 0
}

impl HostInner {
    pub(crate) fn quota_of(&self, account: &str) -> Quota {
        self.settings.quota.of(account)
    }

    /// Reads an account's usage and adds to it, one caller at a time where there is a bound: two
    /// concurrent callers would both fit. Slow work, such as recording, follows afterwards.
    pub(crate) fn in_turn<T>(&self, name: &str, add: impl FnOnce() -> Result<T>) -> Result<T> {
        let account = self.accounts.of(name);
        let bounded = self.quota_of(name).is_bounded();
        let _turn = bounded.then(|| account.turn.lock());
        add()
    }

    /// Admits this many new machines to an account, if its quota allows. They count until the
    /// returned value is dropped, when they exist or were not recorded.
    pub(crate) fn expect_machines(&self, name: &str, count: usize) -> Result<ExpectedMachines> {
        self.in_turn(name, || {
            self.admit_machines(name, count)?;
            let (account, count) = (self.accounts.of(name), count as u64);
            account.coming.fetch_add(count, Ordering::Relaxed);
            Ok(ExpectedMachines { account, count })
        })
    }

    /// Whether an account may create this many more machines.
    pub(crate) fn admit_machines(&self, name: &str, count: usize) -> Result<()> {
        let quota = self.quota_of(name);
        if quota.machines.is_some() {
            let account = self.accounts.of(name);
            let coming = account.coming.load(Ordering::Relaxed);
            let used = account.machines().len() as u64 + coming;
            quota.admit_machines(used, count as u64).map_err(|over| over_quota(name, over))?;
        }
        if quota.disk_mb.is_some() {
            let used = self.records.disk_of(name)? >> 20;
            quota.admit_disk(used).map_err(|over| over_quota(name, over))?;
        }
        Ok(())
    }

    /// Whether a machine may get more work.
    pub(crate) fn admit(&self, machine: &Arc<Machine>) -> Result<()> {
        let name = machine.account();
        let quota = self.quota_of(&name);
        let (used, code) = self.accounts.of(&name).pending_with(machine);
        quota.admit_instruction(used, code).map_err(|over| over_quota(&name, over))?;
        if !quota.is_bounded() {
            return Ok(());
        }
        self.admit_machines(&name, 0)?;
        self.admit_memory(machine)
    }

    /// Whether a machine may enter memory, unless it is there.
    pub(crate) fn admit_memory(&self, machine: &Machine) -> Result<()> {
        let name = machine.account();
        if self.quota_of(&name).memory_mb.is_none() || is_there(machine) {
            return Ok(());
        }
        self.fits_memory(&name, machine, machine.memory_mb().unwrap_or(0))
    }

    /// Whether a machine's memory limit may change. A machine out of memory may have any limit: it
    /// is checked when the machine returns. The machine counts with the higher of the two limits
    /// until the returned value is dropped, when the new one is in force.
    pub(crate) fn admit_memory_change(
        &self,
        machine: &Machine,
        limits: Limits,
    ) -> Result<MemoryReservation> {
        let name = machine.account();
        let old = machine.memory_mb().unwrap_or(0);
        let new = limits.or(self.settings.limits).memory_mb.unwrap_or(0);
        if new > old && is_there(machine) {
            self.fits_memory(&name, machine, new)?;
        }
        Ok(MemoryReservation::new(self.accounts.of(&name), machine.id.0, old.max(new)))
    }

    /// Whether a machine with this memory fits beside the account's other machines in memory.
    fn fits_memory(&self, name: &str, machine: &Machine, own: u64) -> Result<()> {
        let account = self.accounts.of(name);
        let used = account.memory_mb(Some(machine));
        let fits = self.quota_of(name).admit_memory(used, own);
        fits.inspect_err(|_| account.make_room()).map_err(|over| over_quota(name, over))
    }
}

fn over_quota(account: &str, OverQuota { what, used, most }: OverQuota) -> Error {
    Error::OverQuota { account: account.to_owned(), what, used, most }
}

impl Host {
    /// An account's usage, without its disk.
    pub fn used(&self, account: &str) -> QuotaUsage {
        let account = self.inner().accounts.of(account);
        let machines = account.machines();
        QuotaUsage {
            machines: machines.len() as u64,
            memory_mb: account.memory_mb(None),
            instructions: machines.iter().map(|machine| machine.pending() as u64).sum(),
        }
    }

    /// Whether an account may give one of its machines work.
    pub fn admit(&self, machine: &Arc<Machine>) -> Result<()> {
        self.inner().admit(machine)
    }
}
