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
