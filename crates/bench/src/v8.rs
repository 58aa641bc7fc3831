//! `stasis bench mcp-v8`: runs through mcp-v8's API, over loopback.
//!
//!   this process, a connection per client ── POST /api/exec?wait ──► `stasis serve`
//!
//! A run of a session counts up a number that only the session's state holds, and its output must
//! be the next number. A stateless run must not find the number. A run that is answered has its
//! heap key, and with it a state on disk.

use super::choice::{BenchArgs, DirArgs};
use super::machine::{self, BenchLanguage};
use super::metrics::{MetricGroup, V8_METRICS, V8Group};
use super::report::Results;
use super::samples::Samples;
use super::service::{Http, ServiceBench};
use serde_json::{Value, json};
use stasis_command::failure::{CliFailure, Result};
use stasis_command::install;
use stasis_machine::{Host, Settings};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Counts in the state of its session.
const COUNT: &str = "globalThis.n = (globalThis.n ?? 0) + 1; console.log(n)";
const EXEC: &str = "/api/exec?wait=60";
/// The header that has a run keep nothing.
const STATELESS: &str = "x-mcp-v8-mode: stateless\r\n";
/// Rates are measured so many times.
const ROUNDS: usize = 5;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: BenchArgs,
    #[command(flatten)]
    data: DirArgs,
    /// Number of sessions, and of clients, at once
    #[arg(long, value_name = "N", default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    sessions: u16,
}

struct V8Bench {
    service: ServiceBench,
    runs: usize,
    sessions: usize,
    round: Duration,
}

/// One connection, and the session it counts in.
struct Counter {
    http: Http,
    session: Option<String>,
    count: u64,
}

impl Counter {
    fn open(bed: &V8Bench, session: Option<String>) -> Result<Counter> {
        let http = bed.service.http()?;
        let http = if session.is_none() { http.with_header(STATELESS) } else { http };
        Ok(Counter { http, session, count: 0 })
    }

    /// One run, which must give the next number.
    fn run(&mut self) -> Result<Duration> {
        let body = match &self.session {
            Some(session) => json!({ "code": COUNT, "session": session }),
            None => json!({ "code": COUNT }),
        };
        let start = Instant::now();
        let end = self.http.post(EXEC, &body)?;
        let took = start.elapsed();
        self.count += 1;
        let expected = if self.session.is_some() { self.count } else { 1 }.to_string();
        let keeps = end["heap"].is_string() == self.session.is_some();
        match end["output"] == *expected && keeps {
            true => Ok(took),
            false => Err(wrong(&end, &expected)),
        }
    }
}

fn wrong(end: &Value, expected: &str) -> CliFailure {
    CliFailure::new("bench.wrong_answer", format!("instead of {expected} a run gave {end}"))
}

pub fn run(args: Args) -> Result<ExitCode> {
    let dir = &args.data.dir;
    let run = args.choice.begin(V8_METRICS, dir)?;
    prepare(dir)?;
    let service = ServiceBench::start(dir, run.runs, args.choice.quick)?;
    let round = Duration::from_secs(if args.choice.quick { 1 } else { 5 });
    let bed = V8Bench { service, runs: run.runs, sessions: args.sessions.into(), round };
    let results = run.measure(|group, results| match group {
        MetricGroup::V8(V8Group::Session) => session(&bed, results),
        MetricGroup::V8(V8Group::Resumed) => resumed(&bed, results),
        _ => fresh(&bed, results),
    });
    let cleared = bed.service.clear();
    drop(bed);
    let exit = run.say(results?);
    cleared.map(|()| exit)
}

/// Builds the template of the machines that run code, before the service is there.
fn prepare(dir: &Path) -> Result<()> {
    let host = Host::open(Settings::new(dir.to_owned(), install::spawner()?))?;
    machine::build(&host, BenchLanguage::Javascript)
}

fn session(bed: &V8Bench, results: &mut Results) -> Result<()> {
    let mut alone = Counter::open(bed, Some(name("alone", 0)))?;
    results.add("session_run_ms", one_by_one(bed, &mut alone)?);
    let open = |n| Counter::open(bed, Some(name("many", n)));
    let mut all = (0..bed.sessions).map(open).collect::<Result<Vec<_>>>()?;
    let (rates, each) = at_once(bed, &mut all)?;
    results.add("session_runs_per_s", rates);
    results.add("session_loaded_ms", each);
    Ok(())
}

/// The state of each run is read from disk first.
fn resumed(bed: &V8Bench, results: &mut Results) -> Result<()> {
    let mut own = Counter::open(bed, Some(name("resumed", 0)))?;
    own.run()?;
    let mut samples = Samples::default();
    for _ in 0..bed.runs {
        bed.service.swap_all()?;
        samples.push_ms(own.run()?);
    }
    results.add("resumed_run_ms", samples);
    Ok(())
}

fn fresh(bed: &V8Bench, results: &mut Results) -> Result<()> {
    results.add("fresh_run_ms", one_by_one(bed, &mut Counter::open(bed, None)?)?);
    let open = |_| Counter::open(bed, None);
    let mut all = (0..bed.sessions).map(open).collect::<Result<Vec<_>>>()?;
    let (rates, each) = at_once(bed, &mut all)?;
    results.add("fresh_runs_per_s", rates);
    results.add("fresh_loaded_ms", each);
    Ok(())
}

/// A name no earlier bench has used in this directory.
fn name(kind: &str, n: usize) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("{kind}-{n}-{}", now.unwrap_or_default().as_nanos())
}

fn one_by_one(bed: &V8Bench, counter: &mut Counter) -> Result<Samples> {
    counter.run()?;
    let mut samples = Samples::default();
    for _ in 0..bed.runs * 5 {
        samples.push_ms(counter.run()?);
    }
    Ok(samples)
}

/// Runs per second while every client has one under way all the time, and how long each took.
fn at_once(bed: &V8Bench, all: &mut [Counter]) -> Result<(Samples, Samples)> {
    round(all, bed.round)?;
    let (mut rates, mut each) = (Samples::default(), Samples::default());
    for _ in 0..bed.runs.min(ROUNDS) {
        let (rate, took) = round(all, bed.round)?;
        rates.push(rate);
        took.each().for_each(|sample| each.push(sample));
    }
    Ok((rates, each))
}

fn round(all: &mut [Counter], length: Duration) -> Result<(f64, Samples)> {
    let start = Instant::now();
    let taken: Vec<Result<Vec<Duration>>> = std::thread::scope(|scope| {
        let runs = |counter: &mut Counter| {
            let mut own = Vec::new();
            while start.elapsed() < length {
                own.push(counter.run()?);
            }
            Ok(own)
        };
        let threads: Vec<_> =
            all.iter_mut().map(|counter| scope.spawn(move || runs(counter))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let length = start.elapsed().as_secs_f64();
    let mut each = Samples::default();
    for took in taken.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten() {
        each.push_ms(took);
    }
    Ok((each.count() as f64 / length, each))
}
