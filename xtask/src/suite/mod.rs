//! `cargo xtask test`: every test program of the workspace, two at a time, and what Clippy found.
//!
//!   cargo test --no-run ─┬─► programs ─► plan: slowest first ─┬─► lane ─┬─► summary
//!    (by Clippy)         │                                    └─► lane ─┤
//!                        └─► warnings ──────────────────────────────────┘
//!
//! Clippy's driver compiles the workspace: it is the compiler with more lints. A separate run of
//! Clippy would check every crate again, those of others included, which takes minutes.
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
use std::time::{Duration, Instant};

/// The compiler of the workspace's own crates. `make built` names the same, or nothing it built
/// could be used here.
const COMPILER: (&str, &str) = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");

/// Programs that run at once. Most of them have several threads of their own.
const LANES: usize = 2;

/// Runs the tests of all programs whose names contain one of the filters, or of all programs.
/// True if they passed.
pub fn run(root: &Path, filters: &[&str]) -> io::Result<bool> {
    let start = Instant::now();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = built(&cargo, root)?;
    let mut runs = plan::plan(&built.programs);
    runs.retain(|run| filters.is_empty() || filters.iter().any(|part| run.name().contains(part)));
    if runs.is_empty() {
        return Err(io::Error::other(format!("no test program is named like {filters:?}")));
    }
    scatter(&runs[0].program)?;
    let mut reports = in_lanes(runs)?;
    reports.extend(built.lints());
    reports.sort_by_key(|report| std::cmp::Reverse(report.took));
    summarise(&reports, start);
    Ok(reports.iter().all(|report| report.passed))
}

/// The test programs, and the warnings of the compiler.
struct Built {
    programs: Vec<plan::TestProgram>,
    warnings: Vec<String>,
}

impl Built {
    /// From Cargo's messages, one for each line. Cargo repeats the warnings of crates that it does
    /// not compile again.
    fn from_messages(text: &str) -> serde_json::Result<Built> {
        let mut built = Built { programs: Vec::new(), warnings: Vec::new() };
        for line in text.lines() {
            let message: Value = serde_json::from_str(line)?;
            built.programs.extend(plan::TestProgram::from_message(&message));
            if let Some(shown) = message["message"]["rendered"].as_str() {
                built.warnings.push(shown.to_owned());
            }
        }
        built.warnings.sort();
        built.warnings.dedup();
        Ok(built)
    }

    /// A failed run, if the compiler warned.
    fn lints(&self) -> Option<RunReport> {
        (!self.warnings.is_empty()).then(|| RunReport {
            name: "clippy".into(),
            passed: false,
            ending: format!("{} warnings", self.warnings.len()),
            output: self.warnings.concat().into_bytes(),
            took: Duration::ZERO,
        })
    }
}

/// Builds the test programs.
fn built(cargo: &OsStr, root: &Path) -> io::Result<Built> {
    let mut command = Command::new(cargo);
    command.args(["test", "--locked", "--workspace", "--no-run", "--message-format=json"]);
    command.env(COMPILER.0, COMPILER.1).current_dir(root).stderr(Stdio::inherit());
    let output = command.output()?;
    let text = String::from_utf8(output.stdout).map_err(io::Error::other)?;
    let built = Built::from_messages(&text).map_err(io::Error::other)?;
    built.warnings.iter().for_each(|warning| eprint!("{warning}"));
    match output.status.success() {
        true => Ok(built),
        false => Err(io::Error::other("the tests do not compile")),
    }
}

/// Marks the directory that tests make their directories in, so that ext4 places each far from the
/// others. Inodes of removed directories would otherwise make new ones slow
/// (`stasis_sys::files::scatter_directories`). Other file systems, and hosts without `chattr`, do
/// without.
fn scatter(program: &plan::TestProgram) -> io::Result<()> {
    let Some(target) = program.executable.ancestors().nth(3) else { return Ok(()) };
    let tmp = target.join("tmp");
    std::fs::create_dir_all(&tmp)?;
    let _ = Command::new("chattr").arg("+T").arg(tmp).stderr(Stdio::null()).status();
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_the_compiler_is_a_failed_run() {
        let warning = r#"{"reason":"compiler-message","message":{"rendered":"warning: a\n"}}"#;
        let end = r#"{"reason":"build-finished","success":true}"#;
        let read = |lines: &[&str]| Built::from_messages(&lines.join("\n")).expect("messages");
        assert!(read(&[end]).lints().is_none());
        let lints = read(&[warning, warning, end]).lints().expect("a run");
        assert!(!lints.passed);
        assert_eq!((&*lints.ending, &*lints.output), ("1 warnings", &b"warning: a\n"[..]));
        assert!(Built::from_messages("not JSON").is_err());
    }
}
