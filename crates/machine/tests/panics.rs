//! A driver that panics, in each state a machine can be in: every waiting call is answered, and
//! the machine and the service go on.
//!
//! Failure points are armed for any thread, so the tests of this program run one at a time.

use stasis_api::{Durability, Exec, Update};
use stasis_engine::fault::{Fault, arm_for_all};
use stasis_machine::{Branch, FollowUpdate, Host, Machine};
use stasis_testbed::{TestHost, exec, until, value};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;

/// Against hangs only.
const PATIENCE: Duration = Duration::from_secs(120);

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Makes the next threads at these points panic, once each; returns how many have.
fn panic_at(points: &[&str]) -> Arc<AtomicUsize> {
    let met = Arc::new(AtomicUsize::new(0));
    for point in points {
        let met = met.clone();
        let fail = move || {
            met.fetch_add(1, Ordering::Relaxed);
            panic!("a bug that a test made")
        };
        arm_for_all(point, Fault::Call(Arc::new(fail)));
    }
    met
}

fn local(code: &str) -> Exec {
    let durability = Some(Durability::Local);
    Exec { code: code.into(), durability, ..Exec::default() }
}

type Call = Box<dyn FnOnce(&Arc<Host>, &Arc<Machine>) + Send>;

/// Concurrent requests to a machine. Together they bring it into every state.
fn calls() -> Vec<(&'static str, Call)> {
    fn run(code: &'static str) -> Call {
        Box::new(move |_, machine| {
            let Ok(seq) = machine.submit(local(code)) else { return };
            let follower = machine.clone();
            let followed = std::thread::spawn(move || while step(&follower, seq) {});
            let _ = machine.wait(seq);
            followed.join().expect("the follower is answered");
        })
    }
    let branch = || Branch { names: vec![None], ..Branch::default() };
    vec![
        ("an instruction", run("x")),
        ("one that waits", run("print(x)")),
        ("a crash", run("import os; os._exit(1)")),
        ("wake", Box::new(|host, machine| drop(host.wake(machine)))),
        ("vars", Box::new(|host, machine| drop(host.vars(machine)))),
        ("complete", Box::new(|host, machine| drop(host.complete(machine, "pri".into(), 3)))),
        ("usage", Box::new(|host, machine| drop(host.usage(machine)))),
        ("branch", Box::new(move |host, machine| drop(host.branch(machine, branch())))),
        ("update", Box::new(|host, machine| drop(host.update(machine, Update::default())))),
        ("swap", Box::new(|host, machine| drop(host.swap(machine)))),
        ("settle", Box::new(|_, machine| drop(machine.settle()))),
        ("list", Box::new(|_, machine| drop(machine.list_files("/tmp", None, None)))),
    ]
}

/// Follows as a client does; whether there is more.
fn step(machine: &Arc<Machine>, seq: u64) -> bool {
    match machine.follow(seq, u64::MAX) {
        Ok(FollowUpdate::Wait(listener)) => {
            event_listener::Listener::wait(listener);
            true
        }
        Ok(FollowUpdate::Chunks(_)) => true,
        Ok(FollowUpdate::Over(_)) | Err(_) => false,
    }
}

/// Asks all at once, and demands that all are answered.
fn storm(host: &Arc<Host>, machine: &Arc<Machine>, calls: Vec<(&'static str, Call)>, at: &str) {
    let (tell, told) = mpsc::channel();
    let mut waiting: BTreeSet<&str> = calls.iter().map(|(name, _)| *name).collect();
    for (name, call) in calls {
        let (host, machine, tell) = (host.clone(), machine.clone(), tell.clone());
        std::thread::spawn(move || {
            call(&host, &machine);
            let _ = tell.send(name);
        });
    }
    while !waiting.is_empty() {
        let Ok(name) = told.recv_timeout(PATIENCE) else {
            panic!("{at}: not answered: {waiting:?}");
        };
        waiting.remove(name);
    }
}

/// A machine that holds `x`, in memory.
fn machine(bed: &TestHost) -> Arc<Machine> {
    let machine = bed.machine();
    exec(&machine, local("x = 1"));
    machine
}

#[test]
fn a_driver_that_panics_in_any_state_answers_all_waiters() {
    let _alone = alone();
    let bed = TestHost::start();
    let other = machine(&bed);
    bed.host.swap(&other).expect("swapped");
    let states =
        ["waking", "ready", "saving", "starting", "running", "storing", "ending", "swapped"];
    for state in states {
        let machine = machine(&bed);
        bed.host.swap(&machine).expect("swapped");
        let at = format!("state.{state}");
        let met = panic_at(&[&at]);
        storm(&bed.host, &machine, calls(), &at);
        // in turn, should the storm have come by another way
        let _ = bed.host.swap(&machine);
        let _ = exec(&machine, local("x"));
        let _ = bed.host.swap(&machine);
        let _ = bed.host.wake(&machine);
        assert_eq!(met.load(Ordering::Relaxed), 1, "{at} was never passed");
        assert_eq!(value(&machine, "x"), "1", "{at}");
        bed.host.remove(&machine).expect("it can be removed");
    }
    assert_eq!(value(&other, "x + 1"), "2");
    assert!(bed.host.check_store(false).expect("check").findings.is_empty());
}

/// The driver panics while the machine is removed: it goes all the same.
#[test]
fn a_driver_that_panics_while_its_machine_leaves() {
    let _alone = alone();
    let bed = TestHost::start();
    for (count, point) in ["state.leaving", "state.running", "state.ready"].iter().enumerate() {
        let machine = machine(&bed);
        let met = panic_at(&[point]);
        let mut calls = calls();
        for name in ["remove", "remove again"] {
            calls.push((name, Box::new(|host, machine| drop(host.remove(machine)))));
        }
        storm(&bed.host, &machine, calls, point);
        assert!(bed.host.machine(machine.name().as_str()).is_err());
        until("its driver is gone", || {
            let gone = bed.host.wake(&machine).expect_err("it is removed");
            gone.code() == "machine.removed"
        });
        if count == 0 {
            assert_eq!(met.load(Ordering::Relaxed), 1, "{point} was never passed");
        }
        // what was not met must not meet the next one
        let rest = self::machine(&bed);
        let _ = exec(&rest, local("x"));
    }
}

/// The handling of a panic panics, too: all waiters are answered, and the machine is at its last
/// checkpoint.
#[test]
fn a_driver_that_panics_twice_answers_all_waiters() {
    let _alone = alone();
    let bed = TestHost::start();
    for first in ["state.running", "state.storing", "state.starting"] {
        let machine = machine(&bed);
        bed.host.swap(&machine).expect("swapped");
        let met = panic_at(&[first, "state.ending"]);
        let mut calls = calls();
        if first == "state.starting" {
            // nothing but instructions wakes it
            calls.truncate(3);
        }
        storm(&bed.host, &machine, calls, first);
        assert_eq!(met.load(Ordering::Relaxed), 2, "{first}");
        assert_eq!(value(&machine, "x"), "1", "{first}");
        machine.settle().expect("nothing is left open");
        let open = machine.instructions(0, 1000).expect("the log");
        assert!(open.iter().all(|one| one.status.is_over()), "{open:?}");
    }
}
