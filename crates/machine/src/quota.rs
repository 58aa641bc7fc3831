//! What an account may have: machines, memory, instructions, disk.
//!
//! Looked at before something is added. Memory counts as what machines in memory may take; when
//! it is used up, the account's own machines that do nothing leave memory, so that a second try
//! succeeds. Disk counts what checkpoints added to the store, and artifacts.

use crate::error::{Error, Result};
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::State;
use std::sync::Arc;

/// The account that runs the service, which nothing is refused.
const FIRST: &str = "root";

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

impl Host {
    /// What an account has, but for its disk.
    pub fn used(&self, account: &str) -> Used {
        let mut used = Used::default();
        for machine in self.of_account(account) {
            used.machines += 1;
            used.instructions += machine.pending() as u64;
            if machine.state() != State::Swapped {
                used.memory_mb += self.memory_of(&machine);
            }
        }
        used
    }

    fn of_account(&self, account: &str) -> Vec<Arc<Machine>> {
        let own = |machine: &Arc<Machine>| machine.record().made.account == account;
        self.machines().into_iter().filter(own).collect()
    }

    fn memory_of(&self, machine: &Machine) -> u64 {
        let limits = machine.record().made.limits.or(self.inner().settings.limits);
        limits.memory_mb.unwrap_or(0)
    }

    fn quota_of(&self, account: &str) -> Quota {
        if account == FIRST { Quota::default() } else { self.inner().settings.quota }
    }

    /// Whether an account may make this many machines more.
    pub(crate) fn admit_machines(&self, account: &str, count: usize) -> Result<()> {
        let quota = self.quota_of(account);
        let over = |what, used, most| {
            Err(Error::OverQuota { account: account.to_owned(), what, used, most })
        };
        if let Some(most) = quota.machines {
            let used = self.of_account(account).len() as u64;
            if used + count as u64 > most {
                return over("machines", used, most);
            }
        }
        if let Some(most) = quota.disk_mb {
            let used = self.inner().store.disk_of(account)? >> 20;
            if used >= most {
                return over("MB on disk", used, most);
            }
        }
        Ok(())
    }

    /// Whether an account may give one of its machines something to do.
    pub fn admit(&self, machine: &Arc<Machine>) -> Result<()> {
        let account = machine.account();
        let quota = self.quota_of(&account);
        if quota == Quota::default() {
            return Ok(());
        }
        self.admit_machines(&account, 0)?;
        let used = self.used(&account);
        let over =
            |what, used, most| Error::OverQuota { account: account.clone(), what, used, most };
        if let Some(most) = quota.instructions
            && used.instructions >= most
        {
            return Err(over("instructions", used.instructions, most));
        }
        let asleep = machine.state() == State::Swapped;
        if let Some(most) = quota.memory_mb
            && asleep
            && used.memory_mb + self.memory_of(machine) > most
        {
            self.make_room(&account);
            return Err(over("MB of memory", used.memory_mb, most));
        }
        Ok(())
    }

    /// Moves an account's machines that do nothing out of memory, without waiting for it.
    fn make_room(&self, account: &str) {
        for machine in self.of_account(account) {
            let idle = machine.state() == State::Ready && machine.pending() == 0;
            if idle {
                machine.wish(|driver| drop(driver.swap_out()));
            }
        }
    }
}
