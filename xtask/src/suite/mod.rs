//! `cargo xtask test`: every test program of the workspace, and Clippy, two at a time.
//!
//!   cargo test --no-run ─► programs ─► plan: slowest first ─┬─► lane ─┬─► summary
//!                                                           └─► lane ─┘
//!
//! `cargo test` runs one program after another, and half of them wait for a clock, a disk or one
//! single thread. The output of a program is printed when it ends, so that outputs do not mix. A
//! program that fails, or exceeds its limit and is killed, does not stop the others.

mod plan;
mod run;

use plan::TestRun;
use run::RunReport;
use serde_json::Value;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Programs that run at once. Most of them have several threads of their own.
const LANES: usize = 2;

/// Runs the tests of all programs whose names contain one of the filters, or of all programs.
/// True if they passed.
pub fn run(root: &Path, filters: &[&str]) -> io::Result<bool> {
    let start = Instant::now();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut runs = plan::plan(cargo.as_ref(), root, &built(&cargo, root)?);
    runs.retain(|run| filters.is_empty() || filters.iter().any(|part| run.name().contains(part)));
    if runs.is_empty() {
        return Err(io::Error::other(format!("no test program is named like {filters:?}")));
    }
    let mut reports = in_lanes(runs)?;
    reports.sort_by_key(|report| std::cmp::Reverse(report.took));
    summarise(&reports, start);
    Ok(reports.iter().all(|report| report.passed))
}

/// Builds the test programs; what Cargo reports of them.
fn built(cargo: &OsStr, root: &Path) -> io::Result<Vec<plan::TestProgram>> {
    let mut command = Command::new(cargo);
    command.args(["test", "--locked", "--workspace", "--no-run"]).current_dir(root);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(io::Error::other("the tests do not compile"));
    }
    let text = String::from_utf8(output.stdout).map_err(io::Error::other)?;
    let messages = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    Ok(messages.iter().filter_map(plan::TestProgram::from_message).collect())
}

fn in_lanes(runs: Vec<TestRun>) -> io::Result<Vec<RunReport>> {
    let queue = Mutex::new(VecDeque::from(runs));
    let next = || queue.lock().ok().and_then(|mut queue| queue.pop_front());
    let lane = || {
        let mut reports = Vec::new();
        while let Some(run) = next() {
            reports.push(one(&run)?);
        }
        Ok(reports)
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        let ended = lanes.into_iter().map(|lane| {
            lane.join().unwrap_or_else(|_| Err(io::Error::other("a lane of tests panicked")))
        });
        Ok(ended.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
    })
}

fn one(run: &TestRun) -> io::Result<RunReport> {
    eprintln!("     Started {}", run.name());
    let report = run::to_its_end(run)?;
    let mut out = io::stdout().lock();
    writeln!(out, "     Running {} ({})", report.name, run.program.executable.display())?;
    out.write_all(&report.output)?;
    writeln!(out, "       Ended {} after {:.1} s", report.name, report.took.as_secs_f64())?;
    out.flush()?;
    Ok(report)
}

/// The slowest programs, and those that failed.
fn summarise(reports: &[RunReport], start: Instant) {
    for report in reports.iter().take(12) {
        eprintln!("{:8.1} s  {}", report.took.as_secs_f64(), report.name);
    }
    let failed: Vec<_> = reports.iter().filter(|report| !report.passed).collect();
    for report in &failed {
        eprintln!("failed: {} ({})", report.name, report.ending);
    }
    let (all, seconds) = (reports.len(), start.elapsed().as_secs());
    eprintln!("test: {all} programs in {seconds} s, {} failed", failed.len());
}
