//! The gate where every clone waits for its program. A clone may be forked before the program is
//! known, and exits if the engine has exited.

use stasis_spawner::layout;
use stasis_spawner::program::Program;
use stasis_sys::libc;

/// Word of the report page: the clone's program is written behind the gate.
pub const WRITTEN: u64 = layout::REPORT + 96;
const BYTE: u64 = layout::REPORT + 100;

/// Bytes for `layout::OPS`. A message opens the gate; the end of the socket ends the clone.
pub fn gate() -> Vec<u8> {
    let mut gate = Program::new(layout::OPS, 0);
    let control = layout::CLONE_CONTROL_FD as u64;
    let args = [control, BYTE, 1, 0, 0, 0];
    let nobody = gate.if_zero("wait at the gate", libc::SYS_recvfrom, &args);
    gate.await_word(WRITTEN, 1);
    gate.jump_to(layout::BEHIND_GATE);
    gate.land(nobody);
    gate.any("no process is left", libc::SYS_exit_group, &[0]);
    gate.ops_bytes()
}
