//! One branch, and a hundred.

use super::BranchBench;
use super::in_process::InProcessService;
use crate::report::Results;
use crate::samples::Samples;
use stasis_command::failure::Result;
use std::time::Instant;

pub fn one(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    let machine = place.machine()?;
    place.remove(&place.branch(&machine, 1, "len(df)")?)?;
    let mut times = Samples::default();
    for n in 0..bed.runs {
        // something new to save, as after every step of an agent
        place.ask(&machine, &format!("n = {n}"))?;
        let start = Instant::now();
        let made = place.branch(&machine, 1, "len(df)")?;
        times.push_ms(start.elapsed());
        place.remove(&made)?;
    }
    results.add("branch_ms", times);
    Ok(())
}

pub fn hundred(bed: &BranchBench, place: &InProcessService, results: &mut Results) -> Result<()> {
    let machine = place.machine()?;
    place.remove(&place.branch(&machine, 1, "len(df)")?)?;
    let (mut times, mut private) = (Samples::default(), Samples::default());
    for n in 0..bed.runs.min(10) {
        place.ask(&machine, &format!("n = {n}"))?;
        let start = Instant::now();
        let made = place.branch(&machine, 100, "len(df)")?;
        times.push_ms(start.elapsed());
        for name in made.iter().step_by(20) {
            private.push(place.host.memory_kib(&place.host.machine(name)?)?.1 as f64);
        }
        place.remove(&made)?;
        // checkpoints of removed machines are over, and the next sandboxes are ready
        std::thread::sleep(std::time::Duration::from_millis(1500));
    }
    results.add("branch_100_ms", times);
    results.add("branch_private_kib", private);
    Ok(())
}
