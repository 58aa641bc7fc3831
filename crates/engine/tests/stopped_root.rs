//! A tree whose first process is stopped from outside comes back stopped, and goes on when told.

mod common;

use common::{AFTER, Bench, Failure, Program, Result, Spec, Watch, within};
use stasis_sys::libc;
use std::time::{Duration, Instant};

#[test]
fn a_stopped_root_comes_back_stopped() {
    within(Duration::from_secs(600), |watch| stop_and_go_on(&watch, "threads_futex")).unwrap();
}

fn stop_and_go_on(watch: &Watch, name: &str) -> Result<()> {
    let bench = Bench::start(watch)?;
    let mut source = bench.launch(&Spec::named(name)?)?;
    source.check()?;
    signal(&source, libc::SIGSTOP)?;
    await_state(&source, true)?;
    let saved = bench.capture(&source)?;
    await_state(&source, true)?;
    let copy = bench.restore(&saved)?;
    let again = bench.capture(&copy)?;
    let last = bench.restore(&again)?;
    for mut program in [source, copy, last] {
        await_state(&program, true)?;
        signal(&program, libc::SIGCONT)?;
        await_state(&program, false)?;
        program.speak(AFTER)?;
        program.quit()?;
    }
    Ok(())
}

fn signal(program: &Program, signal: i32) -> Result<()> {
    stasis_sys::process::kill(program.tree.pid(), signal).map_err(Failure::setup)
}

/// Waits until every thread of the root is stopped, or none is.
fn await_state(program: &Program, stopped: bool) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(120);
    while Instant::now() < end {
        let states = states(program.tree.pid()).map_err(Failure::setup)?;
        if states.iter().all(|state| (*state == 'T') == stopped) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(program.failure(format!("is not as expected: stopped {stopped}")))
}

fn states(pid: i32) -> std::io::Result<Vec<char>> {
    let mut states = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = std::fs::read_to_string(entry?.path().join("stat"))?;
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        states.extend(state);
    }
    Ok(states)
}
