//! Every call that waits for a machine gets an answer: while it is removed, when its driver hangs
//! or fails, and when a template cannot be parked.
//!
//! Failure points are armed for any thread, so the tests of this program run one at a time.

use stasis_api::{Durability, Exec, Status};
use stasis_engine::fault::{Fault, arm_for_all};
use stasis_machine::{Branch, Error, Machine, Steps};
use stasis_testbed::{TestHost, exec, run, until, value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Against hangs only.
const PATIENCE: Duration = Duration::from_secs(120);

fn branch() -> Branch {
    Branch { names: vec![None], ..Branch::default() }
}

/// Arms a point so that the next thread waits there until `go`.
fn stop_at(point: &str) -> (Arc<AtomicBool>, mpsc::Receiver<()>) {
    let go = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let (own, tell) = (go.clone(), Mutex::new(tell));
    arm_for_all(
        point,
        Fault::Call(Arc::new(move || {
            let _ = tell.lock().expect("one at a time").send(());
            let end = Instant::now() + PATIENCE;
            while !own.load(Ordering::Relaxed) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
        })),
    );
    (go, told)
}

/// A machine whose driver hangs is removed anyway, its waiters get an error, and the driver's later
/// actions change nothing.
#[test]
fn a_machine_whose_driver_hangs_can_be_removed() {
    let _alone = alone();
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "secret = 'of the first'");
    let (go, stopped) = stop_at("driver.asked");
    let (host, own) = (bed.host.clone(), machine.clone());
    let hanging = std::thread::spawn(move || host.swap(&own));
    stopped.recv_timeout(PATIENCE).expect("the driver stops");
    let waiting: Vec<_> = [0, 1, 2, 3]
        .map(|kind| {
            let (host, own) = (bed.host.clone(), machine.clone());
            std::thread::spawn(move || match kind {
                0 => host.swap(&own),
                1 => host.wake(&own),
                2 => host.branch(&own, branch()).map(drop),
                _ => host.roll_back(&own, None),
            })
        })
        .into_iter()
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    bed.host.remove(&machine).expect("removed");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    for waiter in waiting {
        let told = waiter.join().expect("no failure").expect_err("it is gone");
        assert_eq!(told.code(), "machine.removed", "{told}");
    }
    let again = bed.host.remove(&machine).expect_err("it is gone");
    assert_eq!(again.code(), "machine.not_found");
    // another machine, which must not get anything of the first
    let other = bed.machine();
    go.store(true, Ordering::Relaxed);
    assert!(hanging.join().expect("no failure").is_err());
    run(&other, "mine = 1");
    let name = other.name().to_string();
    drop((machine, other));
    let bed = bed.reopen();
    let other = bed.host.machine(&name).expect("it is there");
    assert!(value(&other, "'secret' in globals()") == "False");
    assert_eq!(bed.host.machines().len(), 1);
}

/// Requests after a decided removal are refused, and nothing is left of the machine.
#[test]
fn a_removal_is_decided_once() {
    let _alone = alone();
    let bed = TestHost::start();
    for _ in 0..3 {
        let machine = bed.machine();
        run(&machine, "x = 1");
        let results: Vec<Result<(), Error>> = std::thread::scope(|scope| {
            let each = |kind: usize| {
                let (host, own) = (&bed.host, &machine);
                scope.spawn(move || match kind {
                    0..=2 => host.remove(own),
                    3 => host.wake(own),
                    4 => host.swap(own),
                    5 => host.undo(own, Steps::default()),
                    6 => host.branch(own, branch()).map(drop),
                    7 => own.submit(Exec { code: "2".into(), ..Exec::default() }).map(drop),
                    _ => host.collect().map(drop),
                })
            };
            let threads: Vec<_> = (0..9).map(each).collect();
            threads.into_iter().map(|thread| thread.join().expect("no failure")).collect()
        });
        assert_eq!(results[..3].iter().filter(|one| one.is_ok()).count(), 1, "{results:?}");
        for error in results.iter().filter_map(|one| one.as_ref().err()) {
            let fine = ["machine.removed", "machine.not_found"].contains(&error.code());
            assert!(fine, "{} {error}", error.code());
        }
        assert!(bed.host.machine(machine.name().as_str()).is_err());
        let late = bed.host.wake(&machine).expect_err("it is gone");
        assert_eq!(late.code(), "machine.removed");
    }
    // branches that were made first live on, and have what they need
    for machine in bed.host.machines() {
        assert_eq!(value(&machine, "x"), "1");
    }
    assert!(bed.host.check_store(false).expect("check").findings.is_empty());
}

