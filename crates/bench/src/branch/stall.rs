//! The stall of a source during a branch, as a thread inside it sees it.

use super::BranchBench;
use super::in_process::{InProcessService, wrong};
use crate::report::Results;
use crate::samples::Samples;
use stasis_command::failure::Result;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A thread that writes all over 1 MiB without end and records every unusually long time between
/// two writes, with its end. No other thread needs the interpreter's lock during the measurement:
/// requests before and after are not counted.
const WRITER: &str = "import threading, time\n\
    seen = []\n\
    def write():\n\
    \x20   block = bytearray(1 << 20)\n\
    \x20   at, last = 0, time.time()\n\
    \x20   while True:\n\
    \x20       at = (at + 4096) % len(block)\n\
    \x20       block[at] = (block[at] + 1) & 255\n\
    \x20       now = time.time()\n\
    \x20       if now - last > 0.0002:\n\
    \x20           seen.append((now - last, now))\n\
    \x20       last = now\n\
    threading.Thread(target=write, daemon=True).start()";
/// All pages differ: equal pages would be stored once, and written and read less often.
const ARRAY: &str = "import numpy as np\nbig = np.arange(1536 << 17, dtype=np.float64)\nlen(big)";

/// The longest stall while `act` runs.
fn stall(place: &InProcessService, machine: &str, act: impl FnOnce() -> Result<()>) -> Result<f64> {
    let from = now();
    act()?;
    let until = now();
    let longest = format!("max([took for took, at in seen if {from} < at < {until}] or [0.0])");
    let (value, _) = place.ask(machine, &longest)?;
    let seconds: f64 = value.parse().map_err(|_| wrong(&longest, &value))?;
    Ok(seconds * 1e3)
}

/// The time of day, which is the same inside and outside.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Stalls when a machine is branched that has just run `code`, and when nothing is done to it.
fn measure(
    place: &InProcessService,
    runs: usize,
    machine: &str,
    code: &str,
) -> Result<(Samples, Samples)> {
    let (mut stalls, mut quiet) = (Samples::default(), Samples::default());
    for _ in 0..runs {
        place.settle(machine)?;
        place.ask(machine, &format!("{code}\nseen.clear()"))?;
        stalls.push(stall(place, machine, || {
            place.remove(&place.branch(machine, 1, "1 + 1")?)?;
            place.settle(machine)
        })?);
        place.settle(machine)?;
        quiet.push(stall(place, machine, || {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        })?);
    }
    Ok((stalls, quiet))
}

pub fn small(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    let machine = place.machine()?;
    place.ask(&machine, WRITER)?;
    let (stalls, quiet) = measure(place, bed.runs, &machine, "n = [0] * 1000")?;
    results.add("branch_pause_ms", stalls);
    results.add("branch_pause_baseline_ms", quiet);
    Ok(())
}

pub fn large(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    let machine = place.machine()?;
    place.ask(&machine, WRITER)?;
    place.ask(&machine, ARRAY)?;
    // each run writes 1.5 GiB to the disk
    let runs = bed.runs.min(5);
    let mut stalls = Samples::default();
    for _ in 0..runs {
        let (one, _) = measure(place, 1, &machine, "big += 1")?;
        stalls.push(one.p50().unwrap_or_default());
        place.host.prune_all(&place.host.machine(&machine)?)?;
        place.host.collect()?;
    }
    results.add("branch_pause_1536mib_ms", stalls);
    Ok(())
}
