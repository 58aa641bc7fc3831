//! Programs that try to leave their machine (`tests/escape/escape.c`), and the refusal each meets.
//!
//!   attempt ─► a launched machine ─┐
//!           ─► a restored copy ────┴► the refusal in the table
//!           ─► without its wall ────► success, so that no refusal is for another reason
//!
//! "Without its wall" is a machine with some walls taken away or, where it is the namespaces that
//! refuse, the same program on the host. Everything is bounded and harmless where it succeeds.

mod attempts;
mod cores;
mod during;
mod images;
mod limits;
mod machine;
mod schedules;

use attempts::{ATTEMPTS, Attempt, Without};
use libtest_mimic::{Arguments, Failed, Trial};
use machine::{Lab, Machine};
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // machines are shared, and answer one question at a time
    args.test_threads = Some(1);
    let lab = Arc::new(Lab::open());
    let mut trials = limits::trials(&lab);
    trials.extend(cores::trials(&lab));
    trials.extend(images::trials(&lab));
    trials.extend(during::trials(&lab));
    trials.extend(schedules::trials(&lab));
    for attempt in ATTEMPTS {
        let own = lab.clone();
        trials.push(Trial::test(format!("refused::{}", attempt.title()), move || {
            is_refused(&own, attempt)
        }));
        let own = lab.clone();
        trials.push(Trial::test(format!("without::{}", attempt.title()), move || {
            succeeds_without(&own, attempt)
        }));
    }
    let conclusion = libtest_mimic::run(&args, trials);
    drop(lab);
    conclusion.exit_code()
}

fn is_refused(lab: &Lab, attempt: &Attempt) -> Result<(), Failed> {
    let argument = lab.argument(attempt.with);
    let mut walled = lab.walled();
    let [launched, restored] = &mut *walled;
    expect("a launched machine", launched, attempt, &argument, attempt.refusal)?;
    expect("a restored machine", restored, attempt, &argument, attempt.refusal)
}

fn succeeds_without(lab: &Lab, attempt: &Attempt) -> Result<(), Failed> {
    let argument = lab.argument(attempt.with);
    match attempt.without {
        Without::Walls(walls) => {
            let machine = lab.with_walls(walls);
            let mut machine = machine.lock().unwrap_or_else(|poison| poison.into_inner());
            expect("a machine without that wall", &mut machine, attempt, &argument, "ok")
        }
        Without::Host(user) => {
            let mut host = lab.host(user);
            expect("the host", &mut host, attempt, &argument, "ok")
        }
    }
}

fn expect(
    place: &str,
    machine: &mut Machine,
    attempt: &Attempt,
    argument: &str,
    expected: &str,
) -> Result<(), Failed> {
    let said = machine.ask(&format!("{} {argument}", attempt.name));
    if said == expected {
        return Ok(());
    }
    let name = attempt.title();
    Err(format!("{name} in {place}: `{said}` instead of `{expected}`").into())
}
