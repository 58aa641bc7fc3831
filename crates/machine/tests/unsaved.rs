//! States that are not on disk yet: branches of them and undo do not wait for the disk, have all of
//! the state, and lose nothing but what was never promised to be kept.

use parking_lot::{Mutex, MutexGuard};
use stasis_api::{Durability, Exec, Name, NewMachine, Status};
use stasis_engine::fault::{self, Fault};
use stasis_machine::{Branch, Host, Machine, Steps};
use stasis_testbed::{TestHost, data_dir, open, run, until, value};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Far more than is copied in the pause.
const MAKE: &str = "import os, hashlib\nbig = bytearray(os.urandom(1 << 20) * 48)\nx = 2\n\
                    hashlib.sha256(big).hexdigest()";
const DIGEST: &str = "hashlib.sha256(big).hexdigest()";

/// Points are armed for every thread of the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
}

fn named(text: &str) -> Name {
    text.parse().expect("a name")
}

fn branch(host: &Host, source: &Arc<Machine>, name: &str) -> Arc<Machine> {
    let one = Branch { names: vec![Some(named(name))], ..Branch::default() };
    host.branch(source, one).expect("branch").remove(0)
}

/// Holds the next capture up once its state can be shared, until what is returned is dropped; and
/// whether it got there.
fn hold_writing() -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
    hold("capture.shared")
}

/// The same at any point.
fn hold(point: &str) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
    let (release, released) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let both = Mutex::new((released, tell));
    let wait = move || {
        let both = both.lock();
        let _ = both.1.send(());
        let _ = both.0.recv();
    };
    fault::arm_for_all(point, Fault::Call(Arc::new(wait)));
    (release, told)
}

/// A machine whose first state is saved, with a large one that is being saved; its digest.
fn large(bed: &TestHost) -> (Arc<Machine>, String, mpsc::Sender<()>) {
    let machine = bed.machine();
    let exec =
        Exec { code: "x = 1".into(), durability: Some(Durability::Local), ..Exec::default() };
    stasis_testbed::exec(&machine, exec);
    let (release, told) = hold_writing();
    let digest = value(&machine, MAKE);
    told.recv().expect("a capture");
    (machine, digest, release)
}

fn lost_of(machine: &Arc<Machine>) -> String {
    machine.describe().lost.unwrap_or_default()
}

#[test]
fn a_branch_of_an_unsaved_state_needs_no_disk_and_has_all_of_it() {
    let _alone = alone();
    let bed = TestHost::start();
    let (machine, digest, release) = large(&bed);
    // nothing is written before it is released
    let twig = branch(&bed.host, &machine, "twig");
    let code = format!("found = {DIGEST}\nbig[0] ^= 255\nx = 3\nfound");
    assert_eq!(value(&twig, &code), digest);
    assert!(twig.describe().checkpoint.is_none(), "saved before what it stands on");
    // on disk in order: the source, the branch
    drop(release);
    let other = value(&twig, DIGEST);
    assert_ne!(other, digest);
    bed.host.wait_saved(&twig).expect("saved");
    bed.host.swap(&twig).expect("swap");
    assert_eq!(value(&machine, DIGEST), digest);
    assert_eq!((value(&twig, "x"), value(&twig, DIGEST)), ("3".into(), other.clone()));
    // back to where it started
    bed.host.roll_back(&twig, None).expect("back");
    assert_eq!((value(&twig, "x"), value(&twig, DIGEST)), ("2".into(), digest.clone()));
    let source = bed.host.branch(&machine, Branch { names: vec![None], ..Branch::default() });
    let again = source.expect("branch").remove(0).name();
    assert!(bed.host.close().is_empty());
    drop((machine, twig));
    let bed = bed.reopen();
    assert!(bed.host.check_store(false).expect("check").findings.is_empty());
    let again = bed.host.machine(again.as_str()).expect("a branch");
    let twig = bed.host.machine("twig").expect("a branch");
    assert_eq!((value(&again, DIGEST), value(&twig, DIGEST)), (digest.clone(), digest));
    assert_eq!(lost_of(&twig), "");
}

/// It is requested while the source is stopped, and answered as soon as the source continues.
#[test]
fn a_branch_that_comes_during_the_pause_does_not_wait_for_the_disk() {
    let _alone = alone();
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "x = 1");
    bed.host.place(&machine, None).expect("saved");
    let (resume, paused) = hold("capture.thawed");
    let (release, told) = hold_writing();
    let digest = value(&machine, MAKE);
    paused.recv().expect("a capture");
    let (host, own) = (bed.host.clone(), machine.clone());
    let branching = std::thread::spawn(move || branch(&host, &own, "twig"));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!branching.is_finished());
    drop(resume);
    told.recv().expect("a state");
    let twig = branching.join().expect("a branch");
    assert_eq!(value(&twig, DIGEST), digest);
    drop(release);
    bed.host.wait_saved(&twig).expect("saved");
}

