//! Swaps out idle machines when the host's memory runs short.
//!
//!   available < kept free and a quarter ─► the pools are emptied ─► idle machines swap out, the
//!                                          longest idle first, until enough is free
//!   available < kept free               ─► machines that would enter memory wait for that
//!
//! Swapped machines wake with their next instruction. A machine that cannot be saved stays in
//! memory. Nothing waits for long, and nothing fails: if swapping frees no memory, machines enter
//! as if there were enough, and the kernel decides.

use crate::error::Result;
use crate::host::{Host, HostInner};
use crate::machine::Machine;
use stasis_api::Limits;
use stasis_engine::{PreparedCounts, PreparedKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Machines swapped out per round: each takes a moment, and others may free memory meanwhile.
const ROUND: usize = 32;
/// Share of the host's memory to keep free by default.
const SHARE: u64 = 20;
/// Maximum wait of a machine that would enter memory.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// The host's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
}

impl Memory {
    fn now() -> Option<Memory> {
        Memory::parse(&std::fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn parse(text: &str) -> Option<Memory> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kib.checked_mul(1024)
        };
        Some(Memory { total: field("MemTotal:")?, available: field("MemAvailable:")? })
    }

    fn is_short(&self, keep_free: Option<u64>) -> bool {
        self.available < keep_free.unwrap_or(self.total / SHARE)
    }

    /// Whether machines should leave memory: before it is short, because that takes a while.
    fn is_running_short(&self, keep_free: Option<u64>) -> bool {
        let keep_free = keep_free.unwrap_or(self.total / SHARE);
        self.available < keep_free.saturating_add(keep_free / 4)
    }
}

/// Whether memory is being freed, so that it is worth waiting for.
#[derive(Default)]
pub(crate) struct MemoryRelief(AtomicBool);

impl HostInner {
    /// Waits until the host has memory for one more machine, while some is being freed.
    pub(crate) fn wait_for_memory(&self) {
        let end = Instant::now() + PATIENCE;
        let keep_free = self.settings.keep_free;
        while self.relief.0.load(Ordering::Relaxed)
            && Instant::now() < end
            && Memory::now().is_some_and(|memory| memory.is_short(keep_free))
        {
            std::thread::sleep(LOOK);
        }
    }
}

/// The host's memory, processors and processes, as limits of one machine.
pub fn of_host() -> Limits {
    let pids = std::fs::read_to_string("/proc/sys/kernel/pid_max").ok();
    let pids = pids.and_then(|text| text.trim().parse().ok());
    let cpus = std::thread::available_parallelism().ok().map(|count| count.get() as f64);
    let memory_mb = Memory::now().map(|memory| memory.total >> 20);
    Limits { memory_mb, cpus, pids, disk_mb: None }
}

impl Host {
    /// Pools of prepared resources, by kind. Under pressure they are dropped before any machine is
    /// swapped out.
    pub fn prepared(&self) -> [(&'static str, usize); 4] {
        let PreparedCounts { sandboxes, processes, templates } = self.inner().engine.prepared();
        [
            ("machine", self.inner().standby.standing()),
            ("process", processes),
            ("sandbox", sandboxes),
            ("template", templates),
        ]
    }

    /// Memory for what is prepared: of each kind, and the budget of all.
    pub fn prepared_memory(&self) -> ([(&'static str, u64); 4], u64) {
        let budget = self.inner().engine.budget();
        (PreparedKind::ALL.map(|kind| (kind.name(), budget.used(kind))), budget.most())
    }

    /// Frees memory when it runs short; returns how many machines were swapped out.
    pub fn relieve(&self) -> Result<usize> {
        let keep_free = self.inner().settings.keep_free;
        let short = || Memory::now().is_some_and(|memory| memory.is_running_short(keep_free));
        let helps = |helps: bool| self.inner().relief.0.store(helps, Ordering::Relaxed);
        if !short() {
            helps(false);
            return Ok(0);
        }
        helps(true);
        self.inner().standby.clear();
        self.inner().engine.drop_spares();
        self.inner().cool_branched();
        let mut left = 0;
        for (_, machine) in self.longest_idle().into_iter().take(ROUND) {
            if !short() {
                break;
            }
            // a machine that cannot be saved shows the reason in its own state
            if self.swap(&machine).is_ok() {
                left += 1;
                tracing::info!(machine = %machine.name(), "swapped out: memory is short");
            }
        }
        helps(left > 0);
        Ok(left)
    }

    fn longest_idle(&self) -> Vec<(Instant, Arc<Machine>)> {
        let idle = |machine: Arc<Machine>| Some((machine.idle_since()?, machine));
        let mut all: Vec<_> = self.machines().into_iter().filter_map(idle).collect();
        all.sort_by_key(|(since, _)| *since);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_judged() {
        let text = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    49 kB\n";
        let memory = Memory::parse(text).expect("both fields");
        assert_eq!(memory, Memory { total: 1_024_000, available: 50_176 });
        assert!(memory.is_short(None));
        assert!(!memory.is_short(Some(50_000)));
        assert!(memory.is_short(Some(60_000)));
        // machines leave before it is short
        assert!(memory.is_running_short(Some(50_000)) && !memory.is_running_short(Some(40_000)));
        assert!(memory.is_running_short(Some(u64::MAX)) && !memory.is_running_short(Some(0)));
        assert_eq!(Memory::parse("MemTotal: many kB\nMemAvailable: 1 kB"), None);
    }
}
