//! Limits of machines in the engine's terms, and what their breach looks like.

use crate::driver::Driver;
use crate::error::Result;
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::{Limits, Usage};
use stasis_engine::{DiskLimit, Tree};
use std::sync::Arc;

/// Files a machine may have for each MiB it may write, and at least.
const FILES_PER_MB: u64 = 64;
const LEAST_FILES: u64 = 10_000;

/// What the engine enforces. What is absent has no limit.
pub fn in_engine(limits: Limits) -> stasis_engine::Limits {
    let disk = |mb: u64| DiskLimit {
        bytes: mb << 20,
        files: mb.saturating_mul(FILES_PER_MB).max(LEAST_FILES),
    };
    stasis_engine::Limits {
        memory: limits.memory_mb.map(|mb| mb << 20),
        pids: limits.pids,
        cpu_millis: limits.cpus.map(|cpus| (cpus * 1000.0) as u64),
        disk: limits.disk_mb.map(disk),
        ..stasis_engine::Limits::default()
    }
}

/// Why a tree ended: a code for programs, and words if they are known better than by who saw it.
pub struct Cause {
    pub code: &'static str,
    pub words: Option<String>,
}

impl Cause {
    pub fn of(tree: &Tree) -> Cause {
        let limits = tree.limits();
        let over_memory = tree.usage().oom_kills.is_some_and(|kills| kills > 0);
        let disk = limits.disk.filter(|_| tree.was_over_disk());
        let mb = |bytes: u64| bytes >> 20;
        match (over_memory, disk) {
            (true, _) => Cause {
                code: "machine.out_of_memory",
                words: Some(format!(
                    "it needed more memory than its limit of {} MB",
                    limits.memory.map_or(0, mb)
                )),
            },
            (false, Some(limit)) => Cause {
                code: "machine.disk_full",
                words: Some(format!("it wrote more than its limit of {} MB", mb(limit.bytes))),
            },
            (false, None) => Cause { code: "machine.process_ended", words: None },
        }
    }
}

impl Host {
    /// What a machine uses now; nothing of memory and processor when it is swapped out.
    pub fn usage(&self, machine: &Arc<Machine>) -> Result<Usage> {
        machine.ask(|driver| {
            let Some(live) = &driver.live else { return Ok(Usage::default()) };
            let (used, disk) = (live.tree.usage(), live.tree.disk_usage());
            Ok(Usage {
                memory_kib: used.memory.map(|bytes| bytes >> 10),
                cpu_seconds: used.cpu_ns.map(|ns| ns as f64 / 1e9),
                pids: used.pids,
                disk_kib: Some(disk.bytes >> 10),
            })
        })
    }
}

impl Host {
    /// Proportional and private memory of a machine's processes, in KiB; nothing when it is
    /// swapped out.
    pub fn memory_kib(&self, machine: &Arc<Machine>) -> Result<(u64, u64)> {
        machine.ask(|driver| match &driver.live {
            Some(live) => Ok(live.tree.memory_kib()?),
            None => Ok((0, 0)),
        })
    }
}

impl Driver {
    /// Gives the tree its machine's limits, where they are not everybody's.
    pub(crate) fn apply_limits(&self) -> Result<()> {
        let own = self.machine.record().made.limits.or(self.host.settings.limits);
        match &self.live {
            Some(live) if own != self.host.settings.limits => {
                Ok(live.tree.set_limits(in_engine(own))?)
            }
            _ => Ok(()),
        }
    }
}
