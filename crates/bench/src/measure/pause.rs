//! The stall of a source during a capture, seen by a thread inside that only reads the clock.

use crate::bed::{EngineBench, StoreContents};
use crate::python::PythonProcess;
use crate::report::Results;
use crate::samples::Samples;
use stasis_command::failure::{CliFailure, PathContext, Result};
use stasis_engine::{Captured, Engine};
use std::time::Duration;

/// The spinner does not count its first 10 ms, in which the reply to its start is sent.
const GRACE: Duration = Duration::from_millis(15);

/// Every run captures a process just started, into an empty store: nothing is shared, no page is
/// known, and no memory was ever forked.
pub fn run(bed: &EngineBench, results: &mut Results) -> Result<()> {
    let [mut pause, mut baseline, mut seen, mut total, mut size] =
        [(); 5].map(|()| Samples::default());
    for _ in 0..bed.runs {
        let dir = bed.fresh_dir("first");
        let engine = bed.new_engine(&dir)?;
        let mut python = PythonProcess::launch(bed, &engine)?;
        bed.settle();
        let (gap, captured) = during_capture(&engine, &mut python)?;
        pause.push_ms(gap);
        baseline.push_ms(without_capture(&mut python, captured.total)?);
        seen.push_ms(captured.pause);
        total.push_ms(captured.total);
        size.push(StoreContents::look(&engine).bytes() as f64 / f64::from(1 << 20));
        python.kill()?;
        drop(engine);
        std::fs::remove_dir_all(&dir).at("remove", &dir)?;
    }
    results.add("pause_first_ms", pause);
    results.add("pause_first_baseline_ms", baseline);
    results.add("pause_first_engine_ms", seen);
    results.add("capture_full_ms", total);
    results.add("image_mib", size);
    Ok(())
}

/// Captures a process and returns its longest stall meanwhile.
pub fn during_capture(engine: &Engine, python: &mut PythonProcess) -> Result<(Duration, Captured)> {
    start(python)?;
    let captured = engine.capture(&python.tree)?;
    Ok((stop(python)?, captured))
}

/// The longest stall in that much time without a capture.
pub fn without_capture(python: &mut PythonProcess, time: Duration) -> Result<Duration> {
    start(python)?;
    std::thread::sleep(time);
    stop(python)
}

fn start(python: &mut PythonProcess) -> Result<()> {
    python.ask("spinner.start()")?;
    std::thread::sleep(GRACE);
    Ok(())
}

fn stop(python: &mut PythonProcess) -> Result<Duration> {
    let gap = python.ask("spinner.stop()")?;
    let nanoseconds = gap.parse().map_err(|_| {
        CliFailure::new("bench.wrong_answer", format!("the spinner answered `{gap}`"))
    })?;
    Ok(Duration::from_nanos(nanoseconds))
}
