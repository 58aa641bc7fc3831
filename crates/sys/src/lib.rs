//! The only door to the kernel.
//!
//! Every system call that Rust's standard library does not offer is typed here, once; no other
//! crate of the project contains `unsafe` code. Processor-specific code is in `arch`.
//!
//! Calls return `std::io::Result`; the caller adds the failed action and its object.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("Stasis runs on x86_64 Linux; another architecture needs its own `arch` module");

pub mod alarm;
pub mod arch;
pub mod below;
mod btf;
mod context;
pub mod fds;
pub mod files;
pub mod handles;
pub mod ipc;
pub mod jail;
pub mod landlock;
pub mod memory;
pub mod mount;
pub mod namespace;
pub mod net;
pub mod pagemap;
pub mod probe;
pub mod process;
pub mod ptrace;
pub mod seccomp;
pub mod socket;
pub mod trees;
pub mod uffd;
pub mod vmas;

pub use libc;

use std::io;

/// Size of a page on every architecture this crate supports.
pub const PAGE: u64 = 4096;

/// Turns a raw return value into a result, reading errno for -1.
pub(crate) fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A path or name in the kernel's form.
pub(crate) fn c_string(text: impl AsRef<std::ffi::OsStr>) -> io::Result<std::ffi::CString> {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::CString::new(text.as_ref().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the name contains a NUL byte"))
}
