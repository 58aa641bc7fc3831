//! Captures at random instants: the source ends with each, and a copy goes on.

use crate::common::{Failure, Result, Watch};
use crate::modules::Module;
use crate::run::{Outcomes, RunningCopy, Stage};
use stasis_engine::{Error, Image};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Events during the run.
#[derive(Default)]
pub struct Told {
    pub restores: u32,
    /// Refused captures by reason.
    pub refused: BTreeMap<String, u32>,
    /// The end of what the tests wrote to standard error.
    pub complaints: String,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} restores", self.restores)?;
        for (reason, count) in &self.refused {
            write!(f, ", {count} refused ({reason})")?;
        }
        Ok(())
    }
}

/// Between two captures, in milliseconds.
const SHORTEST: u64 = 10;

pub fn run(module: Module, watch: &Watch) -> Result<(Outcomes, Told)> {
    let stage = Stage::open(watch)?;
    let mut random = Random::of(module.name);
    let mut told = Told::default();
    let mut copy = stage.launch(module)?;
    let mut patience = Patience::default();
    // the first comes at once: a quick module would be over before any other
    let mut longest = SHORTEST + 1;
    loop {
        let pause = random.between(SHORTEST, longest) << patience.doublings(stage.heard.current());
        let pause = Duration::from_millis(pause);
        longest = module.pause;
        if stage.wait(&copy, pause)? {
            break;
        }
        report(&stage, &told);
        copy = match capture(&stage, &copy, &mut told)? {
            Some(image) => {
                copy.end()?;
                told.restores += 1;
                restore(&stage, &image)?
            }
            None => copy,
        };
    }
    copy.end()?;
    told.complaints = stage.complaints();
    Ok((stage.heard.outcomes(), told))
}

/// A wait with a relative timeout begins again in every copy. Copies are therefore made less and
/// less often while one test lasts, or such a wait would never end.
#[derive(Default)]
struct Patience {
    test: String,
    disturbed: u32,
}

impl Patience {
    fn doublings(&mut self, test: String) -> u32 {
        const AT_ONCE: u32 = 3;
        const MOST: u32 = 6;
        if self.test != test {
            *self = Patience { test, disturbed: 0 };
        }
        self.disturbed += 1;
        self.disturbed.saturating_sub(AT_ONCE).min(MOST)
    }
}

/// With STASIS_TEST_TIMES, where the tests are.
fn report(stage: &Stage, told: &Told) {
    if std::env::var_os("STASIS_TEST_TIMES").is_some() {
        eprintln!(
            "    {:8.2} s  {} ({told})",
            stage.begun.elapsed().as_secs_f64(),
            stage.heard.current()
        );
    }
}

/// `None` when it is refused, or when the tests are over meanwhile.
fn capture(stage: &Stage, copy: &RunningCopy, told: &mut Told) -> Result<Option<Image>> {
    stage.watch.doing(format!("capture in {}", stage.heard.current()));
    match stage.bench.engine().capture_last(&copy.tree) {
        Ok(captured) => Ok(Some(captured.image)),
        Err(Error::Refused { what, .. }) => {
            let reason = what.replace(|c: char| c.is_ascii_digit(), "");
            *told.refused.entry(reason).or_default() += 1;
            Ok(None)
        }
        Err(_) if stage.heard.is_done() || !copy.tree.is_alive() => Ok(None),
        Err(error) => {
            let current = stage.heard.current();
            Err(Failure::Program(format!("capture in {current}: [{}] {error}", error.code())))
        }
    }
}

fn restore(stage: &Stage, image: &Image) -> Result<RunningCopy> {
    let current = stage.heard.current();
    stage.watch.doing(format!("restore in {current}"));
    let (fds, ours) = stage.descriptors()?;
    let tree = stage.bench.engine().restore(image, fds);
    let failed = |error: Error| format!("restore in {current}: [{}] {error}", error.code());
    Ok(stage.hear(tree.map_err(|error| Failure::Program(failed(error)))?, ours))
}

/// The same instants, as far as time allows, in every run.
struct Random(u64);

impl Random {
    fn of(name: &str) -> Random {
        Random(name.bytes().fold(0xcbf2_9ce4_8422_2325, |state, byte| {
            (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        }))
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + self.0 % (high - low)
    }
}
