//! The engine fails at each named step.

use crate::bench::Bench;
use crate::own;
use stasis_engine::fault::{Fault, POINTS, arm};
use std::sync::Arc;
use std::time::Instant;

/// Points a capture passes, or (`false`) those of restore and park.
pub fn points(of_capture: bool) -> impl Iterator<Item = &'static str> {
    let others = ["collect.", "rewrite.", "import."];
    let upkeep = move |name: &&str| !others.iter().any(|own| name.starts_with(own));
    POINTS.into_iter().filter(upkeep).filter(move |name| {
        let other = ["restore.", "clone.", "park."].iter().any(|prefix| name.starts_with(prefix));
        other != of_capture
    })
}

#[test]
fn a_failed_capture_leaves_the_source_as_it_was() {
    own::process("points::a_failed_capture_leaves_the_source_as_it_was", || {
        let bench = Bench::start();
        let mut first = bench.launch("children");
        for point in points(true) {
            fails_and_recovers(&bench, &mut first, point, Fault::Error);
        }
        // the same on a restored tree, whose writes are tracked
        let image = bench.proves_capture(&mut first);
        let mut second = bench.restore(&image).expect("restore");
        for point in points(true) {
            fails_and_recovers(&bench, &mut second, point, Fault::Error);
        }
    });
}

#[test]
fn a_last_capture_that_fails_leaves_the_source_running() {
    own::process("points::a_last_capture_that_fails_leaves_the_source_running", || {
        let bench = Bench::start();
        let mut source = bench.launch("children");
        let digest = source.ask("digest");
        for point in points(true) {
            let guard = arm(point, Fault::Error);
            let error = bench.engine.capture_last(&source.tree).expect_err(point);
            assert!(guard.fired() && error.to_string().contains("injected"), "{point}: {error}");
            drop(guard);
            source.check();
        }
        let image = bench.engine.capture_last(&source.tree).expect("capture").image;
        source.tree.kill().expect("it ends");
        let mut copy = bench.restore(&image).expect("restore");
        copy.check();
        assert_eq!(copy.ask("digest"), digest);
    });
}

#[test]
fn a_full_disk_or_short_write_at_each_write_is_found() {
    own::process("points::a_full_disk_or_short_write_at_each_write_is_found", || {
        let bench = Bench::start();
        let mut source = bench.launch("files_offsets");
        for point in ["pack.write", "pack.written", "image.write", "image.written"] {
            fails_and_recovers(&bench, &mut source, point, Fault::Enospc);
        }
        // a write that takes half is no failure: the rest follows
        for point in ["pack.write", "image.write"] {
            source.step();
            let guard = arm(point, Fault::Short);
            bench.proves_capture(&mut source);
            assert!(guard.fired(), "{point} was not passed");
        }
    });
}

fn fails_and_recovers(
    bench: &Bench,
    source: &mut crate::bench::Program,
    point: &str,
    fault: Fault,
) {
    eprintln!("{point}");
    source.check();
    source.step();
    let before = source.living();
    let enospc = matches!(fault, Fault::Enospc);
    let guard = arm(point, fault);
    let error = bench.engine.capture(&source.tree).expect_err(point);
    assert!(guard.fired(), "{point} was not passed");
    drop(guard);
    if enospc {
        assert!(error.to_string().contains("No space left"), "{point}: {error}");
    } else {
        assert!(error.to_string().contains("injected"), "{point}: {error}");
    }
    own::until(|| source.living() == before, || format!("{point}: processes"));
    assert_eq!(bench.unfinished(), [""; 0], "{point}: files left in tmp");
    source.check();
    bench.proves_capture(source);
}

#[test]
fn a_failed_restore_leaves_nothing_behind() {
    own::process("points::a_failed_restore_leaves_nothing_behind", || {
        let bench = Bench::start();
        let mut source = bench.launch("children");
        let image = bench.proves_capture(&mut source);
        // spawner, blank template, and the source's own
        let before = 2 + source.living().len();
        own::settles_at(before).expect("at rest");
        for point in points(false).filter(|point| *point != "park.cloned") {
            let guard = arm(point, Fault::Error);
            let error = bench.refused(&image);
            assert!(guard.fired() && error.to_string().contains("injected"), "{point}: {error}");
            own::settles_at(before).unwrap_or_else(|what| panic!("{point}: {what}"));
            bench.restore(&image).expect("restore after a failure").check();
        }
        own::settles_at(before).expect("after restores that failed");
        for point in ["clone.staged", "clone.ordered", "park.cloned"] {
            let guard = arm(point, Fault::Error);
            let error = bench.engine.park(&image).expect_err(point);
            assert!(guard.fired() && error.to_string().contains("injected"), "{point}: {error}");
            own::settles_at(before).unwrap_or_else(|what| panic!("{point}: {what}"));
        }
        bench.engine.park(&image).expect("park after a failure");
        bench.restore(&image).expect("restore from the template").check();
        source.check();
        drop((source, bench));
        assert_eq!(own::left_behind(), [""; 0]);
    });
}

#[test]
fn a_tree_that_ends_during_its_capture() {
    own::process("points::a_tree_that_ends_during_its_capture", || {
        let bench = Bench::start();
        for point in points(true) {
            let source = bench.launch("threads_futex");
            let pid = source.tree.pid();
            let guard = arm(point, Fault::Call(Arc::new(move || kill(pid))));
            let started = Instant::now();
            match bench.engine.capture(&source.tree) {
                // once its copy is made the tree is no longer needed
                Ok(captured) => bench.restore(&captured.image).expect("restore").check(),
                Err(error) => eprintln!("{point}: {error}"),
            }
            assert!(started.elapsed() < own::PATIENCE, "{point}: {:?}", started.elapsed());
            assert!(guard.fired(), "{point} was not passed");
            assert_eq!(bench.unfinished(), [""; 0], "{point}: files left in tmp");
        }
    });
}

fn kill(pid: i32) {
    let _ = stasis_sys::process::kill(pid, stasis_sys::libc::SIGKILL);
    own::until(|| has_ended(pid), || format!("{pid} lives on"));
}

/// Whether nothing of a process is left except perhaps a zombie.
fn has_ended(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, after)| after.starts_with(['Z', 'X']))
}

#[test]
fn a_twin_that_is_killed_never_becomes_an_image() {
    own::process("points::a_twin_that_is_killed_never_becomes_an_image", || {
        let bench = Bench::start();
        let mut source = bench.launch("children");
        let own = source.living();
        let init = parent_of(source.tree.pid());
        for point in ["capture.twins", "capture.thawed", "capture.pages"] {
            let own = own.clone();
            let kill_one = move || {
                let twin = children_of(init).into_iter().find(|pid| !own.contains(pid));
                kill(twin.expect("a twin"));
            };
            let guard = arm(point, Fault::Call(Arc::new(kill_one)));
            let error = bench.engine.capture(&source.tree).expect_err(point);
            assert!(guard.fired(), "{point} was not passed");
            eprintln!("{point}: {error}");
            assert_eq!(bench.unfinished(), [""; 0], "{point}: files left in tmp");
            source.check();
            bench.proves_capture(&mut source);
        }
    });
}

fn parent_of(pid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("PPid");
    line.trim().parse().expect("a pid")
}

fn children_of(pid: i32) -> Vec<i32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).expect("children");
    let pids = text.split_whitespace().map(|pid| pid.parse().expect("a pid"));
    // those that have ended are not worth killing
    pids.filter(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()).collect()
}