/// Requests to a branch wait until its first state has an image.
#[test]
fn a_branch_of_a_branch_and_the_past_wait_for_the_first_state() {
    let _alone = alone();
    let bed = TestHost::start();
    let (machine, digest, release) = large(&bed);
    let twig = branch(&bed.host, &machine, "twig");
    let (host, own) = (bed.host.clone(), twig.clone());
    let second = std::thread::spawn(move || branch(&host, &own, "second"));
    let (host, own) = (bed.host.clone(), twig.clone());
    let place = std::thread::spawn(move || host.place(&own, None).map(drop));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!second.is_finished() && !place.is_finished());
    drop(release);
    let second = second.join().expect("a branch of the branch");
    place.join().expect("a thread").expect("a place");
    assert_eq!(value(&second, DIGEST), digest);
}

#[test]
fn a_source_that_is_removed_leaves_its_branch_whole() {
    let _alone = alone();
    let bed = TestHost::start();
    let (machine, digest, release) = large(&bed);
    let twig = branch(&bed.host, &machine, "twig");
    let (host, own) = (bed.host.clone(), machine.clone());
    let removing = std::thread::spawn(move || host.remove(&own));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!removing.is_finished(), "it is still needed");
    drop(release);
    removing.join().expect("a thread").expect("remove");
    bed.host.collect().expect("collect");
    assert_eq!(value(&twig, DIGEST), digest);
    bed.host.swap(&twig).expect("swap");
    bed.host.collect().expect("collect");
    assert_eq!(value(&twig, DIGEST), digest);
}

/// A collection while a state is in no image takes nothing that it needs.
#[test]
fn a_collection_meanwhile_takes_nothing() {
    let _alone = alone();
    let bed = TestHost::start();
    let (machine, digest, release) = large(&bed);
    let twig = branch(&bed.host, &machine, "twig");
    bed.host.collect().expect("collect");
    assert_eq!(value(&twig, DIGEST), digest);
    bed.host.collect().expect("collect");
    // its next instruction waits until this one has a state of its own
    drop(release);
    bed.host.wait_saved(&twig).expect("saved");
    bed.host.collect().expect("collect");
    bed.host.swap(&twig).expect("swap");
    assert_eq!(value(&twig, DIGEST), digest);
    assert!(bed.host.check_store(false).expect("check").findings.is_empty());
}

/// For example a full disk: the branch reports it, and is at the last kept state of its source.
#[test]
fn a_branch_whose_state_cannot_be_saved_says_so() {
    let _alone = alone();
    let bed = TestHost::start();
    let (machine, digest, release) = large(&bed);
    let twig = branch(&bed.host, &machine, "twig");
    assert_eq!(value(&twig, "x"), "2");
    fault::arm_for_all("capture.pages", Fault::Error);
    drop(release);
    until("the branch is told", || lost_of(&twig).contains("was not saved"));
    assert!(bed.host.wait_saved(&twig).is_err());
    until("its instruction is lost", || {
        let first = twig.instruction(0).expect("an instruction");
        first.status == Status::Lost
    });
    let end = run(&twig, "x");
    let told = end.receipt.map(|receipt| receipt.notes.join(" ")).unwrap_or_default();
    assert!(told.contains("was not saved"), "{told}");
    assert_eq!(end.outcome.and_then(|outcome| outcome.value).as_deref(), Some("1"));
    assert_eq!(lost_of(&twig), "");
    // the source is as it was, and can be saved
    assert_eq!(value(&machine, DIGEST), digest);
    bed.host.swap(&machine).expect("swap");
    assert_eq!(value(&machine, DIGEST), digest);
    bed.host.swap(&twig).expect("swap");
    drop((machine, twig));
    let bed = bed.reopen();
    let twig = bed.host.machine("twig").expect("a branch");
    assert_eq!((value(&twig, "x").as_str(), lost_of(&twig).as_str()), ("1", ""));
    let parent = twig.describe().parent.expect("a parent");
    assert_eq!(parent.seq, Some(0));
}

#[test]
fn an_undo_of_an_unsaved_state_needs_no_disk_and_can_be_redone() {
    let _alone = alone();
    let bed = TestHost::start();
    let (machine, digest, release) = large(&bed);
    bed.host.undo(&machine, Steps::default()).expect("undo");
    assert_eq!(value(&machine, "x"), "1");
    // which is something new, and what was left is nothing to go forward to
    drop(release);
    assert!(bed.host.redo(&machine, Steps::default()).is_err());
    assert_eq!(run(&machine, "big").status, Status::Failed, "{digest}");

    let (machine, digest, release) = large(&bed);
    bed.host.undo(&machine, Steps::default()).expect("undo");
    let (host, own) = (bed.host.clone(), machine.clone());
    let redone = std::thread::spawn(move || host.redo(&own, Steps::default()));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!redone.is_finished(), "it is not there yet");
    drop(release);
    redone.join().expect("a thread").expect("redo");
    assert_eq!((value(&machine, "x"), value(&machine, DIGEST)), ("2".into(), digest.clone()));
    bed.host.undo(&machine, Steps { n: 3, grouped: false }).expect("undo");
    assert_eq!(value(&machine, "x"), "1");
    drop(machine);
    assert!(bed.host.check_store(false).expect("check").findings.is_empty());
}

