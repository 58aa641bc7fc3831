//! The addresses of our own few pages in every restored process.
//!
//!   RESERVED ┬ CODE       the interpreter, one page, stays mapped
//!            ├ LOOP       a template's resident program
//!            ├ LEAVE      per thread: last operations and signal frame, stays mapped
//!            ├ REPORT     what failed, counters; shared with the engine
//!            ├ OPS        operations of the program under way
//!            └ DATA       what they point at
//!
//! LEAVE to DATA are one shared memory file, the *stage*, unique per restored tree. The range is
//! above the addresses V8 picks at random (46 bits) and below the kernel's library mappings, so
//! programs do not use it by chance; one that does is refused at capture, by name.

use stasis_sys::PAGE;

pub const RESERVED: u64 = 0x6f00_0000_0000;
pub const RESERVED_END: u64 = RESERVED + 0x2000_0000;

pub const CODE: u64 = RESERVED;
pub const LOOP: u64 = RESERVED + 0x1_0000;
pub const LOOP_SIZE: u64 = 4 * PAGE;

pub const STAGE: u64 = RESERVED + 0x100_0000;
pub const LEAVE: u64 = STAGE;
pub const LEAVE_MAX: u64 = 0x100_0000;
pub const REPORT: u64 = LEAVE + LEAVE_MAX;
pub const OPS: u64 = REPORT + PAGE;
pub const OPS_MAX: u64 = 0x400_0000;
/// Every clone first waits at the gate; its program is written behind it.
pub const BEHIND_GATE: u64 = OPS + PAGE;
pub const DATA: u64 = OPS + OPS_MAX;
pub const DATA_MAX: u64 = 0x1000_0000;
pub const STAGE_SIZE: u64 = DATA + DATA_MAX - STAGE;

/// Descriptors a template keeps for itself; lower ones came with a message.
pub const TEMPLATE_CONTROL_FD: i32 = 900;
pub const TEMPLATE_PIDNS_FD: i32 = 901;

/// Descriptors a clone finds at its start, in the order they were sent.
pub const CLONE_PIDNS_FD: i32 = 0;
pub const CLONE_STAGE_FD: i32 = 1;
pub const CLONE_CONTROL_FD: i32 = 2;
/// Further descriptors of the first message start here.
pub const CLONE_FIRST_EXTRA_FD: i32 = 3;
/// After the file to fill from: entrances of the machine's cgroup.
pub const CLONE_ENTRANCE_FD: i32 = CLONE_FIRST_EXTRA_FD + 1;
/// Descriptors an order brings, at most.
pub const ORDER_FDS: u64 = 12;

const _: () = assert!(STAGE + STAGE_SIZE <= RESERVED_END);

/// The address of a template's last order.
pub const ORDER: u64 = LOOP + 3 * PAGE;
