//! Restore to first reply, with the image's template parked and without any.

use crate::bed::EngineBench;
use crate::python::PythonProcess;
use crate::report::Results;
use crate::samples::Samples;
use stasis_command::failure::Result;
use std::time::Instant;

pub fn run(bed: &EngineBench, results: &mut Results) -> Result<()> {
    let engine = bed.engine()?;
    let image = &bed.base()?.image;
    let [mut warm, mut call, mut kill, mut cold, mut park] = [(); 5].map(|()| Samples::default());
    bed.park_base()?;
    for _ in 0..bed.runs {
        bed.settle();
        let (python, reply, in_call) = PythonProcess::restore(bed.log(), engine, image)?;
        warm.push_ms(reply);
        call.push_ms(in_call);
        let start = Instant::now();
        python.kill()?;
        kill.push_ms(start.elapsed());
    }
    engine.evict_all();
    for _ in 0..bed.runs {
        bed.settle();
        let (python, reply, _) = PythonProcess::restore(bed.log(), engine, image)?;
        cold.push_ms(reply);
        python.kill()?;
    }
    for _ in 0..bed.runs {
        engine.evict_all();
        bed.settle();
        let start = Instant::now();
        engine.park(image)?;
        park.push_ms(start.elapsed());
    }
    results.add("restore_ms", warm);
    results.add("restore_call_ms", call);
    results.add("kill_ms", kill);
    results.add("restore_cold_ms", cold);
    results.add("park_ms", park);
    Ok(())
}
