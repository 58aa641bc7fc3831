//! The seccomp wall: a list of calls as data, and the filter it becomes.
//!
//!   list ──compile──► classic BPF ──► installed before a program starts, and by a restore
//!
//! The filter is the same for every machine of a build. Machines remember theirs in their images;
//! one that comes back with an older list gets today's as well.

mod arguments;
mod compile;
mod list;
mod numbers;

pub use arguments::{ArgumentRow, ArgumentWord, Rule};
pub use compile::compile;
pub use list::{ALLOWED, AllowedSyscall, REFUSED, RefusedSyscalls, SyscallGroup};

use std::sync::OnceLock;

/// The filter of every machine.
pub fn filter() -> &'static [u64] {
    static FILTER: OnceLock<Vec<u64>> = OnceLock::new();
    FILTER.get_or_init(|| compile(ALLOWED, REFUSED))
}
