//! Programs that use things up, with a limit and then, on the same machine while it runs, without.

use crate::machine::{Lab, Machine, launch};
use libtest_mimic::{Failed, Trial};
use stasis_engine::{DiskExcess, DiskLimit, ResourceLimits, WallsConfig};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Against hangs.
const LONG: Duration = Duration::from_secs(120);

type Test = fn(&Lab) -> Result<(), Failed>;

pub fn trials(lab: &Arc<Lab>) -> Vec<Trial> {
    let tests: [(&str, Test); 17] = [
        ("processes", processes),
        ("memory", memory),
        ("descriptors", descriptors),
        ("one_large_file", one_large_file),
        ("many_files", many_files),
        ("files_without_a_name", files_without_a_name),
        ("files_handed_from_process_to_process", files_handed_on),
        ("files_in_flight", files_in_flight),
        ("more_descriptors_than_are_counted", more_descriptors_than_are_counted),
        ("files_only_mapped", files_only_mapped),
        ("files_beyond_the_longest_path", files_beyond_the_longest_path),
        ("files_of_an_image", files_of_an_image),
        ("files_past_the_limit_make_no_image", files_past_the_limit_make_no_image),
        ("a_deep_tree", a_deep_tree),
        ("processor", processor),
        ("capture_at_the_limit", capture_at_the_limit),
        ("ids_are_the_machines_own", ids_are_the_machines_own),
    ];
    let trial = |(name, run): (&str, Test)| {
        let lab = lab.clone();
        Trial::test(format!("limits::{name}"), move || run(&lab))
    };
    tests.map(trial).into_iter().collect()
}

fn limited(lab: &Lab, change: impl Fn(&mut ResourceLimits)) -> Machine {
    let mut walls = WallsConfig::default();
    change(&mut walls.limits);
    launch(&lab.engine(walls))
}

fn expect(machine: &mut Machine, line: &str, expected: &str) -> Result<(), Failed> {
    match machine.ask(line) {
        said if said == expected => Ok(()),
        said => Err(format!("{line}: `{said}` instead of `{expected}`").into()),
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what().into()) }
}

