//! Branches under strain: many at once, consistent in memory, files and processes, after their
//! ancestors were removed, deep, and killed half-way. `STASIS_SOAK=1` does more of each.

use stasis_api::{Durability, Exec, Name, NewMachine, Timeout, Vary};
use stasis_machine::{AdoptSelection, Branch, BranchPlan, Export, Host, Machine};
use stasis_testbed::{TestHost, data_dir, open, run, value};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

fn soak() -> bool {
    std::env::var_os("STASIS_SOAK").is_some()
}

fn keep(machine: &Arc<Machine>, code: &str) {
    let durability = Some(Durability::Local);
    let exec = Exec { code: code.into(), durability, ..Exec::default() };
    let end = stasis_testbed::exec(machine, exec);
    let error = end.outcome.and_then(|outcome| outcome.error);
    assert!(error.is_none(), "{code}: {error:?}");
}

fn named(text: &str) -> Name {
    text.parse().expect("a name")
}

fn branch(host: &Host, source: &Arc<Machine>, name: &str) -> Arc<Machine> {
    let one = Branch { names: vec![Some(named(name))], ..Branch::default() };
    host.branch(source, one).expect("branch").remove(0)
}

/// The values that branches give, each in its place.
fn values(bed: &TestHost, source: &Arc<Machine>, codes: Vec<String>) -> Vec<String> {
    let names = vec![None; codes.len()];
    let vary = codes.into_iter().map(|code| Vary { code: Some(code), ..Vary::default() }).collect();
    let branch = Branch { names, ..Branch::default() };
    let varied = BranchPlan { branch, vary, timeout: Timeout::Seconds(300.0) };
    let (machines, told) = bed.host.branch_varied(source, varied).expect("branches");
    let mut ends: Vec<_> = told.into_iter().collect();
    ends.sort_by_key(|end| end.index);
    let value = |end: stasis_machine::BranchResult| {
        let outcome = end.instruction.expect("an end").outcome.expect("an outcome");
        outcome.value.unwrap_or_else(|| panic!("{:?}", outcome.error))
    };
    let values = ends.into_iter().map(value).collect();
    machines.iter().for_each(|machine| bed.host.remove(machine).expect("remove"));
    values
}

/// Shared data exists once, however large it is.
#[test]
fn branches_share_what_their_source_made() {
    const MIB: usize = 64;
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, &format!("import os\nbig = os.urandom({MIB} << 20)\nimport hashlib"));
    let sum = value(&machine, "hashlib.sha256(big).hexdigest()");
    let many = Branch { names: vec![None; 6], ..Branch::default() };
    let branches = bed.host.branch(&machine, many).expect("branches");
    for branch in &branches {
        assert_eq!(value(branch, "hashlib.sha256(big).hexdigest()"), sum);
        let (_, private) = bed.host.memory_kib(branch).expect("its memory");
        assert!(private < (MIB as u64) << 8, "{private} KiB of its own");
    }
}

#[test]
fn branches_that_sync_the_same_path_do_not_meet() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "import os\nopen('f', 'w').write('base')");
    let count = if soak() { 300 } else { 100 };
    let code = |n: usize| {
        format!(
            "f = open('f', 'w')\nf.write('{n} ' * 1000)\nf.flush()\nos.fsync(f.fileno())\n\
             set(open('f').read().split())"
        )
    };
    let got = values(&bed, &machine, (0..count).map(code).collect());
    let want: Vec<String> = (0..count).map(|n| format!("{{'{n}'}}")).collect();
    assert_eq!(got, want);
    assert_eq!(value(&machine, "open('f').read()"), "'base'");
}

/// A thread counts in memory, in a file and in another process, one after the other: whenever a
/// branch is taken, the three are at most one step apart, and count on.
#[test]
fn memory_files_and_processes_are_one_instant() {
    let bed = TestHost::start();
    let machine = bed.machine();
    run(
        &machine,
        "import os, subprocess, sys, threading, time\n\
         other = subprocess.Popen([sys.executable, '-uc', 'import sys\\nfor line in sys.stdin: \
         print(line.strip())'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n\
         file = os.open('n', os.O_RDWR | os.O_CREAT)\nn, echoed, stop = 0, 0, False\n\
         def count():\n    global n, echoed\n    while not stop:\n        n += 1\n        \
         os.pwrite(file, b'%12d' % n, 0)\n        other.stdin.write(f'{n}\\n')\n        \
         other.stdin.flush()\n        echoed = int(other.stdout.readline())\n        \
         time.sleep(0.0005)\n\
         thread = threading.Thread(target=count)\nthread.start()\n\
         while not echoed: time.sleep(0.001)",
    );
    let look = "stop = True\nthread.join()\nlast = n\nassert int(os.pread(file, 12, 0)) == n\n\
                assert echoed == n, (echoed, n)\nstop = False\nthread = threading.Thread(\
                target=count)\nthread.start()\nwhile n == last: time.sleep(0.001)\nn > last";
    let rounds = if soak() { 40 } else { 6 };
    for _ in 0..rounds {
        assert_eq!(values(&bed, &machine, vec![look.to_owned(); 2]), ["True", "True"]);
    }
    assert_eq!(value(&machine, look), "True");
    run(&machine, "stop = True");
}

