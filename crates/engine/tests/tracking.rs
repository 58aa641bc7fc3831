//! A tree whose memory came on demand is not tracked from the start, but from its first capture on.

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

fn capture(bench: &Bench, program: &Program) -> Result<Captured> {
    bench.engine().capture(&program.tree).map_err(|error| program.failure(error.to_string()))
}
