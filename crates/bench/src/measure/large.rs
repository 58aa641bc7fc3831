//! The same program with a 1.5 GiB array.

use super::pause;
use crate::bed::{EngineBench, StoreContents};
use crate::python::PythonProcess;
use crate::report::Results;
use crate::samples::Samples;
use stasis_command::failure::{PathContext, Result};
use stasis_engine::{Engine, Image};
use std::fs::File;
use std::io;
use std::time::Instant;

/// 1.5 GiB of doubles, no two pages alike.
const MAKE: &str = "array = numpy.arange(3 << 26, dtype='f8')";
/// A baseline takes as long as a capture of all that; it need not be had for each.
const BASELINE_EVERY: usize = 4;
const SUM: &str = "array.sum()";

pub fn restore(bed: &EngineBench, results: &mut Results) -> Result<()> {
    let engine = bed.engine()?;
    let image = bed.large()?;
    let (mut reply_times, mut sum_times) = (Samples::default(), Samples::default());
    warm(engine, image)?;
    for _ in 0..bed.runs {
        engine.evict_all();
        bed.settle();
        let (mut python, reply, _) = PythonProcess::restore(bed.log(), engine, image)?;
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
pub fn pause(bed: &EngineBench, results: &mut Results) -> Result<()> {
    let engine = bed.engine()?;
    let image = bed.large()?;
    let [mut stall, mut baseline, mut seen, mut total] = [(); 4].map(|()| Samples::default());
    engine.evict_all();
    let before = StoreContents::look(engine);
    for run in 0..bed.runs {
        let (mut python, ..) = PythonProcess::restore(bed.log(), engine, image)?;
        python.ask(&format!("array += {}", run + 1))?;
        bed.settle();
        let (gap, captured) = pause::during_capture(engine, &mut python)?;
        stall.push_ms(gap);
        seen.push_ms(captured.pause);
        total.push_ms(captured.total);
        if run % BASELINE_EVERY == 0 {
            baseline.push_ms(pause::without_capture(&mut python, captured.total)?);
        }
        python.kill()?;
        before.bring_back(engine, image)?;
    }
    results.add("pause_1536mib_ms", stall);
    results.add("pause_1536mib_baseline_ms", baseline);
    results.add("pause_1536mib_engine_ms", seen);
    results.add("capture_1536mib_ms", total);
    Ok(())
}

/// The image with the array in it.
pub fn image(bed: &EngineBench) -> Result<Image> {
    let engine = bed.engine()?;
    let mut python = PythonProcess::launch(bed, engine)?;
    python.ask(MAKE)?;
    let image = engine.capture(&python.tree)?.image;
    python.kill()?;
    Ok(image)
}

/// Reads an image's packs once.
fn warm(engine: &Engine, image: &Image) -> Result<()> {
    for pack in &image.manifest.meta.packs {
        let path = engine.store().dir().join("packs").join(format!("{}.pack", pack.root));
        let read = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
        read.at("read", &path)?;
    }
    Ok(())
}
