//! A hundred clones from one parked template: the time until each has replied, and the private
//! memory of each afterwards.

use crate::bed::EngineBench;
use crate::python::PythonProcess;
use crate::report::Results;
use crate::samples::Samples;
use stasis_command::failure::{CliFailure, Result};
use stasis_engine::{Engine, Image};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLONES: usize = 100;

pub fn run(bed: &EngineBench, results: &mut Results) -> Result<()> {
    let engine = bed.engine()?;
    let image = &bed.base()?.image;
    let [mut spawn, mut private, mut pss, mut tables] = [(); 4].map(|()| Samples::default());
    bed.park_base()?;
    for _ in 0..bed.runs {
        bed.settle();
        let (clones, time) = spawn_all(bed, engine, image)?;
        spawn.push_ms(time);
        let memory = Memory::of(&clones)?;
        private.push(memory.private_kib);
        pss.push(memory.pss_kib);
        tables.push(memory.page_tables_kib);
        for clone in clones {
            clone.kill()?;
        }
    }
    results.add("spawn_100_ms", spawn);
    results.add("private_kib_per_clone", private);
    results.add("pss_kib_per_clone", pss);
    results.add("page_tables_kib_per_clone", tables);
    Ok(())
}

/// From the first call to the last reply, by as many threads as a small daemon would use.
fn spawn_all(
    bed: &EngineBench,
    engine: &Engine,
    image: &Image,
) -> Result<(Vec<PythonProcess>, Duration)> {
    let threads = std::thread::available_parallelism().map_or(2, |cpus| cpus.get()).clamp(2, 4);
    let log = bed.log();
    let taken = AtomicUsize::new(0);
    let work = || -> Result<Vec<PythonProcess>> {
        let mut clones = Vec::new();
        while taken.fetch_add(1, Ordering::Relaxed) < CLONES {
            clones.push(PythonProcess::restore(log, engine, image)?.0);
        }
        Ok(clones)
    };
    let start = Instant::now();
    let parts: Vec<Result<Vec<PythonProcess>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let lost = || Err(CliFailure::new("bench.thread", "a measuring thread ended early"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| lost())).collect()
    });
    let time = start.elapsed();
    let mut clones = Vec::with_capacity(CLONES);
    for part in parts {
        clones.extend(part?);
    }
    Ok((clones, time))
}

/// Means over all clones, each with its machine's init.
struct Memory {
    private_kib: f64,
    pss_kib: f64,
    page_tables_kib: f64,
}

impl Memory {
    fn of(clones: &[PythonProcess]) -> Result<Memory> {
        let (mut pss, mut private, mut tables) = (0, 0, 0);
        for clone in clones {
            let (own_pss, own_private) = clone.tree.memory_kib()?;
            pss += own_pss;
            private += own_private;
            tables += clone.tree.processes()?.into_iter().map(page_tables_kib).sum::<u64>();
        }
        let mean = |sum: u64| sum as f64 / clones.len() as f64;
        Ok(Memory { private_kib: mean(private), pss_kib: mean(pss), page_tables_kib: mean(tables) })
    }
}

fn page_tables_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
