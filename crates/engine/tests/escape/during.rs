//! Attacks while the engine captures (`tests/escape/during.c`).
//!
//!   attack ─► captures ─► how often it succeeded: never
//!
//! A capture may be refused, by name; the machine must then run on. Each attack succeeded on the
//! engine before these tests were written. `STASIS_SOAK` makes a thousand captures of each,
//! `STASIS_CAPTURES` as many as it says.

use crate::machine::{Lab, Machine, launch_program, restore};
use libtest_mimic::{Failed, Trial};
use stasis_engine::fault::{self, Fault};
use stasis_engine::{Engine, Error, Image, WallsConfig};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A capture that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

type Check = fn(&Lab) -> Result<(), Failed>;

const ATTACKS: &[(&str, Check)] = &[
    ("no_task_runs_in_a_pause:born_beside", |lab| freeze_is_complete(lab, "orphans beside")),
    ("no_task_runs_in_a_pause:chain_of_orphans", |lab| freeze_is_complete(lab, "orphans chain")),
    ("no_handler_runs_unfiltered", |lab| never_succeeds(lab, "rseq call", 20)),
    ("no_handler_runs_unfiltered:own_filter", |lab| never_succeeds(lab, "rseq call filtered", 20)),
    ("no_handler_holds_a_capture_up", |lab| never_succeeds(lab, "rseq spin", 5)),
    ("no_call_passes_while_a_thread_is_seized", |lab| never_succeeds(lab, "window", 20)),
    ("copies_are_out_of_reach", |lab| never_succeeds(lab, "writer", 10)),
    // a capture that meets one is refused: the rest of the tree lives
    ("a_process_that_dies_takes_no_tree_along", |lab| never_succeeds(lab, "condemned", 100)),
    ("a_foreign_trap_is_not_ours", foreign_traps),
    ("a_sequence_begins_again", |lab| state_is_carried(lab, "sequence")),
    ("a_machine_has_its_own_keyring", own_keyring),
    ("droppable_memory_is_carried", |lab| state_is_carried(lab, "droppable")),
];

pub fn trials(lab: &Arc<Lab>) -> Vec<Trial> {
    let trial = |(name, check): &(&str, Check)| {
        let (lab, check) = (lab.clone(), *check);
        Trial::test(format!("during::{name}"), move || check(&lab))
    };
    ATTACKS.iter().map(trial).collect()
}

fn captures(usual: u32) -> u32 {
    let asked = std::env::var("STASIS_CAPTURES").ok().and_then(|text| text.parse().ok());
    let soak = std::env::var_os("STASIS_SOAK").map(|_| 1000);
    asked.or(soak).unwrap_or(usual)
}

fn start(lab: &Lab, attack: &str) -> Result<Option<(Arc<Engine>, Machine)>, Failed> {
    let engine = lab.engine(WallsConfig::default());
    let mut machine = launch_program(&engine, "during");
    match machine.ask(attack).as_str() {
        "started" => Ok(Some((engine, machine))),
        "skip" => Ok(None),
        other => Err(format!("{attack}: {other}").into()),
    }
}

/// Captures within a time; `None` when the engine refused, which it may.
fn capture(engine: &Arc<Engine>, machine: &mut Machine) -> Result<Option<Image>, Failed> {
    let tree = machine.tree.take().ok_or("no tree")?;
    let (tell, told) = mpsc::channel();
    let own = engine.clone();
    let faults = fault::owner();
    std::thread::spawn(move || {
        fault::adopt(faults);
        let captured = own.capture(&tree);
        let _ = tell.send((tree, captured));
    });
    // one that hangs keeps the tree: the test ends here and says so
    let (tree, captured) = told.recv_timeout(PATIENCE).map_err(|_| "the capture hangs")?;
    machine.tree = Some(tree);
    match captured {
        Ok(captured) => Ok(Some(captured.image)),
        Err(Error::Refused { .. }) => Ok(None),
        Err(error) => Err(format!("the capture failed: {error}").into()),
    }
}

fn result(machine: &mut Machine) -> Result<(), Failed> {
    match machine.ask("result").as_str() {
        "0" => Ok(()),
        other => Err(format!("the attack's count is {other}").into()),
    }
}

fn never_succeeds(lab: &Lab, attack: &str, usual: u32) -> Result<(), Failed> {
    let Some((engine, mut machine)) = start(lab, attack)? else { return Ok(()) };
    let mut taken = 0;
    for _ in 0..captures(usual) {
        taken += u32::from(capture(&engine, &mut machine)?.is_some());
        std::thread::sleep(Duration::from_millis(5));
    }
    result(&mut machine)?;
    if taken == 0 { Err("every capture was refused".into()) } else { Ok(()) }
}

