//! What every bench can be told: how often to measure, what, and how to say it.

use super::metrics::Metric;
use super::report::{ENOUGH_RUNS, Report};
use crate::failure::{Failure, Result};
use std::process::ExitCode;

const QUICK_RUNS: usize = 5;

#[derive(clap::Args)]
pub struct Choice {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Five runs of each instead of twenty, and fewer machines: for a look, not for a figure
    #[arg(long)]
    pub quick: bool,
    /// How often to measure each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Measure only these, separated by commas
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    only: Vec<String>,
    /// Exit with 1 if a median is over its bar
    #[arg(long)]
    check: bool,
}

impl Choice {
    pub fn runs(&self) -> usize {
        let usual = if self.quick { QUICK_RUNS } else { ENOUGH_RUNS };
        self.runs.map_or(usual, |runs| runs as usize)
    }

    /// The keys asked for, or all.
    pub fn wanted(&self, metrics: &'static [Metric]) -> Result<Vec<&'static str>> {
        let known: Vec<&'static str> = metrics.iter().map(|metric| metric.key).collect();
        if self.only.is_empty() {
            return Ok(known);
        }
        let find = |key: &String| known.iter().find(|own| *own == key).copied();
        let unknown = |key: &String| {
            Failure::new("bench.unknown_key", format!("nothing is called `{key}`"))
                .hint(format!("choose from {}", known.join(", ")))
        };
        self.only.iter().map(|key| find(key).ok_or_else(|| unknown(key))).collect()
    }

    /// Prints a report; the exit code says whether every bar was reached, if that was asked.
    pub fn say(&self, report: &Report) -> ExitCode {
        if self.json {
            println!("{}", report.json());
        } else {
            print!("{}", report.table());
        }
        ExitCode::from(u8::from(self.check && !report.missed().is_empty()))
    }
}
