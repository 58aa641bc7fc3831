//! Times of one machine, and of a hundred at once.

use super::MachineBench;
use crate::report::Results;
use crate::samples::Samples;
use stasis_api::{Checkpoints, Exec, Network, NewMachine, Status};
use stasis_command::failure::{CliFailure, Result};
use stasis_machine::{Host, Machine};
use stasis_sys::probe;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs code and checks its result.
pub fn ask(machine: &Arc<Machine>, code: &str, expected: Option<&str>) -> Result<Duration> {
    let start = Instant::now();
    let seq = machine.submit(Exec { code: code.to_owned(), ..Exec::default() })?;
    let end = machine.wait(seq)?;
    let took = start.elapsed();
    let value = end.outcome.as_ref().and_then(|outcome| outcome.value.as_deref());
    if end.status != Status::Done || (expected.is_some() && value != expected) {
        let message = format!("`{code}` gave {value:?}, {:?}", end.outcome);
        return Err(CliFailure::new("bench.wrong_answer", message));
    }
    Ok(took)
}

fn new(bed: &MachineBench, host: &Host) -> Result<Arc<Machine>> {
    new_with(bed, host, Network::None)
}

fn new_with(bed: &MachineBench, host: &Host, network: Network) -> Result<Arc<Machine>> {
    bed.create(host, NewMachine { network: Some(network), ..NewMachine::default() })
}

/// For what an instruction costs without its state.
fn new_grouped(bed: &MachineBench, host: &Host) -> Result<Arc<Machine>> {
    let checkpoints = Checkpoints::Grouped;
    bed.create(host, NewMachine { checkpoints, ..NewMachine::default() })
}

/// The first instruction after the work.
fn check(bed: &MachineBench, machine: &Arc<Machine>) -> Result<Duration> {
    let (code, value) = bed.language.after_work();
    ask(machine, code, Some(value))
}

pub fn exec(bed: &MachineBench, results: &mut Results) -> Result<()> {
    let host = bed.host()?;
    ask(&new(bed, &host)?, "1+1", Some("2"))?;
    let (mut create, mut exec, mut lag) =
        (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..bed.runs {
        let start = Instant::now();
        let machine = new_grouped(bed, &host)?;
        ask(&machine, "1+1", Some("2"))?;
        create.push_ms(start.elapsed());
        for n in 0..10 {
            // seconds of thought between instructions, as agents have them, in small
            if n % 2 == 0 {
                machine.settle()?;
            }
            exec.push_ms(ask(&machine, "1+1", Some("2"))?);
        }
        machine.settle()?;
        ask(&machine, "x = 1", None)?;
        let start = Instant::now();
        machine.settle()?;
        lag.push_ms(start.elapsed());
        host.remove(&machine)?;
    }
    results.add("create_ms", create);
    results.add("exec_ms", exec);
    results.add("exec_exact_ms", exact(bed, &host)?);
    results.add("checkpoint_lag_ms", lag);
    Ok(())
}

/// One instruction right after the other, each with a state of its own.
fn exact(bed: &MachineBench, host: &Host) -> Result<Samples> {
    let machine = new(bed, host)?;
    ask(&machine, "1+1", Some("2"))?;
    let mut exact = Samples::default();
    for _ in 0..bed.runs * 5 {
        exact.push_ms(ask(&machine, "1+1", Some("2"))?);
    }
    host.remove(&machine)?;
    Ok(exact)
}

pub fn wake(bed: &MachineBench, results: &mut Results) -> Result<()> {
    let host = bed.host()?;
    let (mut wake, mut swap) = (Samples::default(), Samples::default());
    for _ in 0..bed.runs {
        let machine = new(bed, &host)?;
        ask(&machine, bed.language.work(), None)?;
        let start = Instant::now();
        host.swap(&machine)?;
        swap.push_ms(start.elapsed());
        wake.push_ms(check(bed, &machine)?);
        host.remove(&machine)?;
    }
    results.add("wake_ms", wake);
    results.add("swap_out_ms", swap);
    if probe::has_tun() {
        results.add("wake_open_ms", wake_open(bed, &host)?);
    }
    Ok(())
}

fn wake_open(bed: &MachineBench, host: &Host) -> Result<Samples> {
    let mut wake = Samples::default();
    for _ in 0..bed.runs {
        let machine = new_with(bed, host, Network::Open)?;
        ask(&machine, bed.language.work(), None)?;
        host.swap(&machine)?;
        wake.push_ms(check(bed, &machine)?);
        host.remove(&machine)?;
    }
    Ok(wake)
}

pub fn cold(bed: &MachineBench, results: &mut Results) -> Result<()> {
    let host = bed.host()?;
    let machine = new(bed, &host)?;
    let name = machine.name().to_string();
    ask(&machine, bed.language.work(), None)?;
    host.swap(&machine)?;
    drop((machine, host));
    let (mut wake, mut open) = (Samples::default(), Samples::default());
    for _ in 0..bed.runs {
        // the last one's threads are on their way out
        std::thread::sleep(Duration::from_millis(200));
        let start = Instant::now();
        let host = Host::open(bed.settings()?)?;
        open.push_ms(start.elapsed());
        let machine = host.machine(&name)?;
        wake.push_ms(check(bed, &machine)?);
        host.swap(&machine)?;
    }
    results.add("wake_cold_ms", wake);
    results.add("open_ms", open);
    std::thread::sleep(Duration::from_millis(200));
    Ok(())
}

pub fn burst(bed: &MachineBench, results: &mut Results) -> Result<()> {
    const MACHINES: usize = 100;
    let host = bed.host()?;
    ask(&new(bed, &host)?, "1+1", Some("2"))?;
    let mut samples = Samples::default();
    for _ in 0..bed.runs.min(10) {
        std::thread::sleep(Duration::from_millis(1500));
        let start = Instant::now();
        let all = std::thread::scope(|scope| {
            let one = || -> Result<Arc<Machine>> {
                let machine = new(bed, &host)?;
                ask(&machine, "1+1", Some("2"))?;
                Ok(machine)
            };
            let threads: Vec<_> = (0..MACHINES).map(|_| scope.spawn(one)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|one| one.expect("no panic")).collect::<Result<Vec<_>>>()
        })?;
        samples.push_ms(start.elapsed());
        for machine in all {
            host.remove(&machine)?;
        }
    }
    results.add("burst_100_ms", samples);
    Ok(())
}