fn processes(lab: &Lab) -> Result<(), Failed> {
    let mut machine = limited(lab, |limits| limits.pids = Some(20));
    expect(&mut machine, "processes 100", "EAGAIN")?;
    let limits = ResourceLimits { pids: None, ..machine.tree().limits() };
    machine.tree().set_limits(limits)?;
    expect(&mut machine, "processes 100", "ok")?;
    // its last child is on its way out when it has answered
    let start = Instant::now();
    while machine.tree().usage().pids != Some(1) {
        ensure(start.elapsed() < LONG, || format!("{:?} are counted", machine.tree().usage()))?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// One process is ended, the machine lives, and it can be told what happened.
fn memory(lab: &Lab) -> Result<(), Failed> {
    let mut machine = limited(lab, |limits| limits.memory = Some(64 << 20));
    expect(&mut machine, "memory 256", "killed 9")?;
    let usage = machine.tree().usage();
    ensure(usage.oom_kills.is_some_and(|kills| kills > 0), || format!("not told: {usage:?}"))?;
    ensure(usage.memory_peak.is_some_and(|peak| peak <= 64 << 20), || format!("{usage:?}"))?;
    machine
        .tree()
        .set_limits(ResourceLimits { memory: Some(1 << 30), ..machine.tree().limits() })?;
    expect(&mut machine, "memory 256", "ok")
}

fn descriptors(lab: &Lab) -> Result<(), Failed> {
    let mut machine = limited(lab, |limits| limits.descriptors = Some(100));
    expect(&mut machine, "descriptors 200", "EMFILE")?;
    expect(&mut limited(lab, |limits| limits.descriptors = None), "descriptors 200", "ok")
}

fn one_large_file(lab: &Lab) -> Result<(), Failed> {
    let small = DiskLimit { bytes: 4 << 20, files: 1000 };
    let mut machine = limited(lab, |limits| limits.disk = Some(small));
    expect(&mut machine, "one_file 16", "EFBIG")?;
    expect(&mut limited(lab, |limits| limits.disk = None), "one_file 16", "ok")
}

/// No file system says no; a machine that goes on is ended.
fn many_files(lab: &Lab) -> Result<(), Failed> {
    let few = DiskLimit { bytes: 1 << 30, files: 100 };
    let mut machine = limited(lab, |limits| limits.disk = Some(few));
    machine.ask("many_files 1000");
    let start = Instant::now();
    while machine.tree().is_alive() {
        ensure(start.elapsed() < LONG, || "a runaway goes on".into())?;
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut other = limited(lab, |limits| limits.disk = None);
    expect(&mut other, "many_files 1000", "ok")?;
    let usage = other.tree().disk_usage();
    ensure(usage.files >= 1000, || format!("{usage:?}"))?;
    std::thread::sleep(start.elapsed() + Duration::from_secs(1));
    ensure(other.tree().is_alive(), || "ended without a limit".into())
}

const SMALL: DiskLimit = DiskLimit { bytes: 16 << 20, files: 1000 };

/// Passes a disk limit in a way that no walk by name sees: ended with it, let be without.
fn is_ended_by(lab: &Lab, line: &str) -> Result<(), Failed> {
    let mut machine = limited(lab, |limits| limits.disk = Some(SMALL));
    machine.ask(line);
    await_end(&machine, line)?;
    let mut other = limited(lab, |limits| limits.disk = None);
    expect(&mut other, line, "ok")?;
    let usage = other.tree().disk_usage();
    ensure(usage.bytes > SMALL.bytes, || format!("{line}: only {usage:?} is seen"))
}

fn await_end(machine: &Machine, what: &str) -> Result<(), Failed> {
    let start = Instant::now();
    while machine.tree().is_alive() {
        ensure(start.elapsed() < LONG, || {
            format!("{what}: a runaway goes on with {:?}", machine.tree().disk_usage())
        })?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn files_without_a_name(lab: &Lab) -> Result<(), Failed> {
    is_ended_by(lab, "unlinked_files 40")
}

fn files_handed_on(lab: &Lab) -> Result<(), Failed> {
    is_ended_by(lab, "hopping_files 40")
}

/// Descriptors sent through a socket and not received are in no process.
fn files_in_flight(lab: &Lab) -> Result<(), Failed> {
    let mut machine = limited(lab, |limits| limits.disk = Some(SMALL));
    machine.ask("files_in_flight 40");
    await_end(&machine, "40 MB in flight")?;
    let why = machine.tree().disk_excess();
    ensure(why == Some(DiskExcess::Uncountable), || format!("ended for {why:?}"))
}

/// Files behind so many descriptors would take too long to count, again and again.
fn more_descriptors_than_are_counted(lab: &Lab) -> Result<(), Failed> {
    let mut machine = limited(lab, |limits| limits.disk = Some(SMALL));
    machine.ask("many_descriptors 40");
    await_end(&machine, "40,000 descriptors")?;
    let why = machine.tree().disk_excess();
    ensure(why == Some(DiskExcess::Uncountable), || format!("ended for {why:?}"))?;
    let mut other = limited(lab, |limits| limits.disk = Some(SMALL));
    expect(&mut other, "many_descriptors 20", "ok")?;
    std::thread::sleep(Duration::from_secs(2));
    ensure(other.tree().is_alive(), || "ended for 20,000 descriptors".into())
}

fn files_only_mapped(lab: &Lab) -> Result<(), Failed> {
    is_ended_by(lab, "mapped_files 40")
}

fn files_beyond_the_longest_path(lab: &Lab) -> Result<(), Failed> {
    is_ended_by(lab, "deep_file 40")
}

/// Leaving memory and coming back makes no room.
fn files_of_an_image(lab: &Lab) -> Result<(), Failed> {
    let mut walls = WallsConfig::default();
    walls.limits.disk = Some(SMALL);
    let engine = lab.engine(walls);
    let mut machine = launch(&engine);
    expect(&mut machine, "kept_file 10", "ok")?;
    let image = engine.capture(machine.tree())?.image;
    let mut copy = crate::machine::restore(&engine, &image);
    copy.ask("kept_file 10");
    await_end(&copy, "10 MB in an image and 10 more")
}

/// Checkpointing faster than the measurement gains nothing either.
fn files_past_the_limit_make_no_image(lab: &Lab) -> Result<(), Failed> {
    let engine = lab.engine(WallsConfig::default());
    let mut machine = launch(&engine);
    expect(&mut machine, "kept_file 20", "ok")?;
    machine.tree().set_limits(ResourceLimits { disk: Some(SMALL), ..machine.tree().limits() })?;
    match engine.capture(machine.tree()) {
        Ok(_) => Err("an image of more than the limit".into()),
        Err(error) if error.to_string().contains("more than its limit") => Ok(()),
        // the watch was faster
        Err(_) => await_end(&machine, "20 MB"),
    }
}

/// Carried or refused by name, and removed with its machine.
fn a_deep_tree(lab: &Lab) -> Result<(), Failed> {
    let engine = lab.engine(WallsConfig::default());
    let mut machine = launch(&engine);
    expect(&mut machine, "deep_tree 600", "ok")?;
    let image = engine.capture(machine.tree())?.image;
    let mut copy = crate::machine::restore(&engine, &image);
    expect(&mut copy, "deep_tree 1", "EEXIST")?;
    let again = engine.capture(copy.tree())?.image;
    ensure(again.manifest.files.entries.len() >= 600, || "a part of the tree is lost".into())?;
    let mut deeper = launch(&engine);
    expect(&mut deeper, "deep_tree 5000", "ok")?;
    match engine.capture(deeper.tree()) {
        Ok(_) => return Err("5,000 levels in an image".into()),
        Err(error) => ensure(error.to_string().contains("too deep"), || error.to_string())?,
    }
    expect(&mut deeper, "deep_tree 1", "EEXIST")
}

fn processor(lab: &Lab) -> Result<(), Failed> {
    let mut machine = limited(lab, |limits| limits.cpu_millis = Some(100));
    let before = machine.tree().usage().cpu_ns;
    expect(&mut machine, "memory 64", "ok")?;
    let after = machine.tree().usage().cpu_ns;
    ensure(after > before && before.is_some(), || format!("{before:?}, then {after:?}"))?;
    machine.tree().set_limits(ResourceLimits { cpu_millis: None, ..machine.tree().limits() })?;
    Ok(())
}

/// Copies of a machine's processes count as its own, so a capture makes room for them.
fn capture_at_the_limit(lab: &Lab) -> Result<(), Failed> {
    let mut walls = WallsConfig::default();
    walls.limits.pids = Some(1);
    let engine = lab.engine(walls);
    let mut machine = launch(&engine);
    expect(&mut machine, "init_shown", "EAGAIN")?;
    engine.capture(machine.tree())?;
    expect(&mut machine, "init_shown", "EAGAIN")
}

/// No machine has an id of the host's users or of another machine.
fn ids_are_the_machines_own(lab: &Lab) -> Result<(), Failed> {
    let walled = lab.walled();
    let [first, second] = [&walled[0], &walled[1]].map(|machine| user(machine.tree().pid()));
    ensure(first >= 1 << 28 && second >= 1 << 28 && first != second, || {
        format!("machines run as {first} and {second}")
    })?;
    let shared = lab.with_walls(|walls| walls.ids = None);
    let shared = shared.lock().unwrap_or_else(|poison| poison.into_inner());
    let user = user(shared.tree().pid());
    ensure(user == 1000, || format!("without that wall it runs as {user}"))
}

/// The host's identity of a process.
fn user(pid: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or("");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}
