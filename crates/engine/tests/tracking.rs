//! Memory that is not tracked from the start: what came on demand is tracked from the first capture
//! on, and what a program maps later from the capture that finds it.

mod common;

use common::{AFTER, Bench, Program, Result, Spec, Watch, within};
use stasis_engine::{Captured, Lazy};
use std::time::Duration;

#[test]
fn memory_that_came_on_demand_is_tracked_from_the_first_capture_on() {
    within(Duration::from_secs(600), |watch| capture_twice(&watch, "python_pandas_frames"))
        .unwrap();
}

fn capture_twice(watch: &Watch, name: &str) -> Result<()> {
    let mut bench = Bench::start(watch)?;
    let mut source = bench.launch(&Spec::named(name)?)?;
    source.check()?;
    let saved = bench.capture_last(source)?;
    bench.restart_with(Lazy { total: 1, mapping: 1 })?;
    let mut copy = bench.restore(&saved)?;
    let first = capture(&bench, &copy)?;
    copy.check()?;
    let second = capture(&bench, &copy)?;
    let read = (first.pages.read, second.pages.read);
    assert!(read.1 > 0 && read.1 * 4 < read.0, "pages looked at: {read:?}");
    let last = bench.capture(&copy)?;
    for mut program in [copy, bench.restore(&last)?] {
        program.speak(AFTER)?;
        program.quit()?;
    }
    Ok(())
}

#[test]
fn large_memory_mapped_later_is_tracked_from_its_first_capture_on() {
    within(Duration::from_secs(600), |watch| capture_late_memory(&watch, false)).unwrap();
    within(Duration::from_secs(600), |watch| capture_late_memory(&watch, true)).unwrap();
}

/// The program has 13 kinds of steps. Its memory is in huge pages in the first round, and in small
/// ones in the second. The clone of a parked template inherits its tracking; others make their own.
fn capture_late_memory(watch: &Watch, parked: bool) -> Result<()> {
    const ROUND: usize = 13;
    /// Steps that write 16 pages of memory that is tracked by then, and the one after all of it was
    /// written, and let go of.
    const FEW: [usize; 4] = [1, 2, 5, 6];
    const ALL: usize = 4;
    let bench = Bench::start(watch)?;
    let source = bench.launch(&Spec::named("late_memory")?)?;
    let saved = bench.capture_last(source)?;
    if parked {
        bench.park(&saved)?;
    }
    let mut program = bench.restore(&saved)?;
    for step in 0..ROUND * if parked { 1 } else { 2 } {
        watch.doing(format!("step {step}"));
        program.step()?;
        let captured = capture(&bench, &program)?;
        let (act, read) = (step % ROUND, captured.pages.read);
        assert!(!FEW.contains(&act) || read < 2000, "step {step} looked at {read} pages");
        assert!(act != ALL || read > 20_000, "step {step} looked at {read} pages");
        program.check()?;
        let saved = bench.capture(&program)?;
        let mut copy = bench.restore(&saved)?;
        copy.check()?;
        copy.kill()?;
    }
    program.quit()
}

fn capture(bench: &Bench, program: &Program) -> Result<Captured> {
    bench.engine().capture(&program.tree).map_err(|error| program.failure(error.to_string()))
}
