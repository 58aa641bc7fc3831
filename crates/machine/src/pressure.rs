//! When the host's memory runs short, machines that nobody uses leave it first.
//!
//!   available < kept free ─► trees that stand ready go ─► idle machines swap out, the longest
//!                                                         idle first, until there is enough
//!
//! Nothing is lost by it: they wake with their next instruction. One that cannot be saved stays.

use crate::error::Result;
use crate::host::Host;
use crate::machine::Machine;
use std::sync::Arc;
use std::time::Instant;

/// Machines that leave in one round: each takes a moment, and others may free memory meanwhile.
const ROUND: usize = 32;
/// Of the host's memory, what is kept free unless the settings say otherwise.
const SHARE: u64 = 20;

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
}

impl Host {
    /// Makes room when memory is short; how many machines left.
    pub fn relieve(&self) -> Result<usize> {
        let keep_free = self.inner().settings.keep_free;
        let short = || Memory::now().is_some_and(|memory| memory.is_short(keep_free));
        if !short() {
            return Ok(0);
        }
        self.inner().standby.clear();
        self.inner().engine.drop_spares();
        let mut left = 0;
        for (_, machine) in self.longest_idle().into_iter().take(ROUND) {
            if !short() {
                break;
            }
            // one that cannot be saved says why in its own state
            if self.swap(&machine).is_ok() {
                left += 1;
                tracing::info!(machine = %machine.name(), "swapped out: memory is short");
            }
        }
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
        assert_eq!(Memory::parse("MemTotal: many kB\nMemAvailable: 1 kB"), None);
    }
}
