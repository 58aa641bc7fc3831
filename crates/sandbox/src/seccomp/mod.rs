//! The seccomp filter: a list of calls as data, and its compiled form.
//!
//!   list ──compile──► classic BPF ──► installed before a program starts, and by a restore
//!
//! The filter is the same for every machine of a build. Images contain theirs; one with an older
//! list gets the current one as well.

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
