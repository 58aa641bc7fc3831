//! Trees that are killed and do not end.

use crate::bench::Bench;
use crate::own;
use stasis_sys::{libc, process, ptrace};
use std::time::{Duration, Instant};

/// A tracer that does not wait for its tracee keeps it, dead, in the machine's namespace, whose
/// init cannot end before it.
#[test]
fn a_tree_that_does_not_end_is_given_up_and_goes_when_it_can() {
    own::process("endings::a_tree_that_does_not_end_is_given_up_and_goes_when_it_can", || {
        let bench = Bench::start();
        let program = bench.try_launch(&["hostile", "nothing"]).expect("launch");
        let root = program.tree.pid();
        ptrace::seize(root, 0).expect("seized");
        program.tree.kill().expect("it is given up");
        assert_eq!(stasis_engine::remains(), 1);
        // another is not held up
        let other = bench.try_launch(&["hostile", "nothing"]).expect("launch");
        other.tree.kill().expect("ended");
        assert_eq!(stasis_engine::remains(), 1);
        process::wait(root, libc::__WALL).expect("let go of");
        let end = Instant::now() + own::PATIENCE;
        while stasis_engine::remains() > 0 {
            assert!(Instant::now() < end, "what remained is gone, and nobody noticed");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

/// The kernel reports the end of a first thread only after that of all others. An engine that waits
/// for the first one, while it traces the others, would wait until its own deadline of 5 s.
#[test]
fn a_capture_ends_with_its_tree() {
    const ROUNDS: u32 = 60;
    /// Far more than a capture takes, and less than the deadline.
    const PROMPT: Duration = Duration::from_secs(4);
    own::process("endings::a_capture_ends_with_its_tree", || {
        let bench = Bench::start();
        for round in 0..ROUNDS {
            let program = bench.launch("threads_futex");
            let took = std::thread::scope(|scope| {
                let capture = scope.spawn(|| {
                    let start = Instant::now();
                    let _ = bench.engine.capture(&program.tree);
                    start.elapsed()
                });
                std::thread::sleep(Duration::from_micros(50) * round);
                process::kill(program.tree.pid(), libc::SIGKILL).expect("killed");
                capture.join().expect("no panic")
            });
            assert!(took < PROMPT, "round {round}: the capture took {took:?}");
            program.tree.kill().expect("ended");
        }
    });
}
