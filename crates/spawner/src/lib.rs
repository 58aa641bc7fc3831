//! The spawner: a small process apart from everything else, which forks.
//!
//!   engine ──socket──► spawner ──fork──► blank template   (runs only the interpreter)
//!      │                  └────clone3──► init, pid 1 of a machine's new namespaces
//!      ├──socket──► each init: launch the first program, make kernel objects, time
//!      └──socket──► each template: make a clone and let it run a program
//!
//! It is separate because fork copies the page tables of its caller, and because all code that
//! needs the host's privileges to build sandboxes is then in one small program. Every process made
//! here ends when its socket closes, so killing the engine leaves nothing behind.
//!
//! This library has the parts that both sides share: messages, addresses, and programs for the
//! interpreter.

#![deny(unsafe_code)]

/// The core file limit of a machine's processes, soft and hard. It is less than a page, so that
/// there is no file; and it is the one value under which the kernel starts no piped core handler,
/// which would run as the host's root. Zero does not prevent that.
pub const CORE_LIMIT: u64 = 1;

/// Capabilities of the host's root that the spawner and its templates never use, by number: kernel
/// modules, raw devices, reboot, the clock, consoles, audit, security modules, the kernel's log,
/// BPF, performance counters, and the host's network. Machines have a user namespace of their own,
/// in which these sets begin anew.
pub const UNUSED_CAPABILITIES: [u32; 22] =
    [9, 10, 11, 12, 13, 16, 17, 20, 22, 25, 26, 28, 29, 30, 32, 33, 34, 35, 36, 37, 38, 39];

pub mod layout;
pub mod program;
pub mod protocol;
pub mod resident;
pub mod socket_plan;
