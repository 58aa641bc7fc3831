//! Going back, and what keeping every state costs.

use super::Bed;
use super::place::Place;
use crate::bench::machine::on_disk;
use crate::bench::report::Results;
use crate::bench::samples::Samples;
use crate::failure::Result;
use serde_json::json;
use std::time::{Duration, Instant};

pub fn rollback(bed: &Bed, place: &Place, results: &mut Results) -> Result<()> {
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

pub fn history(bed: &Bed, place: &Place, results: &mut Results) -> Result<()> {
    const INSTRUCTIONS: u32 = 50;
    let machine = place.machine()?;
    let before = on_disk(&bed.dir);
    for n in 0..INSTRUCTIONS {
        place.ask(&machine, &format!("n = {n}"))?;
        place.settle(&machine)?;
    }
    let grown = on_disk(&bed.dir).saturating_sub(before) as f64 / 1024.0;
    results.add("history_kib_per_instruction", grown / f64::from(INSTRUCTIONS));
    Ok(())
}

/// An instruction with checkpoints on, less one with checkpoints off.
pub fn overhead(bed: &Bed, results: &mut Results) -> Result<()> {
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

fn instructions(bed: &Bed, change: impl FnOnce(&mut stasis_machine::Settings)) -> Result<Samples> {
    let place = Place::open(bed, change)?;
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
