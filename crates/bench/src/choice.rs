//! Options of every bench: how often to measure, which keys, and the output format.

use super::host::HostInfo;
use super::metrics::{self, Metric, MetricGroup};
use super::report::{BenchReport, ENOUGH_RUNS, Results};
use stasis_command::failure::{CliFailure, PathContext, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const QUICK_RUNS: usize = 5;

#[derive(clap::Args)]
pub struct BenchArgs {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Five runs instead of twenty, and fewer machines: an estimate
    #[arg(long)]
    pub quick: bool,
    /// Number of runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Measure only these, separated by commas
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    only: Vec<String>,
    /// Exit with 1 if a median exceeds its bar
    #[arg(long)]
    check: bool,
}

/// The data directory of benches that use one host.
#[derive(clap::Args)]
pub struct DirArgs {
    /// Data directory for the benchmark; its template is kept for the next run
    #[arg(long, value_name = "DIR", default_value = "/var/tmp/stasis-bench-machine")]
    pub dir: PathBuf,
}

impl BenchArgs {
    /// Starts a bench whose data is in `dir`, which is made.
    pub fn begin(&self, metrics: &'static [Metric], dir: &Path) -> Result<BenchRun<'_>> {
        let wanted = self.wanted(metrics)?;
        std::fs::create_dir_all(dir).at("make", dir)?;
        let host = HostInfo::look(dir);
        Ok(BenchRun { args: self, metrics, wanted, runs: self.runs(), host })
    }

    pub fn runs(&self) -> usize {
        let usual = if self.quick { QUICK_RUNS } else { ENOUGH_RUNS };
        self.runs.map_or(usual, |runs| runs as usize)
    }

    /// The requested keys, or all.
    pub fn wanted(&self, metrics: &'static [Metric]) -> Result<Vec<&'static str>> {
        let known: Vec<&'static str> = metrics.iter().map(|metric| metric.key).collect();
        if self.only.is_empty() {
            return Ok(known);
        }
        let find = |key: &String| known.iter().find(|own| *own == key).copied();
        let unknown = |key: &String| {
            CliFailure::new("bench.unknown_key", format!("nothing is called `{key}`"))
                .hint(format!("choose from {}", known.join(", ")))
        };
        self.only.iter().map(|key| find(key).ok_or_else(|| unknown(key))).collect()
    }

    /// Prints a report; the exit code says whether every bar was reached, if requested.
    pub fn say(&self, report: &BenchReport) -> ExitCode {
        if self.json {
            println!("{}", report.json());
        } else {
            print!("{}", report.table());
        }
        ExitCode::from(u8::from(self.check && !report.missed().is_empty()))
    }
}

/// A running bench: its options, and the state of the host before.
pub struct BenchRun<'a> {
    args: &'a BenchArgs,
    metrics: &'static [Metric],
    wanted: Vec<&'static str>,
    pub runs: usize,
    host: HostInfo,
}

impl BenchRun<'_> {
    /// Measures the groups that were chosen, each once, with `measure`.
    pub fn measure(
        &self,
        mut measure: impl FnMut(MetricGroup, &mut Results) -> Result<()>,
    ) -> Result<Results> {
        let mut results = Results::default();
        for (group, key) in metrics::groups(self.metrics, &self.wanted) {
            measure(group, &mut results).map_err(|failure| CliFailure {
                message: format!("{key}: {}", failure.message),
                ..failure
            })?;
        }
        results.keep(|key| self.wanted.contains(&key));
        Ok(results)
    }

    /// Prints the results.
    pub fn say(self, results: Results) -> ExitCode {
        let BenchRun { args, metrics, runs, host, .. } = self;
        args.say(&BenchReport { metrics, runs, host, results })
    }
}
