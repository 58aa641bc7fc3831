//! Programs that do what they can against being captured (`tests/programs/hostile/hostile.c`).
//!
//! A capture of any of them succeeds and comes back right, or is refused with a reason that names
//! the cause; the program runs on either way, and nothing hangs.

use crate::bench::{Bench, Program};
use crate::own;
use stasis_engine::{Error, Image};
use std::time::{Duration, Instant};

/// No single capture or restore may take longer.
const LIMIT: Duration = Duration::from_secs(120);

enum Then {
    /// It comes back right.
    Carried,
    /// It is refused, for a reason with these words.
    Refused(&'static str),
    /// Whichever comes, as long as it is clean: the act is a race.
    Either,
}
use Then::{Carried, Either, Refused};

/// When the act is done.
enum When {
    AtStart,
    /// By a process that has been restored.
    AfterRestore,
}
use When::{AfterRestore, AtStart};

macro_rules! acts {
    ($($name:ident: $when:ident, $then:expr;)*) => {$(
        #[test]
        fn $name() {
            own::process(concat!("hostile::", stringify!($name)), || {
                run(stringify!($name), $when, $then)
            });
        }
    )*};
}

acts! {
    vdso_gone: AtStart, Carried;
    vdso_overwritten: AtStart, Refused("vdso");
    stack_garbage: AtStart, Carried;
    stack_null: AtStart, Carried;
    stack_read_only: AtStart, Carried;
    leader_stack: AtStart, Carried;
    leader_stack_read_only: AtStart, Carried;
    leader_gone: AtStart, Refused("first thread has ended");
    reserved_code: AtStart, Refused("where the engine keeps its own");
    reserved_middle: AtStart, Refused("where the engine keeps its own");
    reserved_across: AtStart, Refused("where the engine keeps its own");
    reserved_beyond: AtStart, Refused("where the engine keeps its own");
    reserved_around: AtStart, Refused("where the engine keeps its own");
    code_gone: AfterRestore, Carried;
    code_no_exec: AfterRestore, Carried;
    code_lies: AfterRestore, Refused("where the engine keeps its own");
    many_mappings: AtStart, Carried;
    many_writers: AtStart, Carried;
    no_stdio: AtStart, Carried;
    thread_with_own_files: AtStart, Refused("descriptors");
    seccomp: AtStart, Carried;
    fork_storm: AtStart, Either;
    thread_storm: AtStart, Carried;
    twin_killer: AtStart, Either;
    vfork_waits: AtStart, Refused("vfork");
    shared_memory_process: AtStart, Refused("shares its memory");
    tracer: AtStart, Refused("traced");
    stopped_child: AtStart, Carried;
    sigtrap_handler: AtStart, Carried;
    sigtrap_pending: AtStart, Refused("SIGTRAP");
    fault_handler: AtStart, Carried;
    bad_name: AtStart, Carried;
    map_newline: AtStart, Refused("newline");
    map_not_deleted: AtStart, Carried;
    map_bytes: AtStart, Refused("UTF-8");
    open_bytes: AtStart, Refused("is not where it was opened");
    evil_links: AtStart, Carried;
    own_mounts: AtStart, Refused("namespace");
    own_network: AtStart, Refused("namespace");
    own_users: AtStart, Refused("namespace");
    thread_with_own_network: AtStart, Refused("namespace");
    own_root: AtStart, Refused("root directory");
    no_forks: AtStart, Either;
}

fn run(act: &str, when: When, then: Then) {
    let bench = Bench::start();
    let mut program = match when {
        AtStart => bench.try_launch(&["hostile", act]).expect("launch"),
        AfterRestore => {
            let source = bench.try_launch(&["hostile", "nothing"]).expect("launch");
            let image = capture(&bench, &source).expect("capture");
            let mut copy = restore(&bench, &image);
            assert_eq!(copy.ask(act), "done");
            copy
        }
    };
    program.check();
    match then {
        Carried => {
            let image = capture(&bench, &program).expect("capture");
            comes_back(&bench, &mut program, &image);
        }
        Refused(words) => (0..2).for_each(|_| refused(&bench, &mut program, words)),
        Either => (0..10).for_each(|_| either(&bench, &mut program)),
    }
    assert_eq!(bench.unfinished(), [""; 0], "files left in tmp");
    program.check();
}

/// Once from the source, and once more from what was restored.
fn comes_back(bench: &Bench, source: &mut Program, image: &Image) {
    source.check();
    let mut copy = restore(bench, image);
    copy.check();
    let again = capture(bench, &copy).expect("capture what was restored");
    copy.check();
    restore(bench, &again).check();
}

fn refused(bench: &Bench, program: &mut Program, words: &str) {
    match capture(bench, program) {
        Ok(_) => panic!("captured, but should be refused ({words})"),
        Err(error) => {
            assert_eq!(error.code(), "capture.refused", "{error}");
            assert!(error.to_string().contains(words), "refused for another reason: {error}");
        }
    }
    program.check();
}

fn either(bench: &Bench, program: &mut Program) {
    match capture(bench, program) {
        Ok(image) => restore(bench, &image).check(),
        Err(error) => eprintln!("refused: {error}"),
    }
    program.check();
}

fn capture(bench: &Bench, program: &Program) -> Result<Image, Error> {
    let start = Instant::now();
    let captured = bench.engine.capture(&program.tree);
    assert!(start.elapsed() < LIMIT, "a capture took {:?}", start.elapsed());
    // as another engine would read it
    Ok(bench.engine.store().read_image(captured?.image.id).expect("read the image"))
}

fn restore(bench: &Bench, image: &Image) -> Program {
    let start = Instant::now();
    let program = bench.restore(image).expect("restore");
    assert!(start.elapsed() < LIMIT, "a restore took {:?}", start.elapsed());
    program
}
