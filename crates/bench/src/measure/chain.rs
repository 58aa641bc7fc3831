//! Whether restore grows slower with depth: a lineage of captures, each of a tree restored from
//! the one before.

use crate::bed::EngineBench;
use crate::python::PythonProcess;
use crate::report::Results;
use crate::samples::Samples;
use stasis_command::failure::Result;

const DEPTH: usize = 32;

pub fn run(bed: &EngineBench, results: &mut Results) -> Result<()> {
    let engine = bed.engine()?;
    let base = &bed.base()?.image;
    bed.park_base()?;
    let mut deep = base.clone();
    for step in 0..DEPTH {
        let (mut python, ..) = PythonProcess::restore(bed.log(), engine, &deep)?;
        python.ask(&format!("log.append(numpy.arange({step}, {step} + 1000))"))?;
        deep = engine.capture(&python.tree)?.image;
        python.kill()?;
    }
    let (mut shallow_times, mut deep_times) = (Samples::default(), Samples::default());
    // alternating, so that a noisy moment affects both
    for _ in 0..bed.runs {
        for (image, times) in [(base, &mut shallow_times), (&deep, &mut deep_times)] {
            bed.settle();
            let (python, reply, _) = PythonProcess::restore(bed.log(), engine, image)?;
            times.push_ms(reply);
            python.kill()?;
        }
    }
    if let (Some(shallow), Some(deep)) = (shallow_times.p50(), deep_times.p50()) {
        results.add("chain_32_ratio", deep / shallow);
    }
    results.add("chain_0_ms", shallow_times);
    results.add("chain_32_ms", deep_times);
    Ok(())
}