#[test]
fn simultaneous_branches_keep_their_canaries() {
    let bed = TestHost::start();
    let sources: Vec<_> = (0..4).map(|_| bed.machine()).collect();
    for (n, machine) in sources.iter().enumerate() {
        keep(machine, &format!("canary = bytes([{n} + 65]) * (4 << 20)\nname = {n}"));
    }
    let rounds = if soak() { 20 } else { 3 };
    for _ in 0..rounds {
        std::thread::scope(|scope| {
            for (n, machine) in sources.iter().enumerate() {
                let bed = &bed;
                scope.spawn(move || {
                    let code = "set(canary), name, len(canary)".to_owned();
                    let got = values(bed, machine, vec![code; 2]);
                    let want = format!("({{{}}}, {n}, {})", n + 65, 4 << 20);
                    assert_eq!(got, [want.clone(), want]);
                });
            }
        });
    }
}

#[test]
fn any_ancestor_can_go_and_the_rest_is_branched_again() {
    for gone in 0..3 {
        let bed = TestHost::start();
        let first = bed.machine();
        keep(&first, "line = ['a']\nblock = bytes([1]) * 500_000");
        let second = branch(&bed.host, &first, "second");
        keep(&second, "line.append('b')");
        let third = branch(&bed.host, &second, "third");
        keep(&third, "line.append('c')");
        let mut all = vec![first, second, third];
        bed.host.remove(&all.remove(gone)).expect("remove");
        bed.host.collect().expect("collect");
        let want = [["['a']", "['a', 'b']", "['a', 'b', 'c']"]].concat();
        let want: Vec<_> = (0..3).filter(|n| *n != gone).map(|n| want[n]).collect();
        for (machine, want) in all.iter().zip(want) {
            let code = "line if sum(block) == 500_000 else 'damaged'".to_owned();
            assert_eq!(values(&bed, machine, vec![code]), [want], "without {gone}");
        }
        assert!(bed.host.check_store(false).expect("check").findings.is_empty());
    }
}

#[test]
fn a_line_of_sixty_four() {
    let bed = TestHost::start();
    let mut machine = bed.machine();
    run(&machine, "depth = 0\nseen = []");
    for n in 1..=64 {
        let next = branch(&bed.host, &machine, &format!("depth-{n}"));
        run(&next, "depth += 1\nseen.append(depth)");
        // every other ancestor goes
        if n % 2 == 0 {
            bed.host.remove(&machine).expect("remove");
        }
        machine = next;
    }
    assert_eq!(value(&machine, "depth, seen == list(range(1, 65))"), "(64, True)");
    bed.host.swap(&machine).expect("swap");
    bed.host.collect().expect("collect");
    assert_eq!(value(&machine, "sum(seen)"), "2080");
}

/// A worker's actions, and where it is killed. First the points whose order matters most: before
/// and after a record.
const STEPS: [(&str, &str); 14] = [
    ("branch", "branch.captured"),
    ("branch", "branch.recorded"),
    ("rollback", "rollback.decided"),
    ("rollback", "rollback.recorded"),
    ("promote", "promote.decided"),
    ("promote", "promote.recorded"),
    ("adopt", "adopt.carried"),
    ("adopt", "image.synced"),
    ("collect", "collect.marked"),
    ("collect", "collect.packs"),
    ("import", "import.pack"),
    ("import", "import.image"),
    ("import", "import.laid"),
    ("import", "import.recorded"),
];

/// Passed on the way.
const OTHERS: [(&str, &str); 12] = [
    ("branch", "capture.frozen"),
    ("branch", "capture.thawed"),
    ("branch", "pack.written"),
    ("branch", "image.written"),
    ("branch", "image.synced"),
    ("adopt", "restore.cloned"),
    ("adopt", "capture.pages"),
    ("adopt", "pack.synced"),
    ("collect", "collect.images"),
    ("collect", "collect.layers"),
    ("collect", "collect.removed"),
    ("import", "import.pages"),
];

/// A machine `m` with a branch `b`, and a file with a machine from elsewhere.
fn prepared() -> tempfile::TempDir {
    let (dir, elsewhere) = (data_dir(), TestHost::start());
    let host = open(dir.path());
    let new = NewMachine { name: Some(named("m")), ..NewMachine::default() };
    let machine = host.create("test", new).expect("create");
    keep(&machine, "x = 1");
    keep(&machine, "x = 2");
    let other = branch(&host, &machine, "b");
    keep(&other, "x = 5");
    let stranger = elsewhere.machine();
    keep(&stranger, "x = 5\nblock = bytes(range(256)) * 1000");
    let mut file = std::fs::File::create(dir.path().join("file")).expect("a file");
    let what = Export { history: true, root: false };
    elsewhere.host.export(&stranger, what, &mut file).expect("export");
    assert!(host.close().is_empty());
    dir
}

