//! A host's own maintenance: memory, disk space, pools of ready trees.

use stasis_api::{Exec, State, Status, Timeout};
use stasis_machine::{Branch, Preparation};
use stasis_testbed::{TestHost, run, until, value};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
fn when_memory_is_short_idle_machines_leave_it_and_busy_ones_stay() {
    let bed = TestHost::with(|settings| settings.keep_free = Some(u64::MAX));
    let (idle, busy) = (bed.machine(), bed.machine());
    run(&idle, "x = 'kept'");
    run(&busy, "1");
    let wait = "import time\nwhile not __import__('os').path.exists('/tmp/go'): time.sleep(0.01)";
    let code = Exec { code: wait.into(), timeout: Timeout::Never, ..Exec::default() };
    let seq = busy.submit(code).expect("accepted");
    until("it runs", || busy.describe().state == State::Running);
    assert_eq!(bed.host.relieve().expect("room is made"), 1);
    assert_eq!(idle.describe().state, State::Swapped);
    assert_eq!(busy.describe().state, State::Running);
    assert_eq!(value(&idle, "x"), "'kept'");
    assert!(busy.interrupt().expect("it runs"));
    assert_eq!(busy.wait(seq).expect("its end").status, Status::Interrupted);
}

#[test]
fn with_enough_memory_no_machine_is_swapped_out() {
    let bed = TestHost::with(|settings| settings.keep_free = Some(0));
    let machine = bed.machine();
    run(&machine, "1");
    assert_eq!(bed.host.relieve().expect("nothing to do"), 0);
    assert_ne!(machine.describe().state, State::Swapped);
}

#[test]
fn unused_data_is_compressed_and_restored_unchanged() {
    let bed = TestHost::with(|settings| settings.cold_after = Some(Duration::ZERO));
    let machine = bed.machine();
    run(&machine, "import hashlib\ntext = b'the same again ' * 400_000");
    let expected = value(&machine, "hashlib.sha256(text).hexdigest()");
    bed.host.swap(&machine).expect("swapped out");
    let mut freed = 0;
    loop {
        match bed.host.compress_cold().expect("compressed") {
            0 => break,
            more => freed += more,
        }
    }
    assert!(freed > 1 << 20, "only {freed} bytes were freed");
    assert_eq!(value(&machine, "hashlib.sha256(text).hexdigest()"), expected);
    let found = bed.host.check_store(false).expect("checked");
    assert!(found.complete && found.findings.is_empty(), "{:?}", found.findings);
}

#[test]
fn ready_trees_have_no_owner_and_differ() {
    let bed = TestHost::with(|settings| settings.preparation = Preparation::Usual);
    run(&bed.machine(), "1");
    // time for some to stand ready; without them the check holds as well
    std::thread::sleep(Duration::from_millis(500));
    let code = "import os, random, uuid\n(os.environ['STASIS_MACHINE'], random.random(), \
                uuid.uuid4().hex, os.urandom(8).hex())";
    let said: Vec<(String, String)> = (0..6)
        .map(|_| {
            let machine = bed.machine();
            (machine.name().to_string(), value(&machine, code))
        })
        .collect();
    for (index, (name, text)) in said.iter().enumerate() {
        assert!(text.contains(&format!("'{name}'")), "{name} says {text}");
        assert!(said[..index].iter().all(|(_, other)| other[40..] != text[40..]));
    }
}

/// States that were left are stored as differences, in a fraction of the space, and open as before.
#[test]
fn old_states_become_small_and_open_as_before() {
    let bed = TestHost::start();
    let machine = bed.machine();
    for n in 0..10 {
        run(&machine, &format!("n = {n}"));
        machine.settle().expect("saved");
    }
    let before = bed.host.store_stats().expect("count").bytes;
    let mut freed = 0;
    loop {
        match bed.host.thin_states(Duration::ZERO).expect("stored as differences") {
            0 => break,
            more => freed += more,
        }
    }
    let now = bed.host.store_stats().expect("count").bytes;
    // nine states of half a mebibyte each; the machine is in the tenth
    assert!(freed > 9 * (300 << 10), "only {freed} bytes were freed");
    assert!(before - now >= freed / 2, "{before} bytes became {now}");
    let name = machine.name();
    drop(machine);
    let bed = bed.reopen();
    let machine = bed.host.machine(name.as_str()).expect("it is there");
    for seq in [0, 4, 8] {
        let one = Branch { seq: Some(seq), names: vec![None], ..Branch::default() };
        let branch = bed.host.branch(&machine, one).expect("branch").remove(0);
        assert_eq!(value(&branch, "n"), seq.to_string());
    }
    bed.host.roll_back(&machine, Some(2)).expect("roll back");
    assert_eq!(value(&machine, "n"), "2");
    bed.host.collect().expect("collect");
    let found = bed.host.check_store(false).expect("checked");
    assert!(found.complete && found.findings.is_empty(), "{:?}", found.findings);
}

/// Bytes on disk below a directory, and names of archives that packages were installed from.
fn taken(top: &Path) -> (u64, Vec<PathBuf>) {
    let (mut left, mut bytes, mut archives) = (vec![top.to_owned()], 0, Vec::new());
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).expect("a directory").flatten() {
            let (path, found) = (entry.path(), entry.metadata().expect("an entry"));
            bytes += found.blocks() * 512;
            let is_archive = path.extension().is_some_and(|end| end == "whl" || end == "deb");
            // Python's own `ensurepip` brings two, which `python -m venv` needs
            if is_archive && !path.to_string_lossy().contains("/ensurepip/_bundled/") {
                archives.push(path);
            } else if found.is_dir() {
                left.push(path);
            }
        }
    }
    (bytes, archives)
}

/// The default template takes about 1.1 GiB, most of it for packages.
#[test]
fn a_new_data_directory_holds_packages_and_not_what_they_came_in() {
    const MOST: u64 = 1400 << 20;
    let bed = TestHost::start();
    let layers = bed.host.template(None).expect("the default one").template.root;
    let (_, root) = layers.split_once('+').expect("the agent's layer and the template's");
    let (packages, archives) = taken(&bed.dir.path().join("roots").join(root));
    assert_eq!(archives, Vec::<PathBuf>::new());
    let (content, _) = taken(&bed.dir.path().join("content"));
    assert!(packages > 100 << 20 && packages + content <= MOST, "{packages} and {content} bytes");
}
