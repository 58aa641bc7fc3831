//! Every program of `tests/programs` through every event of a machine's life.
//!
//!   launch ─► before ─► event (capture, restore, branch, park, restart ...) ─► after
//!                                                                              │
//!        undisturbed run of the same commands ───── every answer equal? ◄──────┘
//!
//! One test per pair, named `program::event`.

#[path = "../common/mod.rs"]
mod common;
mod events;
mod stage;

use common::{Failure, Kind, Spec, within};
use events::Event;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use stage::Stage;
use stasis_engine::WallsConfig;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longer than any single answer may take: the report of a hang should come from the program.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // many wait for a clock or for the disk; more at once would only measure the scheduler
    args.test_threads = Some(args.test_threads.map_or(3, |threads| threads.min(3)));
    match trials() {
        Ok(trials) => libtest_mimic::run(&args, trials).exit_code(),
        Err(failure) => {
            eprintln!("lifecycle: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn trials() -> common::Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for spec in Spec::all()? {
        for event in events_of(&spec) {
            let (spec, name) = (spec.clone(), format!("{}::{}", spec.name, event.name));
            trials.push(Trial::ignorable_test(name.clone(), move || {
                let start = Instant::now();
                let result = within(LIMIT, move |watch| run(&spec, event, &watch));
                report_time(&name, start);
                conclude(result)
            }));
        }
    }
    Ok(trials)
}

/// Interpreters take long to start and share one kernel interface: fewer events tell as much, but
/// for a program whose state is a kind of its own.
fn events_of(spec: &Spec) -> Vec<&'static Event> {
    let chosen = |event: &&Event| match (spec.refused, spec.kind) {
        (true, _) => ["plain", "refused"].contains(&event.name),
        (false, kind) if kind == Kind::C || spec.every_event => {
            !["refused", "chain_5"].contains(&event.name)
        }
        (false, _) => {
            ["capture_restore", "chain_5", "parked", "on_demand", "engine_restart", "walled"]
                .contains(&event.name)
        }
    };
    events::EVENTS.iter().filter(chosen).collect()
}

fn run(spec: &Spec, event: &Event, watch: &common::Watch) -> common::Result<()> {
    let walls = match event.walled {
        true => WallsConfig::default(),
        false => WallsConfig::namespaces_only(),
    };
    let mut stage = Stage::open(spec, walls, watch)?;
    (event.run)(&mut stage)
}

fn conclude(result: common::Result<()>) -> Result<Completion, Failed> {
    match result {
        Ok(()) => Ok(Completion::Completed),
        Err(Failure::Skip(why)) => Ok(Completion::ignored_with(why)),
        Err(failure) => Err(failure.into()),
    }
}

/// With STASIS_TEST_TIMES, how long each test took.
fn report_time(name: &str, start: Instant) {
    if std::env::var_os("STASIS_TEST_TIMES").is_some() {
        eprintln!("{:8.2} s  {name}", start.elapsed().as_secs_f64());
    }
}
