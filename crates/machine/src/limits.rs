//! Limits of machines in the engine's terms, and the detection of a breach.

use crate::action::Action;
use crate::driver::Driver;
use crate::error::Result;
use crate::host::{Host, HostInner};
use crate::machine::Machine;
use stasis_api::{Limits, Usage};
use stasis_engine::{DiskExcess, DiskLimit, Tree};
use stasis_records::MachineRecord;
use std::sync::Arc;

/// Files a machine may have per MiB of its disk limit, and at least.
const FILES_PER_MB: u64 = 64;
const LEAST_FILES: u64 = 10_000;

/// The limits the engine enforces. Absent ones have no limit.
pub fn in_engine(limits: Limits) -> stasis_engine::ResourceLimits {
    let disk = |mb: u64| DiskLimit {
        bytes: mb << 20,
        files: mb.saturating_mul(FILES_PER_MB).max(LEAST_FILES),
    };
    stasis_engine::ResourceLimits {
        memory: limits.memory_mb.map(|mb| mb << 20),
        pids: limits.pids,
        cpu_millis: limits.cpus.map(|cpus| (cpus * 1000.0) as u64),
        disk: limits.disk_mb.map(disk),
        ..stasis_engine::ResourceLimits::default()
    }
}

/// Why a tree ended: a code for programs, and a message if the default one is less precise.
pub struct ExitCause {
    pub code: &'static str,
    pub words: Option<String>,
}

impl ExitCause {
    pub fn of(tree: &Tree) -> ExitCause {
        let limits = tree.limits();
        let over_memory = tree.usage().oom_kills.is_some_and(|kills| kills > 0);
        let mb = |bytes: u64| bytes >> 20;
        match (over_memory, tree.disk_excess()) {
            (true, _) => ExitCause {
                code: "machine.out_of_memory",
                words: Some(format!(
                    "it needed more memory than its limit of {} MB",
                    limits.memory.map_or(0, mb)
                )),
            },
            (false, Some(DiskExcess::Files)) => ExitCause {
                code: "machine.disk_full",
                words: Some(format!(
                    "it wrote more than its limit of {} MB",
                    limits.disk.map_or(0, |disk| mb(disk.bytes))
                )),
            },
            (false, Some(DiskExcess::Uncountable)) => ExitCause {
                code: "machine.too_many_open_files",
                words: Some(
                    "its processes had too many files open or mapped, or files in unix sockets' \
                     queues while the disk filled"
                        .into(),
                ),
            },
            (false, None) => ExitCause { code: "machine.process_ended", words: None },
        }
    }
}

impl Host {
    /// Current usage of a machine; no memory and processor time while it is swapped out.
    pub fn usage(&self, machine: &Arc<Machine>) -> Result<Usage> {
        machine.request(Action::Usage)
    }

    /// Proportional and private memory of a machine's processes, in KiB; nothing when it is
    /// swapped out.
    pub fn memory_kib(&self, machine: &Arc<Machine>) -> Result<(u64, u64)> {
        machine.request(Action::Memory)
    }
}

/// Applies a machine's limits to its tree, where they differ from the defaults it was created with.
pub fn apply(host: &HostInner, record: &MachineRecord, tree: &Tree) -> Result<()> {
    let own = record.made.limits.or(host.settings.limits);
    match own == host.settings.limits {
        true => Ok(()),
        false => Ok(tree.set_limits(in_engine(own))?),
    }
}

impl Driver {
    /// Applies the machine's current limits to its tree.
    pub(crate) fn apply_limits(&self) -> Result<()> {
        let own = self.machine.record().made.limits.or(self.host.settings.limits);
        match &self.live {
            Some(live) => Ok(live.tree.set_limits(in_engine(own))?),
            None => Ok(()),
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        let Some(live) = &self.live else { return Usage::default() };
        let (used, disk) = (live.tree.usage(), live.tree.disk_usage());
        Usage {
            memory_kib: used.memory.map(|bytes| bytes >> 10),
            cpu_seconds: used.cpu_ns.map(|ns| ns as f64 / 1e9),
            pids: used.pids,
            disk_kib: Some(disk.bytes >> 10),
        }
    }

    pub(crate) fn memory_kib(&self) -> Result<(u64, u64)> {
        match &self.live {
            Some(live) => Ok(live.tree.memory_kib()?),
            None => Ok((0, 0)),
        }
    }
}
