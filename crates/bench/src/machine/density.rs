//! The cost of many machines: live ones in memory, swapped-out ones in memory and on disk.

use super::speed::ask;
use super::{MachineBench, on_disk};
use crate::report::Results;
use stasis_api::NewMachine;
use stasis_command::failure::{CliFailure, Result};

/// Memory of the host that is not free for others, in KiB.
fn used_kib() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    let both = field("MemTotal:").zip(field("MemAvailable:"));
    let (total, available) =
        both.ok_or_else(|| CliFailure::new("bench.meminfo", "/proc/meminfo cannot be read"))?;
    Ok(total - available)
}

/// Resident memory of this process and its children, which have no others' pages, in KiB.
fn resident_kib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

pub fn live(bed: &MachineBench, results: &mut Results) -> Result<()> {
    let count = if bed.quick { 40 } else { 200 };
    let host = bed.host()?;
    // the first does not wait for the template, which exists when the second has answered
    for _ in 0..2 {
        ask(&bed.create(&host, NewMachine::default())?, "1+1", Some("2"))?;
    }
    let before = used_kib()?;
    for _ in 0..count {
        let machine = bed.create(&host, NewMachine::default())?;
        ask(&machine, bed.language.work(), None)?;
        machine.settle()?;
    }
    results.add("live_mib_per_machine", (used_kib()? - before) / 1024.0 / f64::from(count));
    for machine in host.machines() {
        host.remove(&machine)?;
    }
    Ok(())
}

pub fn idle(bed: &MachineBench, results: &mut Results) -> Result<()> {
    let count = if bed.quick { 50 } else { 1000 };
    let host = bed.host()?;
    ask(&bed.create(&host, NewMachine::default())?, "1+1", Some("2"))?;
    host.collect()?;
    let (memory, disk) = (resident_kib(), on_disk(&bed.dir.join("content")));
    for _ in 0..count {
        let machine = bed.create(&host, NewMachine::default())?;
        ask(&machine, bed.language.work(), None)?;
        host.swap(&machine)?;
    }
    host.collect()?;
    let each = |total: f64| total / f64::from(count);
    let memory = each((resident_kib() - memory) / 1024.0) * 1000.0;
    let disk = each((on_disk(&bed.dir.join("content")) - disk) as f64 / (1 << 20) as f64);
    results.add("idle_rss_mib_1000", memory);
    results.add("disk_mib_per_idle_machine", disk);
    for machine in host.machines() {
        host.remove(&machine)?;
    }
    Ok(())
}
