//! `stasis bench engine`: what the image engine promises, measured.

use super::bed::Bed;
use super::host::Host;
use super::measure;
use super::metrics::{self, Group, METRICS};
use super::report::{ENOUGH_RUNS, Report, Results};
use super::setup::Places;
use crate::failure::{Failure, Result};
use std::path::PathBuf;
use std::process::ExitCode;

const QUICK_RUNS: usize = 5;

#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Five runs of each instead of twenty: for a look, not for a figure
    #[arg(long)]
    quick: bool,
    /// How often to measure each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Measure only these, separated by commas
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    only: Vec<String>,
    /// Exit with 1 if a median is over its bar
    #[arg(long)]
    check: bool,
    /// Root file system to run in [default: $STASIS_ROOTFS, else .dev/rootfs of the repository]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Python inside that root [default: $STASIS_TEST_PYTHON, else .dev/venv/bin/python]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// A directory on a real disk; images go below it and are removed at the end
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let wanted = wanted(&args.only)?;
    let runs = args.runs.map_or(if args.quick { QUICK_RUNS } else { ENOUGH_RUNS }, |n| n as usize);
    let places = Places::find(args.root, args.python)?;
    let bed = Bed::make(places, &args.dir, runs)?;
    let host = Host::look(bed.dir());
    let measured = measure_all(&bed, &wanted);
    let cleared = bed.clear();
    let mut results = measured?;
    results.keep(|key| wanted.contains(&key));
    let report = Report { metrics: METRICS, runs, host, results };
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table());
    }
    cleared?;
    Ok(ExitCode::from(u8::from(args.check && !report.missed().is_empty())))
}

/// The keys asked for, or all.
fn wanted(only: &[String]) -> Result<Vec<&'static str>> {
    if only.is_empty() {
        return Ok(METRICS.iter().map(|metric| metric.key).collect());
    }
    only.iter()
        .map(|key| {
            metrics::find(key).map(|metric| metric.key).ok_or_else(|| {
                let known: Vec<&str> = METRICS.iter().map(|metric| metric.key).collect();
                Failure::new("bench.unknown_key", format!("nothing is called `{key}`"))
                    .hint(format!("choose from {}", known.join(", ")))
            })
        })
        .collect()
}

fn measure_all(bed: &Bed, wanted: &[&str]) -> Result<Results> {
    let mut results = Results::default();
    let mut done: Vec<Group> = Vec::new();
    for metric in METRICS.iter().filter(|metric| wanted.contains(&metric.key)) {
        if done.contains(&metric.group) {
            continue;
        }
        eprintln!("measuring {} ...", metric.key);
        measure::run(metric.group, bed, &mut results).map_err(|failure| Failure {
            message: format!("{}: {}", metric.key, failure.message),
            ..failure
        })?;
        done.push(metric.group);
    }
    Ok(results)
}
