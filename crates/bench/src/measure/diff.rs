//! Capture of a clone after a small change: how long, how much, and how long it stalled.

use super::pause;
use crate::bed::{EngineBench, StoreContents};
use crate::python::PythonProcess;
use crate::report::Results;
use crate::samples::Samples;
use stasis_command::failure::Result;

const SMALL_CHANGE: &str = "log.append([x, x + 1])";

pub fn run(bed: &EngineBench, results: &mut Results) -> Result<()> {
    let engine = bed.engine()?;
    let image = &bed.base()?.image;
    let [mut total, mut size, mut pages, mut stall, mut seen] =
        [(); 5].map(|()| Samples::default());
    bed.park_base()?;
    let before = StoreContents::look(engine);
    before.bring_back(engine, image)?;
    for _ in 0..bed.runs {
        let (mut python, ..) = PythonProcess::restore(bed.log(), engine, image)?;
        python.ask(SMALL_CHANGE)?;
        bed.settle();
        let captured = engine.capture(&python.tree)?;
        total.push_ms(captured.total);
        let added = StoreContents::look(engine).bytes() - before.bytes();
        size.push(added as f64 / 1024.0);
        pages.push(captured.pages.new as f64 * 4.0);
        python.kill()?;
        before.bring_back(engine, image)?;
    }
    // apart from the above: the spinner's thread and its stack are not a small change
    for _ in 0..bed.runs {
        let (mut python, ..) = PythonProcess::restore(bed.log(), engine, image)?;
        python.ask(SMALL_CHANGE)?;
        bed.settle();
        let (gap, captured) = pause::during_capture(engine, &mut python)?;
        stall.push_ms(gap);
        seen.push_ms(captured.pause);
        python.kill()?;
        before.bring_back(engine, image)?;
    }
    results.add("diff_ms", total);
    results.add("diff_kib", size);
    results.add("diff_pages_kib", pages);
    results.add("pause_ms", stall);
    results.add("pause_engine_ms", seen);
    Ok(())
}