#[test]
fn killed_at_any_step_it_is_as_before_or_after() {
    use std::os::unix::process::ExitStatusExt;
    let dir = prepared();
    let others: &[_] = if soak() { &OTHERS } else { &[] };
    for (step, point) in STEPS.iter().chain(others) {
        let mut worker = Worker::start(dir.path(), step, point);
        let status = worker.0.wait().expect("wait");
        assert_eq!(status.signal(), Some(9), "{step} at {point}: {status}");
        as_before_or_after(dir.path(), step);
    }
}

/// At no step in particular.
#[test]
fn killed_at_any_moment_it_is_as_before_or_after() {
    if !soak() {
        return;
    }
    let dir = prepared();
    for step in ["branch", "rollback", "promote", "adopt", "collect", "import"] {
        for delay in [0, 1, 2, 4, 8, 16, 32, 64, 128, 256] {
            let mut worker = Worker::start(dir.path(), step, "");
            std::thread::sleep(Duration::from_millis(delay));
            worker.0.kill().expect("kill");
            worker.0.wait().expect("wait");
            as_before_or_after(dir.path(), step);
        }
    }
}

/// Opens what was left, looks at it, and puts it back as it was.
fn as_before_or_after(dir: &Path, step: &str) {
    let host = Arc::new(open(dir));
    assert!(host.check_store(false).expect("check").findings.is_empty(), "{step}");
    let machine = |name: &str| host.machine(name).unwrap_or_else(|_| panic!("{step}: no {name}"));
    let x = |name: &str| value(&machine(name), "x");
    match step {
        "promote" => {
            let both = (x("m"), x("b"));
            if both.0 == "5" {
                host.promote(&machine("b"), Some(&machine("m"))).expect("back");
            }
            assert!(both == ("2".into(), "5".into()) || both == ("5".into(), "2".into()));
        }
        "rollback" => assert!(["1", "2"].contains(&x("m").as_str())),
        "adopt" => assert!(["2", "5"].contains(&x("m").as_str())),
        _ => assert_eq!((x("m"), x("b")), ("2".into(), "5".into()), "{step}"),
    }
    for extra in host.machines() {
        if !["m", "b"].contains(&extra.name().as_str()) {
            let want = if step == "import" { "5" } else { "2" };
            assert_eq!(value(&extra, "x"), want, "{step}");
            host.remove(&extra).expect("remove");
        }
    }
    keep(&machine("m"), "x = 1");
    keep(&machine("m"), "x = 2");
    // nothing that only a killed one wrote is there for the next
    host.collect().expect("collect");
    assert!(host.close().is_empty());
}

/// A host in a process of its own, about to do something.
struct Worker(Child);

impl Worker {
    /// Killed at a point of what it does, or at none.
    fn start(dir: &Path, step: &str, point: &str) -> Worker {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "branches::worker", "--nocapture", "--ignored"]);
        command.env("WORKER_DIR", dir).env("WORKER_STEP", step).env("WORKER_POINT", point);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a worker");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let ready = lines.map(|line| line.expect("a line")).any(|line| line.contains("READY"));
        assert!(ready, "{step}: the worker ended");
        writeln!(child.stdin.as_mut().expect("a pipe"), "go").expect("told");
        Worker(child)
    }
}

/// Not a test: what `Worker` runs.
#[test]
#[ignore = "started by another test"]
fn worker() {
    let Some(dir) = std::env::var_os("WORKER_DIR") else { return };
    let step = std::env::var("WORKER_STEP").expect("a step");
    let host = Arc::new(open(Path::new(&dir)));
    let (machine, other) = (host.machine("m").expect("m"), host.machine("b").expect("b"));
    // awake, so that the step itself is what takes the time
    value(&machine, "x");
    machine.settle().expect("settle");
    let from = host.place(&other, None).expect("a place");
    println!("\nREADY");
    std::io::stdin().read_line(&mut String::new()).expect("a word");
    if let Some(point) = std::env::var("WORKER_POINT").ok().filter(|point| !point.is_empty()) {
        stasis_engine::fault::arm_for_all(&point, stasis_engine::fault::Fault::Kill);
    }
    for round in 0.. {
        match step.as_str() {
            "branch" => {
                // something to save
                run(&machine, "x = 2");
                drop(branch(&host, &machine, &format!("twig-{round}")));
            }
            "rollback" => host.roll_back(&machine, Some(0)).expect("back"),
            "promote" => drop(host.promote(&other, Some(&machine)).expect("promote")),
            "adopt" => {
                let wanted = AdoptSelection {
                    variables: vec!["x".into()],
                    force: true,
                    ..AdoptSelection::default()
                };
                host.adopt(&machine, &from, wanted).expect("adopt");
            }
            "collect" => {
                host.prune_all(&machine).expect("prune");
                host.collect().expect("collect");
            }
            _ => {
                let file = std::fs::File::open(Path::new(&dir).join("file"));
                let name = Some(named(&format!("in-{round}")));
                host.import("test", name, &mut file.expect("a file")).expect("import");
            }
        }
    }
}
