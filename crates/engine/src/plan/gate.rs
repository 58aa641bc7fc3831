//! Where every clone waits until it is told what to become. It may be forked before anybody knows.

use stasis_spawner::layout;
use stasis_spawner::program::Program;

/// Word of the report page: the clone's program is written behind the gate.
pub const WRITTEN: u64 = layout::REPORT + 96;

/// Bytes for `layout::OPS`.
pub fn gate() -> Vec<u8> {
    let mut gate = Program::new(layout::OPS, 0);
    gate.await_word(WRITTEN, 1);
    gate.jump_to(layout::BEHIND_GATE);
    gate.ops_bytes()
}
