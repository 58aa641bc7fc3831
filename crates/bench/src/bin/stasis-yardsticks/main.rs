//! `stasis-yardsticks`: the time CRIU and gVisor need to restore the program of
//! `stasis bench engine`, and the time a Jupyter kernel needs for `1+1`.
//!
//!   restore_ms (ours) ─┬─ criu_restore_ms    as multiples of it
//!                      └─ gvisor_restore_ms
//!
//! A yardstick that is missing, too old or broken here is reported as absent, with the reason; it
//! never fails a run.

#![forbid(unsafe_code)]

mod criu;
mod gvisor;
mod jupyter;
mod others;

use clap::Parser;
use stasis_bench::bed::EngineBench;
use stasis_bench::choice::BenchArgs;
use stasis_bench::host::HostInfo;
use stasis_bench::measure;
use stasis_bench::metrics::{Metric, MetricGroup, extra};
use stasis_bench::report::{BenchReport, Results};
use stasis_bench::setup::{Given, Places};
use stasis_command::failure::{Exit, Result};
use std::path::Path;
use std::process::ExitCode;

const METRICS: &[Metric] = &[
    extra("restore_ms", MetricGroup::Restore, "ours: restore to first reply, template parked"),
    multiple("criu_restore_ms", "criu restore of the same program to first reply"),
    multiple("gvisor_restore_ms", "runsc restore of the same program to first reply"),
    extra("jupyter_start_ms", MetricGroup::Yardstick, "a kernel's start to its first result"),
    extra("jupyter_exec_ms", MetricGroup::Yardstick, "`1+1` through jupyter_client and ipykernel"),
];

const fn multiple(key: &'static str, is: &'static str) -> Metric {
    Metric { multiple_of: Some("restore_ms"), ..extra(key, MetricGroup::Yardstick, is) }
}

/// Measure CRIU, gVisor and Jupyter, where they are installed, beside our own restore.
#[derive(Parser)]
#[command(name = "stasis-yardsticks", version)]
struct Cli {
    #[command(flatten)]
    choice: BenchArgs,
    #[command(flatten)]
    given: Given,
}

fn main() -> ExitCode {
    run(&Cli::parse()).unwrap_or_else(|failure| {
        eprintln!("{failure}");
        // 1 means that a bar was missed
        Exit::Usage.into()
    })
}

fn run(args: &Cli) -> Result<ExitCode> {
    let (wanted, runs) = (args.choice.wanted(METRICS)?, args.choice.runs());
    let bed = EngineBench::make(Places::find(&args.given)?, &args.given.dir, runs)?;
    let host = HostInfo::look(bed.dir());
    let measured = measure_all(&bed, &args.given.dir, &wanted);
    let cleared = bed.clear();
    let mut results = measured?;
    results.keep(|key| wanted.contains(&key));
    let exit = args.choice.say(&BenchReport { metrics: METRICS, runs, host, results });
    cleared.map(|()| exit)
}

fn measure_all(bed: &EngineBench, dir: &Path, wanted: &[&str]) -> Result<Results> {
    let mut results = Results::default();
    let is_wanted = |keys: &[&str]| keys.iter().any(|key| wanted.contains(key));
    if is_wanted(&["restore_ms"]) {
        measure::run(MetricGroup::Restore, bed, &mut results)?;
    }
    if is_wanted(&["criu_restore_ms"]) {
        others::add(&mut results, "criu_restore_ms", criu::measure(bed));
    }
    if is_wanted(&["gvisor_restore_ms"]) {
        others::add(&mut results, "gvisor_restore_ms", gvisor::measure(bed));
    }
    if is_wanted(&["jupyter_start_ms", "jupyter_exec_ms"]) {
        jupyter::measure(&dir.join("stasis-bench-jupyter"), bed.runs, &mut results);
    }
    Ok(results)
}
