//! Captures at random instants, and one process swapped out and in again and again.
//!
//! Short by default; STASIS_SOAK=1 makes it long. STASIS_SEED repeats a run: the instants are the
//! same, what the program was doing by then is not.

mod common;

use common::{Bench, Failure, Program, Result, Spec, Watch, within};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn registers_at_random_instants() {
    random_instants("registers_fpu");
}

#[test]
fn allocator_at_random_instants() {
    random_instants("malloc_churn");
}

#[test]
fn growing_memory_at_random_instants() {
    random_instants("growth");
}

#[test]
fn numpy_at_random_instants() {
    random_instants("python_numpy_threads");
}

#[test]
fn one_python_process_swapped_again_and_again() {
    run(|watch| swap_cycles(watch, rounds(20, 100)));
}

fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("STASIS_SOAK").is_some() { long } else { short }
}

fn run(body: impl FnOnce(&Watch) -> Result<()> + Send + 'static) {
    let limit = Duration::from_secs(if rounds(0, 1) == 0 { 300 } else { 3600 });
    match within(limit, move |watch| body(&watch)) {
        Ok(()) => {}
        Err(Failure::Skip(why)) => println!("skipped: {why}"),
        Err(failure) => panic!("{failure}"),
    }
}

fn random_instants(name: &'static str) {
    run(move |watch| {
        let seed = seed();
        println!("{name}: STASIS_SEED={seed}");
        let rounds = rounds(10, 200);
        Instants::begin(name, watch, seed, rounds)?.go(rounds)
    });
}

fn seed() -> u64 {
    let given = std::env::var("STASIS_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64)
    })
}

struct Instants {
    bench: Bench,
    program: Program,
    /// Digests of an undisturbed run, by how many steps were done.
    digests: Vec<String>,
    steps: usize,
    random: fastrand::Rng,
}

impl Instants {
    fn begin(name: &str, watch: &Watch, seed: u64, rounds: usize) -> Result<Instants> {
        let spec = Spec::named(name)?;
        let bench = Bench::start(watch)?;
        let digests = digests(bench.launch(&spec)?, rounds)?;
        let program = bench.launch(&spec)?;
        Ok(Instants { bench, program, digests, steps: 0, random: fastrand::Rng::with_seed(seed) })
    }

    fn go(mut self, rounds: usize) -> Result<()> {
        for round in 0..rounds {
            self.round(round % 2 == 1)?;
        }
        self.program.check()?;
        self.program.quit()
    }

    /// Captures in the middle of a step; goes on with the source, or with the copy alone.
    fn round(&mut self, go_on_with_copy: bool) -> Result<()> {
        self.program.say("step")?;
        let limit = 1 << self.random.u64(..15); // as often microseconds as milliseconds
        std::thread::sleep(Duration::from_micros(self.random.u64(..limit)));
        let saved = self.bench.capture(&self.program)?;
        let mut copy = self.bench.restore(&saved)?;
        let done = self.look_at(&mut copy)?;
        if go_on_with_copy {
            std::mem::replace(&mut self.program, copy).kill()?;
            self.steps = done;
        } else {
            copy.kill()?;
            self.finish_source()?;
        }
        Ok(())
    }

    fn finish_source(&mut self) -> Result<()> {
        let said = self.program.hear("step")?;
        if said != "stepped" {
            return Err(self.program.failure(format!("answers `step` with `{said}`")));
        }
        self.steps += 1;
        self.program.check()?;
        let digest = self.program.digest()?;
        if digest != self.digests[self.steps] {
            return Err(self.program.failure(format!("has digest {digest} after a capture")));
        }
        Ok(())
    }

    /// Checks a copy made at an unknown point of a step; how many steps it has done. It may have
    /// read none of the command, some of it (the rest is in its source's socket), or all.
    fn look_at(&self, copy: &mut Program) -> Result<usize> {
        copy.say("\ncheck")?; // ends whatever it has read so far
        loop {
            let said = copy.hear("check")?;
            match said.as_str() {
                "ok" => break,
                "stepped" => {}
                other if other.starts_with("unknown") => {}
                other => return Err(copy.failure(format!("answers `check` with `{other}`"))),
            }
        }
        let digest = copy.digest()?;
        let possible = self.steps..=self.steps + 1;
        possible.clone().find(|steps| self.digests[*steps] == digest).ok_or_else(|| {
            copy.failure(format!("has digest {digest}, of no run with {possible:?} steps"))
        })
    }
}

/// The state of an undisturbed run after each step. It ends before the test begins: busy programs
/// would compete for the processors.
fn digests(mut undisturbed: Program, steps: usize) -> Result<Vec<String>> {
    let mut digests = vec![undisturbed.digest()?];
    for _ in 0..steps {
        undisturbed.step()?;
        digests.push(undisturbed.digest()?);
    }
    undisturbed.quit()?;
    Ok(digests)
}

/// Out and in again, each time compared with a run that stays in.
fn swap_cycles(watch: &Watch, cycles: usize) -> Result<()> {
    let spec = Spec::named("python_random_streams")?;
    let bench = Bench::start(watch)?;
    let mut undisturbed = bench.launch(&spec)?;
    let mut program = bench.launch(&spec)?;
    for cycle in 0..cycles {
        program.step()?;
        undisturbed.step()?;
        let saved = bench.capture(&program)?;
        program.kill()?;
        program = bench.restore(&saved)?;
        let (got, expected) = (program.digest()?, undisturbed.digest()?);
        if got != expected {
            let text = format!("has digest {got} after cycle {cycle}, expected {expected}");
            return Err(program.failure(text));
        }
    }
    program.check()?;
    program.quit()
}