/// A collection between the removal of a machine and the record of its branch takes nothing away
/// that the branch needs.
#[test]
fn a_branch_has_its_image_or_is_refused() {
    let _alone = alone();
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "x = [1] * 100_000");
    let (go, stopped) = stop_at("branch.captured");
    let (host, own) = (bed.host.clone(), machine.clone());
    let branching = std::thread::spawn(move || host.branch(&own, branch()).map(drop));
    stopped.recv_timeout(PATIENCE).expect("it is captured");
    bed.host.remove(&machine).expect("removed");
    bed.host.collect().expect("collect");
    go.store(true, Ordering::Relaxed);
    let told = branching.join().expect("no failure").expect_err("its source is gone");
    assert_eq!(told.code(), "machine.removed");
    bed.host.collect().expect("what is recorded is there");
    assert!(bed.host.check_store(false).expect("check").findings.is_empty());
}

/// The driver fails during an action: its waiters get an error, and the machine continues.
#[test]
fn a_failing_driver_answers_all_waiters() {
    let _alone = alone();
    let bed = TestHost::start();
    let machine = bed.machine();
    let code = "x = 1".to_owned();
    exec(&machine, Exec { code, durability: Some(Durability::Local), ..Exec::default() });
    let fail = || Fault::Call(Arc::new(|| panic!("a bug that a test made")));
    for point in ["driver.asked", "driver.instruction"] {
        arm_for_all(point, fail());
        let queued: Vec<u64> = (0..3).map(|_| submit(&machine, "x")).collect();
        let asked = within(&machine, |host, machine| host.swap(machine), &bed);
        let ends: Vec<Status> =
            queued.iter().map(|seq| machine.wait(*seq).expect("an end").status).collect();
        let failed = asked.is_err() || ends.contains(&Status::Lost);
        assert!(failed, "{point}: {asked:?} {ends:?}");
        assert_eq!(value(&machine, "x"), "1", "{point}");
    }
}

fn submit(machine: &Arc<Machine>, code: &str) -> u64 {
    machine.submit(Exec { code: code.into(), ..Exec::default() }).expect("accepted")
}

/// The result of a call, which must arrive.
fn within<T: Send + 'static>(
    machine: &Arc<Machine>,
    call: impl FnOnce(&stasis_machine::Host, &Arc<Machine>) -> T + Send + 'static,
    bed: &TestHost,
) -> T {
    let (tell, told) = mpsc::channel();
    let (host, machine) = (bed.host.clone(), machine.clone());
    std::thread::spawn(move || tell.send(call(&host, &machine)));
    told.recv_timeout(PATIENCE).expect("an answer")
}

/// Restores that wait for a template that cannot be parked start without it.
#[test]
fn a_template_that_cannot_be_parked_delays_no_restore_for_ever() {
    let _alone = alone();
    arm_for_all("warm.parking", Fault::Call(Arc::new(|| panic!("a bug that a test made"))));
    let bed = TestHost::start();
    let machines: Vec<_> = (0..4).map(|_| bed.machine()).collect();
    std::thread::scope(|scope| {
        for machine in &machines {
            scope.spawn(|| assert_eq!(value(machine, "1 + 1"), "2"));
        }
    });
}

/// A capture right after an undo: the agent has answered by then, and reads the next order whole.
#[test]
fn undo_and_swap_again_and_again() {
    let _alone = alone();
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "x = 0");
    machine.settle().expect("saved");
    for round in 1..=8 {
        run(&machine, &format!("x = {round}"));
        bed.host.undo(&machine, Steps::default()).expect("undone");
        bed.host.swap(&machine).expect("swapped");
        let begun = Instant::now();
        assert_eq!(value(&machine, "x"), "0");
        assert!(begun.elapsed() < Duration::from_secs(50), "an order was cut: {round}");
    }
}

