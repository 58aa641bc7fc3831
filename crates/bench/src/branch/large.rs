//! Machines with a 1 GiB array: branches, undo, wakes, and how fast they are saved.

use super::BranchBench;
use super::in_process::{InProcessService, wrong};
use crate::report::Results;
use crate::samples::Samples;
use serde_json::json;
use stasis_command::failure::{PathContext, Result};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const MIB: f64 = 1024.0;
/// All pages differ: equal pages would be stored once, and written and read less often.
const ARRAY: &str = "import numpy as np\nbig = np.arange(1024 << 17, dtype=np.float64)\nlen(big)";
const WRITE: &str = "big += 1";
const TOUCH: &str = "float(big[0])";
const SUM: &str = "float(big.sum())";

/// Each run writes gibibytes to the disk.
fn runs(bed: &BranchBench) -> usize {
    (bed.runs / 5).clamp(1, 4)
}

fn machine(place: &InProcessService) -> Result<String> {
    let machine = place.machine()?;
    place.ask(&machine, ARRAY)?;
    place.settle(&machine)?;
    Ok(machine)
}

/// Frees the space of older states, so that a bench needs two of them.
fn forget(place: &InProcessService, machine: &str) -> Result<()> {
    place.settle(machine)?;
    place.host.prune_all(&place.host.machine(machine)?)?;
    place.host.collect()?;
    Ok(())
}

pub fn branches(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    let source = machine(place)?;
    let (mut touched, mut read) = (Samples::default(), Samples::default());
    let (mut plain, mut private) = (Samples::default(), Samples::default());
    for _ in 0..runs(bed) {
        for (code, times) in [(TOUCH, &mut touched), (SUM, &mut read)] {
            place.ask(&source, WRITE)?;
            let start = Instant::now();
            let made = place.branch(&source, 1, code)?;
            times.push_ms(start.elapsed());
            if code == SUM {
                let (_, own) = place.host.memory_kib(&place.host.machine(&made[0])?)?;
                private.push(own as f64 / MIB);
                plain.push_ms(place.ask(&source, SUM)?.1);
            }
            place.remove(&made)?;
            forget(place, &source)?;
        }
    }
    let ratio = read.p50().unwrap_or_default() / plain.p50().unwrap_or(f64::MAX);
    results.add("branch_1024mib_ms", touched);
    results.add("branch_1024mib_read_ms", read);
    results.add("branch_1024mib_source_ms", plain);
    results.add("branch_1024mib_read_ratio", ratio);
    results.add("branch_1024mib_private_mib", private);
    Ok(())
}

pub fn travel(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    let machine = machine(place)?;
    let (mut undo, mut wake) = (Samples::default(), Samples::default());
    for n in 0..runs(bed) {
        place.ask(&machine, &format!("n = {n}"))?;
        let start = Instant::now();
        place.post(&format!("/v1/machine/{machine}/undo"), &json!({}))?;
        undo.push_ms(start.elapsed());
        place.host.swap(&place.host.machine(&machine)?)?;
        wake.push_ms(place.ask(&machine, TOUCH)?.1);
    }
    results.add("undo_1024mib_ms", undo);
    results.add("wake_1024mib_ms", wake);
    Ok(())
}

pub fn save(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    let machine = machine(place)?;
    let (mut saved, mut direct) = (Samples::default(), Samples::default());
    for _ in 0..runs(bed) {
        place.ask(&machine, WRITE)?;
        let start = Instant::now();
        place.settle(&machine)?;
        saved.push(MIB / start.elapsed().as_secs_f64());
        forget(place, &machine)?;
        direct.push(dd(&bed.dir)?);
    }
    let ratio = saved.p50().unwrap_or_default() / direct.p50().unwrap_or(f64::MAX);
    results.add("save_mib_per_s", saved);
    results.add("dd_mib_per_s", direct);
    results.add("save_dd_ratio", ratio);
    Ok(())
}

/// The disk's speed for 1 GiB, without the page cache.
fn dd(dir: &Path) -> Result<f64> {
    let file = dir.join("dd");
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "bs=4M", "count=256", "oflag=direct", "conv=fsync"]);
    let start = Instant::now();
    let done = command.arg(format!("of={}", file.display())).output().at("run dd for", &file)?;
    let took = start.elapsed().as_secs_f64();
    let _ = std::fs::remove_file(&file);
    match done.status.success() {
        true => Ok(MIB / took),
        false => Err(wrong("dd", &String::from_utf8_lossy(&done.stderr))),
    }
}