/// At three moments of each pause, every task of the machine stands still.
fn freeze_is_complete(lab: &Lab, attack: &str) -> Result<(), Failed> {
    let Some((engine, mut machine)) = start(lab, attack)? else { return Ok(()) };
    let namespace = namespace_of(machine.tree().pid()).ok_or("no namespace")?;
    let ran: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut taken = 0;
    for _ in 0..captures(10) {
        let guards = ["capture.frozen", "capture.files", "capture.twins"].map(|point| {
            let (ran, namespace) = (ran.clone(), namespace.clone());
            let look = move || {
                let found = running(&namespace).into_iter().map(|who| format!("{point}: {who}"));
                ran.lock().expect("no panic").extend(found);
            };
            fault::arm(point, Fault::Call(Arc::new(look)))
        });
        taken += u32::from(capture(&engine, &mut machine)?.is_some());
        drop(guards);
        std::thread::sleep(Duration::from_millis(5));
    }
    let ran = ran.lock().expect("no panic");
    if ran.is_empty() {
        println!("{attack}: {taken} captures");
        return if taken == 0 { Err("every capture was refused".into()) } else { Ok(()) };
    }
    Err(format!("{} tasks ran in a pause: {}", ran.len(), ran[0]).into())
}

fn namespace_of(pid: i32) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// Tasks of a pid namespace that are neither stopped nor dead, but for its init.
fn running(namespace: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = pids.filter(|pid| namespace_of(*pid).as_deref() == Some(namespace));
    own.flat_map(|pid| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok())
    })
    .filter(|stat| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        !stat.contains("(stasis-init)") && !state.is_some_and(|state| "tTZX".contains(state))
    })
    .collect()
}

/// A SIGTRAP of the program's own, which comes when it stands still, is neither lost nor taken for
/// the end of a call of ours: what was captured meanwhile comes back as it was.
fn foreign_traps(lab: &Lab) -> Result<(), Failed> {
    let Some((engine, mut machine)) = start(lab, "traps")? else { return Ok(()) };
    let pid = machine.tree().pid();
    for sent in 1..=captures(10) {
        let send = move || {
            let _ = stasis_sys::process::kill(pid, stasis_sys::libc::SIGTRAP);
        };
        let guard = fault::arm("capture.frozen", Fault::Call(Arc::new(send)));
        if let Some(image) = capture(&engine, &mut machine)? {
            let mut copy = restore(&engine, &image);
            result(&mut copy)?;
        }
        drop(guard);
        result(&mut machine)?;
        let taken = machine.ask("count");
        if taken != sent.to_string() {
            return Err(format!("{taken} of {sent} signals were taken").into());
        }
    }
    Ok(())
}

/// A key that all children of this process inherit is not there for a machine, launched or
/// restored, that may make any call.
fn own_keyring(lab: &Lab) -> Result<(), Failed> {
    let name = format!("stasis-escape-{}", std::process::id());
    let expect = |machine: &mut Machine, order: &str, expected: &str| match machine
        .ask(&format!("{order} {name}"))
    {
        said if said == expected => Ok(()),
        said => Err(Failed::from(format!("{order}: `{said}` instead of `{expected}`"))),
    };
    expect(&mut lab.host(0), "add_session_key", "ok")?;
    expect(&mut lab.host(0), "find_session_key", "ok")?;
    let engine = lab.engine(WallsConfig { seccomp: false, ..WallsConfig::default() });
    let mut machine = launch_program(&engine, "escape");
    expect(&mut machine, "find_session_key", "ENOKEY")?;
    let image = capture(&engine, &mut machine)?.ok_or("refused")?;
    expect(&mut restore(&engine, &image), "find_session_key", "ENOKEY")?;
    engine.park(&image).map_err(|error| error.to_string())?;
    let mut parked = restore(&engine, &image);
    expect(&mut parked, "find_session_key", "ENOKEY")?;
    // nor do two machines share one
    expect(&mut parked, "add_session_key", "ok")?;
    expect(&mut parked, "find_session_key", "ok")?;
    expect(&mut machine, "find_session_key", "ENOKEY")
}

fn state_is_carried(lab: &Lab, attack: &str) -> Result<(), Failed> {
    let Some((engine, mut machine)) = start(lab, attack)? else { return Ok(()) };
    for _ in 0..captures(5) {
        let image = capture(&engine, &mut machine)?.ok_or("refused")?;
        let mut copy = restore(&engine, &image);
        result(&mut copy)?;
        result(&mut machine)?;
    }
    Ok(())
}
