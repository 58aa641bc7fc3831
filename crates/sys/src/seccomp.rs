//! seccomp(2): filters over the calls a process makes.
//!
//! A filter is a list of classic BPF instructions, each as the kernel lays it out: code, two jump
//! distances and a value in eight bytes. Which calls to allow is decided elsewhere.

use crate::check;
use std::io;

/// The kernel takes no longer filter.
pub const MAX_INSTRUCTIONS: usize = 4096;

pub const SET_MODE_FILTER: u64 = 1;
/// All threads of the process get the filter, or none.
pub const FLAG_TSYNC: u64 = 1;

/// Installs a filter on this thread. `no_new_privs` must be set.
pub fn install(program: &[u64]) -> io::Result<()> {
    let header = header(program.len(), program.as_ptr() as u64);
    // SAFETY: the header describes the list, and both outlive the call.
    check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, header.as_ptr()) })
        .map(drop)
}

/// `struct sock_fprog` for a list of instructions at an address.
pub fn header(length: usize, address: u64) -> [u64; 2] {
    [length as u64, address]
}
