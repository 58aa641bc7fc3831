//! How long a branch holds its source up, as a process inside it sees it.

use super::Bed;
use super::place::{Place, wrong};
use crate::bench::report::Results;
use crate::bench::samples::Samples;
use crate::failure::Result;
use std::time::Duration;

/// A child that writes without end, and keeps the longest time between two writes where its parent
/// can read it.
const WRITER: &str = "import mmap, os, struct, time\n\
    seen = mmap.mmap(-1, 4096)\n\
    if os.fork() == 0:\n\
    \x20   block = bytearray(8 << 20)\n\
    \x20   at, last = 0, time.perf_counter()\n\
    \x20   while True:\n\
    \x20       at = (at + 4096) % len(block)\n\
    \x20       block[at] = (block[at] + 1) & 255\n\
    \x20       now = time.perf_counter()\n\
    \x20       if now - last > struct.unpack_from('d', seen, 0)[0]:\n\
    \x20           struct.pack_into('d', seen, 0, now - last)\n\
    \x20       last = now\n";
const RESET: &str = "struct.pack_into('d', seen, 0, 0.0)";
const READ: &str = "struct.unpack_from('d', seen, 0)[0]";
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