/// A file that is put while the machine is swapped in and out is there, and the call never fails
/// because the machine left memory.
#[test]
fn files_are_put_and_removed_while_the_machine_comes_and_goes() {
    let _alone = alone();
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "x = 1");
    let over = AtomicBool::new(false);
    let mut failed = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                bed.host.swap(&machine).expect("swapped");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for round in 0..6 {
            let done = || -> Result<(), Error> {
                let mut file = machine.put_file("/tmp/put", None)?;
                file.write(format!("{round}").as_bytes())?;
                file.finish(Some(Durability::Local))?;
                machine.remove_file("/tmp/put", false).map(drop)
            };
            match done() {
                Ok(()) => {}
                // it left memory more often than it is tried
                Err(error) if error.code() == "machine.unsteady" => {}
                Err(error) => failed = Some(format!("{}: {error}", error.code())),
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(failed, None);
    until("it is at rest", || bed.host.swap(&machine).is_ok());
}

/// `ps` and whatever watches a host read the command line of every process, which touches memory
/// of those that are just being restored.
#[test]
fn a_host_that_is_watched_wakes_its_machines() {
    let _alone = alone();
    let bed = TestHost::start();
    let machine = bed.machine();
    // the page that is read is one that differs from the template's, so it has to be installed
    let written = run(
        &machine,
        "x = 1\nimport ctypes\nfields = open('/proc/self/stat').read().rsplit(') ', 1)[1].split()\n\
         at = int(fields[45])\nctypes.memset(at, 88, 1)",
    );
    assert_eq!(written.status, Status::Done, "{written:?}");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let processes = std::fs::read_dir("/proc").expect("a list").flatten();
                for process in processes {
                    let _ = std::fs::read(process.path().join("cmdline"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for round in 0..15 {
            bed.host.swap(&machine).expect("swapped");
            let woken = bed.host.wake(&machine);
            if woken.is_err() {
                over.store(true, Ordering::Relaxed);
            }
            woken.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(value(&machine, "x"), "1");
}

/// The directory of a machine that leaves memory is removed, which says nothing about its files.
#[test]
fn files_are_there_whenever_the_machine_leaves_memory() {
    let _alone = alone();
    let bed = TestHost::start();
    let machine = bed.machine();
    type Look = fn(&Arc<Machine>, &str) -> Result<(), Error>;
    let looks: [Look; 3] = [
        |machine, path| machine.file(path).map(drop),
        |machine, path| machine.read_file(path).map(drop),
        // of these the kernel remembers nothing, so it always tells
        |machine, path| {
            let list = machine.list_files("/tmp", None, None)?;
            assert!(list.files.iter().any(|file| file.path == path), "{list:?}");
            Ok(())
        },
    ];
    for (count, look) in looks.into_iter().enumerate() {
        // a new one: those of an image lie in a directory that stays
        let path = format!("/tmp/file-{count}");
        run(&machine, &format!("open('{path}', 'w').write('kept')"));
        let (go, stopped) = stop_at("files.looking");
        let own = machine.clone();
        let looking = std::thread::spawn(move || look(&own, &path));
        stopped.recv_timeout(PATIENCE).expect("it stops before it looks");
        bed.host.swap(&machine).expect("swapped out");
        go.store(true, Ordering::Relaxed);
        looking.join().expect("a thread").expect("the file is there");
    }
}

/// Bytes that clients send count against the machine's disk limit before the file has its name.
#[test]
fn uploads_at_once_do_not_pass_the_disk_limit_together() {
    let bed = TestHost::start();
    let limits = stasis_api::Limits { disk_mb: Some(8), ..Default::default() };
    let new = stasis_api::NewMachine { limits, ..Default::default() };
    let machine = bed.host.create("root", new).expect("a machine");
    let piece = vec![7; 5 << 20];
    let mut first = machine.put_file("/tmp/first", None).expect("it begins");
    first.write(&piece).expect("there is room for one");
    let mut second = machine.put_file("/tmp/second", None).expect("it begins");
    let refused = second.write(&piece).expect_err("there is no room for both");
    assert!(refused.to_string().contains("limit of 8 MB"), "{refused}");
    drop(second);
    first.finish(None).expect("the first has its name");
    machine.file("/tmp/first").expect("and is there");
    machine.remove_file("/tmp/first", false).expect("removed");
    let mut third = machine.put_file("/tmp/third", None).expect("it begins");
    third.write(&piece).expect("what was given up no longer counts");
}
