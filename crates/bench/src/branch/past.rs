//! Going back, and the cost of keeping every state.

use super::BranchBench;
use super::in_process::InProcessService;
use crate::machine::on_disk;
use crate::report::Results;
use crate::samples::Samples;
use serde_json::json;
use stasis_command::failure::Result;
use std::time::{Duration, Instant};

pub fn rollback(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    let machine = place.machine()?;
    let mut times = Samples::default();
    for n in 0..bed.runs {
        place.ask(&machine, &format!("n = {n}"))?;
        place.settle(&machine)?;
        place.ask(&machine, "n = -1")?;
        let start = Instant::now();
        place.post(&format!("/v1/machine/{machine}/undo"), &json!({}))?;
        place.ask(&machine, "n")?;
        times.push_ms(start.elapsed());
    }
    results.add("rollback_ms", times);
    Ok(())
}

pub fn history(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    const INSTRUCTIONS: u32 = 50;
    let machine = place.machine()?;
    // the state the machine is in is not made small: it is of a small instruction before and after
    place.ask(&machine, "n = -1")?;
    place.settle(&machine)?;
    while place.host.thin_states(Duration::ZERO)? > 0 {}
    let before = on_disk(&bed.dir);
    for n in 0..INSTRUCTIONS {
        place.ask(&machine, &format!("n = {n}"))?;
        place.settle(&machine)?;
    }
    let grown = || {
        let bytes = on_disk(&bed.dir).saturating_sub(before) as f64;
        bytes / 1024.0 / f64::from(INSTRUCTIONS)
    };
    results.add("history_written_kib_per_instruction", grown());
    while place.host.thin_states(Duration::ZERO)? > 0 {}
    results.add("history_kib_per_instruction", grown());
    Ok(())
}

/// One step back and one forward, each to its answer.
pub fn steps(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    let machine = place.machine()?;
    let (mut undo, mut redo) = (Samples::default(), Samples::default());
    for n in 0..bed.runs {
        place.ask(&machine, &format!("n = {n}"))?;
        for (what, times) in [("undo", &mut undo), ("redo", &mut redo)] {
            let start = Instant::now();
            place.post(&format!("/v1/machine/{machine}/{what}"), &json!({}))?;
            times.push_ms(start.elapsed());
        }
    }
    results.add("undo_ms", undo);
    results.add("redo_ms", redo);
    Ok(())
}

/// Instructions per second, each with a state of its own, over all machines.
pub fn exact(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    let few = bed.runs <= 5;
    let (count, time) = if few { (16, 1) } else { (64, 3) };
    let machine = |_| Ok(place.host.create("bench", stasis_api::NewMachine::default())?);
    let machines = (0..count).map(machine).collect::<Result<Vec<_>>>()?;
    let ask = |machine: &std::sync::Arc<stasis_machine::Machine>| -> Result<()> {
        let code = stasis_api::Exec { code: "1 + 1".into(), ..Default::default() };
        machine.wait(machine.submit(code)?)?;
        Ok(())
    };
    machines.iter().try_for_each(ask)?;
    let mut rates = Samples::default();
    for _ in 0..bed.runs.min(5) {
        let start = Instant::now();
        let end = start + Duration::from_secs(time);
        let each = |machine| -> Result<u64> {
            let mut done = 0;
            while Instant::now() < end {
                ask(machine)?;
                done += 1;
            }
            Ok(done)
        };
        let done = std::thread::scope(|scope| {
            let threads: Vec<_> =
                machines.iter().map(|machine| scope.spawn(move || each(machine))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(0))).sum::<Result<u64>>()
        })?;
        rates.push(done as f64 / start.elapsed().as_secs_f64());
    }
    results.add("exec_exact_per_s", rates);
    Ok(())
}

/// An instruction with checkpoints on, less one with checkpoints off.
pub fn overhead(bed: &BranchBench, results: &mut Results) -> Result<()> {
    let with = instructions(bed, |_| {})?;
    let never = Duration::from_secs(3600);
    let without = instructions(bed, |settings| {
        settings.settle = never;
        settings.at_risk = never;
    })?;
    let plain = without.p50().unwrap_or_default();
    let mut added = Samples::default();
    with.each().for_each(|one| added.push(one - plain));
    results.add("checkpoint_overhead_ms", added);
    Ok(())
}

fn instructions(
    bed: &BranchBench,
    change: impl FnOnce(&mut stasis_machine::Settings),
) -> Result<Samples> {
    let place = InProcessService::open(bed, change)?;
    let made = place.post("/v1/machine/new", &json!({}))?;
    let machine = made["machine_name"].as_str().unwrap_or_default().to_owned();
    place.ask(&machine, "x = 0")?;
    let mut times = Samples::default();
    for _ in 0..bed.runs * 5 {
        // thought between instructions, in small: long enough for a checkpoint
        std::thread::sleep(Duration::from_millis(40));
        times.push_ms(place.ask(&machine, "x += 1")?.1);
    }
    place.close()?;
    Ok(times)
}
