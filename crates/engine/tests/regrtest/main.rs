//! CPython's own regression tests, with captures and restores forced in between and during.
//!
//!   undisturbed:  launch ───────────────────────────────► outcomes
//!   disturbed:    launch ─► capture, kill, restore ─► capture, kill, restore ─► ... ─► outcomes
//!                                                                  the same tests pass?
//!
//! One test per module. Instants are chosen by a generator seeded with the module's name. A refused
//! capture is retried a little later. Known differences are in `differences.toml`, with the reason;
//! an entry of a test that no longer exists fails, and so does a test that differs every time
//! without an entry. `STASIS_SOAK=1` runs the whole list, otherwise the short modules run.

#[path = "../common/mod.rs"]
mod common;
mod differences;
mod disturb;
mod modules;
mod run;

use common::{Failure, Result, Watch, within};
use differences::Differences;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use run::{Outcome, Outcomes};
use std::process::ExitCode;
use std::time::Duration;

/// Some tests bound the duration of a call, and a capture during it on a busy host takes longer. A
/// test that differs every time is our bug.
const TRIES: u32 = 3;

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // the tests measure time, and so have the machine to themselves
    args.test_threads = Some(1);
    let soak = std::env::var_os("STASIS_SOAK").is_some();
    let all = modules::chosen(soak).into_iter().map(|module| {
        Trial::ignorable_test(module.name, move || {
            conclude(within(module.limit(), move |watch| check(module, &watch)))
        })
    });
    libtest_mimic::run(&args, all.collect()).exit_code()
}

fn conclude(result: Result<()>) -> std::result::Result<Completion, Failed> {
    match result {
        Ok(()) => Ok(Completion::Completed),
        Err(Failure::Skip(why)) => Ok(Completion::ignored_with(why)),
        Err(failure) => Err(failure.into()),
    }
}

fn check(module: modules::Module, watch: &Watch) -> Result<()> {
    let known = Differences::read()?;
    let undisturbed = run::undisturbed(module, watch)?;
    if undisturbed.values().any(|outcome| *outcome == Outcome::Missing) {
        return Err(Failure::Skip("this Python comes without it".into()));
    }
    let mut last = Ok(());
    for _ in 0..TRIES {
        let (disturbed, told) = disturbed(module, watch)?;
        eprintln!("    {}: {} tests, {told}", module.name, undisturbed.len());
        last = known
            .compare(module.name, &undisturbed, &disturbed)
            .map_err(|failure| Failure::Program(format!("{failure}\n{}", told.complaints)));
        if last.is_ok() {
            break;
        }
    }
    last
}

/// On a busy host a quick module may be over before it is first captured, and begins again.
fn disturbed(module: modules::Module, watch: &Watch) -> Result<(Outcomes, disturb::Told)> {
    const STARTS: u32 = 20;
    for _ in 0..STARTS {
        let (outcomes, told) = disturb::run(module, watch)?;
        if told.restores > 0 {
            return Ok((outcomes, told));
        }
    }
    Err(Failure::Program("nothing was restored in between".into()))
}

/// How long the whole of one module may take, undisturbed and disturbed.
impl modules::Module {
    fn limit(self) -> Duration {
        Duration::from_secs(self.seconds * 20 + 900)
    }
}