/// An undo that is refused leaves the machine as it is.
#[test]
fn an_undo_too_far_is_refused_while_a_state_is_saved() {
    let _alone = alone();
    let bed = TestHost::start();
    let (machine, digest, release) = large(&bed);
    assert!(bed.host.undo(&machine, Steps { n: 9, grouped: false }).is_err());
    drop(release);
    assert_eq!((value(&machine, "x"), value(&machine, DIGEST)), ("2".into(), digest));
}

/// Killed between the answer and the save: what was lost is said at the next contact.
#[test]
fn killed_before_a_state_is_saved_its_branch_says_so() {
    use std::os::unix::process::ExitStatusExt;
    let dir = data_dir();
    {
        let host = open(dir.path());
        let new = NewMachine { name: Some(named("m")), ..NewMachine::default() };
        let machine = host.create("test", new).expect("create");
        let durability = Some(Durability::Local);
        stasis_testbed::exec(
            &machine,
            Exec { code: "x = 1".into(), durability, ..Exec::default() },
        );
        assert!(host.close().is_empty());
    }
    for step in ["branch", "undo"] {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "worker", "--nocapture", "--ignored"]);
        command.env("WORKER_DIR", dir.path()).env("WORKER_STEP", step);
        let status = command.stdout(Stdio::null()).status().expect("a worker");
        assert_eq!(status.signal(), Some(9), "{step}: {status}");
        let host = open(dir.path());
        assert!(host.check_store(false).expect("check").findings.is_empty());
        let machine = host.machine("m").expect("m");
        if step == "branch" {
            let twig = host.machine("twig").expect("a branch");
            assert!(lost_of(&twig).contains("was not saved"), "{}", lost_of(&twig));
            assert_eq!(twig.instruction(0).expect("an instruction").status, Status::Lost);
            // also after another start
            drop((twig, machine, host));
            let host = open(dir.path());
            let twig = host.machine("twig").expect("a branch");
            assert!(lost_of(&twig).contains("was not saved"), "{}", lost_of(&twig));
            assert_ne!(lost_of(&host.machine("m").expect("m")), "");
            let parent = twig.describe().parent.expect("a parent");
            assert_eq!((parent.machine.as_str(), parent.seq), ("m", Some(0)));
            let end = run(&twig, "x");
            assert_eq!(end.outcome.and_then(|outcome| outcome.value).as_deref(), Some("1"));
            assert!(end.receipt.is_some_and(|told| told.notes.join(" ").contains("was not saved")));
            assert_eq!(value(&host.machine("m").expect("m"), "x"), "1");
            assert!(host.close().is_empty());
            continue;
        }
        // the answer was durable; what it left is not there to be redone
        assert_eq!(lost_of(&machine), "");
        assert!(host.redo(&machine, Steps::default()).is_err());
        assert_eq!(value(&machine, "x"), "1");
    }
}

/// Not a test: what is killed.
#[test]
#[ignore = "started by another test"]
fn worker() {
    let Some(dir) = std::env::var_os("WORKER_DIR") else { return };
    let host = open(Path::new(&dir));
    let machine = host.machine("m").expect("m");
    let (release, told) = hold_writing();
    value(&machine, MAKE);
    told.recv().expect("a capture");
    match std::env::var("WORKER_STEP").expect("a step").as_str() {
        "branch" => assert_eq!(value(&branch(&host, &machine, "twig"), "x"), "2"),
        _ => host.undo(&machine, Steps::default()).expect("undo"),
    }
    stasis_sys::process::kill(std::process::id() as i32, 9).expect("kill");
    std::thread::sleep(Duration::from_secs(60));
    drop(release);
}

/// Branch after branch, undo after undo, of states that may or may not be on disk.
#[test]
fn states_are_equal_whether_they_are_saved_or_not() {
    let _alone = alone();
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "import hashlib\nbig = bytearray(24 << 20)");
    let start = Instant::now();
    for round in 0..8u64 {
        let code = format!("for i in range(0, len(big), 4096): big[i] = {round} + i // 4096 & 127");
        run(&machine, &code);
        let twig = branch(&bed.host, &machine, &format!("twig-{round}"));
        let own = value(&twig, DIGEST);
        std::thread::sleep(Duration::from_millis(round * 17 % 60));
        if round % 2 == 1 {
            bed.host.undo(&machine, Steps::default()).expect("undo");
            assert_ne!(value(&machine, DIGEST), own);
            bed.host.undo(&machine, Steps::default()).expect("undo the question");
            bed.host.undo(&machine, Steps::default()).expect("undo the one before");
        } else {
            assert_eq!(value(&machine, DIGEST), own, "round {round}");
        }
        bed.host.swap(&twig).expect("swap");
        assert_eq!(value(&twig, DIGEST), own, "round {round}");
        if round % 3 == 0 {
            bed.host.remove(&twig).expect("remove");
        }
        bed.host.collect().expect("collect");
    }
    assert!(start.elapsed() < Duration::from_secs(300));
    assert!(bed.host.check_store(false).expect("check").findings.is_empty());
}
