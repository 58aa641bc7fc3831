//! Capture of a clone after a small change: how long, how much, and how long it stalled.

use super::pause;
use crate::bench::bed::{Bed, stored_bytes};
use crate::bench::python::Python;
use crate::bench::report::Results;
use crate::bench::samples::Samples;
use crate::failure::Result;

const SMALL_CHANGE: &str = "log.append([x, frame.a.mean()])";

pub fn run(bed: &Bed, results: &mut Results) -> Result<()> {
    let engine = bed.engine()?;
    let image = &bed.base()?.image;
    let [mut total, mut size, mut stall] = [(); 3].map(|()| Samples::default());
    bed.park_base()?;
    for _ in 0..bed.runs {
        let (mut python, ..) = Python::restore(bed.log(), engine, image)?;
        python.ask(SMALL_CHANGE)?;
        bed.settle();
        let before = stored_bytes(engine);
        let captured = engine.capture(&python.tree)?;
        total.push_ms(captured.total);
        size.push((stored_bytes(engine) - before) as f64 / 1024.0);
        python.kill()?;
    }
    // apart from the above: the spinner's thread and its stack are not a small change
    for _ in 0..bed.runs {
        let (mut python, ..) = Python::restore(bed.log(), engine, image)?;
        python.ask(SMALL_CHANGE)?;
        bed.settle();
        stall.push_ms(pause::during_capture(engine, &mut python)?.0);
        python.kill()?;
    }
    results.add("diff_ms", total);
    results.add("diff_kib", size);
    results.add("diff_pause_ms", stall);
    Ok(())
}
