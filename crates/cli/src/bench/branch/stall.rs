//! How long a branch holds its source up, as a thread inside it sees it.

use super::Bed;
use super::place::{Place, wrong};
use crate::bench::report::Results;
use crate::bench::samples::Samples;
use crate::failure::Result;
use std::time::Duration;

/// A thread that writes all over 1 MiB without end, and keeps the longest time between two writes.
const WRITER: &str = "import threading, time\n\
    seen = [0.0]\n\
    def write():\n\
    \x20   block = bytearray(1 << 20)\n\
    \x20   at, last = 0, time.perf_counter()\n\
    \x20   while True:\n\
    \x20       at = (at + 4096) % len(block)\n\
    \x20       block[at] = (block[at] + 1) & 255\n\
    \x20       now = time.perf_counter()\n\
    \x20       if now - last > seen[0]:\n\
    \x20           seen[0] = now - last\n\
    \x20       last = now\n\
    threading.Thread(target=write, daemon=True).start()";
const RESET: &str = "seen[0] = 0.0";
const READ: &str = "seen[0]";
const ARRAY: &str = "import numpy as np\nbig = np.zeros(1536 << 17)\nbig += 1\nlen(big)";

fn stall(place: &Place, machine: &str, act: impl FnOnce() -> Result<()>) -> Result<f64> {
    place.ask(machine, RESET)?;
    place.settle(machine)?;
    place.ask(machine, RESET)?;
    act()?;
    let (value, _) = place.ask(machine, READ)?;
    let seconds: f64 = value.parse().map_err(|_| wrong(READ, &value))?;
    Ok(seconds * 1e3)
}

fn measure(
    place: &Place,
    runs: usize,
    before: Option<&str>,
    machine: &str,
) -> Result<(Samples, Samples)> {
    let (mut stalls, mut quiet) = (Samples::default(), Samples::default());
    for _ in 0..runs {
        if let Some(code) = before {
            place.ask(machine, code)?;
        }
        stalls.push(stall(place, machine, || {
            place.remove(&place.branch(machine, 1, "1 + 1")?)?;
            place.settle(machine)
        })?);
        quiet.push(stall(place, machine, || {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        })?);
    }
    Ok((stalls, quiet))
}

pub fn small(bed: &Bed, place: &Place, results: &mut Results) -> Result<()> {
    let machine = place.machine()?;
    place.ask(&machine, WRITER)?;
    let (stalls, quiet) = measure(place, bed.runs, Some("n = [0] * 1000"), &machine)?;
    results.add("branch_pause_ms", stalls);
    results.add("branch_pause_baseline_ms", quiet);
    Ok(())
}

pub fn large(bed: &Bed, place: &Place, results: &mut Results) -> Result<()> {
    let machine = place.machine()?;
    place.ask(&machine, WRITER)?;
    place.ask(&machine, ARRAY)?;
    // each run writes 1.5 GiB to the disk
    let runs = bed.runs.min(5);
    let mut stalls = Samples::default();
    for _ in 0..runs {
        let (one, _) = measure(place, 1, Some("big += 1"), &machine)?;
        stalls.push(one.p50().unwrap_or_default());
        place.host.prune_all(&place.host.machine(&machine)?)?;
        place.host.collect()?;
    }
    results.add("branch_pause_1536mib_ms", stalls);
    Ok(())
}
