//! From an image to the program that makes it live again.
//!
//! Pure: reads a manifest and the engine's preparations (descriptors, pages to fill), writes
//! operations. It touches no process; `restore` does.
//!
//!   gate        until there is a program: the rest is written behind it
//!   prologue    own descriptors aside, leftovers of the template away
//!   mm          what the kernel remembers of the address space
//!   walls       into the machine's namespaces
//!   memory      mappings, pages, protections
//!   objects     descriptors taken in, far above the program's own
//!   children    forked, each running this list from `memory` on for itself
//!   process     descriptors placed, directory, limits, signals, timers
//!   threads     made, with their own numbers
//!   leave       credentials, the last of our pages away, registers

mod address_space;
mod builder;
mod confine;
mod credentials;
mod epoll;
mod gate;
mod holdings;
mod jobs;
mod memory;
mod parts;
mod process;
mod terminals;
mod thread;
mod timers;
mod uffd;

pub use builder::{
    Built, ClonePurpose, FILLED, GO, INSTALLED, OWN_OBJECTS, Prepared, build, root_of,
};
pub use confine::CloneConfinement;
pub use gate::{WRITTEN, gate};
pub use jobs::StoppedThread;
pub use memory::{Layout, MemoryPlan, plan as plan_memory};
pub use parts::{layout_of, parked};
pub use process::{HELPER_PID, INNER_HELPER_PID, is_leaderless};
pub use thread::install_arguments;
pub use uffd::{HAND_LATER, HAND_MEMORY, HAND_PAGES, Track};

use stasis_image::model::MmFields;

/// `struct prctl_mm_map` for PR_SET_MM_MAP, with the auxiliary vector at `auxv_at`.
pub fn mm_map(mm: &MmFields, auxv_at: u64, exe_fd: u32) -> Vec<u8> {
    let words = [
        mm.start_code,
        mm.end_code,
        mm.start_data,
        mm.end_data,
        mm.start_brk,
        mm.brk,
        mm.start_stack,
        mm.arg_start,
        mm.arg_end,
        mm.env_start,
        mm.env_end,
        auxv_at,
        (mm.auxv.len() as u64 * 8) | (u64::from(exe_fd) << 32),
    ];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
