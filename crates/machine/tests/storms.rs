//! Much at once and again and again: cycles, crowds, kills, damage. Short here; `make soak` runs
//! the long forms.

use stasis_api::{Durability, Exec, NewMachine, Status};
use stasis_machine::Machine;
use stasis_testbed::{TestHost, data_dir, exec, open, run, value};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// `long` under soak, else `short`.
fn many(short: usize, long: usize) -> usize {
    if std::env::var_os("STASIS_SOAK").is_some() { long } else { short }
}

#[test]
fn swap_cycles_change_nothing() {
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "import hashlib, numpy as np\na = np.random.rand(50_000)\nn = 0");
    let digest = value(&machine, "hashlib.sha256(a.tobytes()).hexdigest()");
    for cycle in 1..=many(10, 100) {
        bed.host.swap(&machine).expect("swap");
        let now = value(&machine, "n += 1; (n, hashlib.sha256(a.tobytes()).hexdigest())");
        assert_eq!(now, format!("({cycle}, {digest})"));
    }
}

#[test]
fn a_crowd_is_made_used_swapped_and_used_again() {
    let bed = TestHost::start();
    let count = many(24, 500);
    let each = |job: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            for lane in 0..8 {
                scope.spawn(move || (lane..count).step_by(8).for_each(job));
            }
        });
    };
    let machines: Vec<Arc<Machine>> = (0..count).map(|_| bed.machine()).collect();
    each(&|n| drop(run(&machines[n], &format!("mine = {n}"))));
    each(&|n| bed.host.swap(&machines[n]).expect("swap"));
    each(&|n| assert_eq!(value(&machines[n], "mine"), n.to_string()));
}

/// Exceeding the limits of cgroups and disk is reported, and costs one instruction.
#[test]
fn more_memory_or_disk_than_allowed() {
    let bed = TestHost::start();
    let limits =
        stasis_api::Limits { memory_mb: Some(400), disk_mb: Some(50), ..Default::default() };
    let new = NewMachine { limits, ..NewMachine::default() };
    let machine = bed.host.create("test", new).expect("make a machine");
    let code = "kept = 'yes'".to_owned();
    exec(&machine, Exec { code, durability: Some(Durability::Local), ..Exec::default() });
    let end =
        run(&machine, "b = bytearray(2_000_000_000)\nfor i in range(0, len(b), 4096): b[i] = 1");
    let words = format!("{:?}", end.outcome);
    assert!(words.contains("out_of_memory") || words.contains("MemoryError"), "{words}");
    assert_eq!(value(&machine, "kept"), "'yes'");
    // what is used is looked at now and then
    let fill = "import time\nf = open('big', 'wb')\nfor i in range(200):\n    \
                f.write(b'x' * 1_000_000); f.flush()\ntime.sleep(600)";
    let end = run(&machine, fill);
    let words = format!("{:?}", end.outcome);
    assert!(words.contains("disk_full") || words.contains("No space"), "{words}");
    assert_eq!(value(&machine, "kept"), "'yes'");
}

#[test]
fn a_fork_bomb_is_bounded() {
    let bed = TestHost::start();
    let limits = stasis_api::Limits { pids: Some(64), ..Default::default() };
    let machine = bed.host.create("test", NewMachine { limits, ..NewMachine::default() });
    let machine = machine.expect("make a machine");
    let bomb = "import os, time\nmade = 0\ntry:\n    for _ in range(1000):\n        \
                if os.fork() == 0:\n            time.sleep(600)\n            os._exit(0)\n        \
                made += 1\nexcept OSError as error:\n    print(error)\nmade < 64";
    let end = run(&machine, bomb);
    let outcome = end.outcome.expect("an outcome");
    assert!(end.status == Status::Lost || outcome.value.as_deref() == Some("True"), "{outcome:?}");
    assert_eq!(value(&bed.machine(), "'others are fine'"), "'others are fine'");
}

