//! The same program holding a 1.5 GiB array.

use super::pause;
use crate::bench::bed::Bed;
use crate::bench::python::Python;
use crate::bench::report::Results;
use crate::bench::samples::Samples;
use crate::failure::{At, Result};
use stasis_engine::{Engine, Image};
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Instant;

/// 1.5 GiB of doubles, no two pages alike.
const MAKE: &str = "array = numpy.arange(3 << 26, dtype='f8')";
const SUM: &str = "array.sum()";

pub fn restore(bed: &Bed, results: &mut Results) -> Result<()> {
    let engine = bed.engine()?;
    let image = bed.large()?;
    let (mut reply_times, mut sum_times) = (Samples::default(), Samples::default());
    for _ in 0..bed.runs {
        engine.evict_all();
        bed.settle();
        let (mut python, reply, _) = Python::restore(bed.log(), engine, image)?;
        reply_times.push_ms(reply);
        let start = Instant::now();
        python.ask(SUM)?;
        sum_times.push_ms(start.elapsed());
        python.kill()?;
    }
    results.add("restore_1536mib_ms", reply_times);
    results.add("sum_1536mib_ms", sum_times);
    Ok(())
}

/// Every page of the array was in the last capture, and has been written since.
pub fn pause(bed: &Bed, results: &mut Results) -> Result<()> {
    let engine = bed.engine()?;
    let image = bed.large()?;
    let [mut stall, mut baseline, mut seen, mut total] = [(); 4].map(|()| Samples::default());
    engine.evict_all();
    for run in 0..bed.runs {
        let kept = packs(engine);
        let (mut python, ..) = Python::restore(bed.log(), engine, image)?;
        python.ask(&format!("array += {}", run + 1))?;
        bed.settle();
        let (gap, captured) = pause::during_capture(engine, &mut python)?;
        stall.push_ms(gap);
        seen.push_ms(captured.pause);
        total.push_ms(captured.total);
        let quiet = || Ok(std::thread::sleep(captured.total));
        baseline.push_ms(pause::longest_gap(&mut python, quiet)?.0);
        python.kill()?;
        // the disk need not hold twenty of them
        engine.store().forget();
        for path in packs(engine).difference(&kept) {
            std::fs::remove_file(path).at("remove", path)?;
        }
    }
    results.add("pause_1536mib_ms", stall);
    results.add("pause_1536mib_baseline_ms", baseline);
    results.add("pause_1536mib_engine_ms", seen);
    results.add("capture_1536mib_ms", total);
    Ok(())
}

/// The image with the array in it, and its pages in the page cache.
pub fn image(bed: &Bed) -> Result<Image> {
    let engine = bed.engine()?;
    let mut python = Python::launch(bed, engine)?;
    python.ask(MAKE)?;
    let image = engine.capture(&python.tree)?.image;
    python.kill()?;
    Ok(image)
}

fn packs(engine: &Engine) -> HashSet<PathBuf> {
    let dir = engine.store().dir().join("packs");
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