/// A machine whose limit was raised returns with more processes than new machines may have.
#[test]
fn more_processes_than_the_default_allows_come_back() {
    let bed = TestHost::with(|settings| settings.limits.pids = Some(24));
    let limits = stasis_api::Limits { pids: Some(200), ..Default::default() };
    let machine = bed.host.create("test", NewMachine { limits, ..NewMachine::default() });
    let machine = machine.expect("make a machine");
    run(
        &machine,
        "import subprocess\nmade = [subprocess.Popen(['sleep', '600']) for _ in range(60)]",
    );
    for _ in 0..2 {
        bed.host.swap(&machine).expect("swap");
        assert_eq!(value(&machine, "sum(one.poll() is None for one in made)"), "60");
    }
    assert_eq!(value(&machine, "made.append(subprocess.Popen(['sleep', '600'])) or 61"), "61");
}

/// A flipped bit in one machine's pages is found and named, and harms no other machine.
#[test]
fn damage_is_found_named_and_contained() {
    let bed = TestHost::start();
    let (one, other) = (bed.machine(), bed.machine());
    let packs = bed.dir.path().join("content/packs");
    run(&other, "y = 'sound'");
    bed.host.swap(&other).expect("swap");
    let before: Vec<_> = names(&packs);
    run(&one, "import os\nx = os.urandom(400_000)");
    bed.host.swap(&one).expect("swap");
    let new: Vec<_> = names(&packs).into_iter().filter(|name| !before.contains(name)).collect();
    for name in &new {
        flip(&packs.join(name));
    }
    assert!(!new.is_empty());
    let (damaged, sound) = (one.name().to_string(), other.name().to_string());
    drop((one, other));
    let bed = bed.reopen();
    let checked = bed.host.check_store(false).expect("check");
    let victim = format!("machine {damaged}");
    let named = checked.findings.iter().any(|found| found.affects.contains(&victim));
    assert!(named, "{:?}", checked.findings);
    assert_eq!(value(&bed.host.machine(&sound).expect("it is there"), "y"), "'sound'");
    let end = run(&bed.host.machine(&damaged).expect("it is there"), "len(x)");
    assert_eq!(end.status, Status::Cancelled, "{:?}", end.outcome);
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("list packs").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// In the middle, by a copy: other directories have the same file by hard links.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).expect("read a pack");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(path).expect("remove the pack");
    std::fs::write(path, bytes).expect("write the pack");
}

/// Hosts killed in the middle of a burst of creations: whatever was acknowledged is there
/// afterwards, and nothing else is left of them.
#[test]
fn kills_during_bursts_lose_nothing_acknowledged() {
    let dir = data_dir();
    for round in 0..many(3, 30) {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "burst", "--nocapture", "--ignored"]);
        let mut child = command
            .env("BURST_DIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start a host");
        std::thread::sleep(Duration::from_millis(700 + 130 * round as u64));
        child.kill().expect("kill the host");
        let output = child.wait_with_output().expect("wait for the host");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let host = open(dir.path());
        for line in said.lines().filter_map(|line| line.split_once("SAVED ")) {
            let (name, number) = line.1.split_once(' ').expect("two words");
            let machine = host.machine(name).expect("an acknowledged machine is there");
            let end = run(&machine, "number");
            let value = end.outcome.expect("an outcome").value;
            assert_eq!(value.as_deref(), Some(number), "round {round}");
            host.swap(&machine).expect("swap");
        }
    }
}

/// Not a test: the host that is killed.
#[test]
#[ignore = "started by another test"]
fn burst() {
    let Some(dir) = std::env::var_os("BURST_DIR") else { return };
    let host = open(Path::new(&dir));
    std::thread::scope(|scope| {
        for lane in 0..4 {
            let host = &host;
            scope.spawn(move || {
                for n in 0..50 {
                    let machine = host.create("test", NewMachine::default()).expect("create");
                    let code = format!("number = {}", lane * 1000 + n);
                    let durability = Some(Durability::Local);
                    exec(&machine, Exec { code, durability, ..Exec::default() });
                    println!("SAVED {} {}", machine.name(), lane * 1000 + n);
                }
            });
        }
    });
}
