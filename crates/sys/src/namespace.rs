//! Namespaces and roots.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: leaves a namespace or a table shared with other threads, which would then disagree on
    // what a descriptor or path is. The callers are single-threaded.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

/// Joins the namespaces in `flags` of `fd` (a pidfd or a namespace file).
pub fn setns(fd: BorrowedFd, flags: i32) -> io::Result<()> {
    // SAFETY: the borrow keeps the namespace open. Only the calling thread moves, and namespaces
    // decide what later calls find, never what its memory holds.
    check(unsafe { libc::setns(fd.as_raw_fd(), flags) }.into()).map(drop)
}

/// Makes `.` the root and puts the old root on top of it, ready to be unmounted.
pub fn pivot_to_cwd() -> io::Result<()> {
    // SAFETY: both names are static NUL-terminated strings.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) }).map(drop)
}

/// Brings the loopback interface of the current network namespace up.
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: an interface request is plain bytes; the name fits and is NUL-terminated.
    unsafe {
        let socket =
            check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())?;
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        let result =
            check(libc::ioctl(socket as i32, libc::SIOCSIFFLAGS, &raw const request).into());
        libc::close(socket as i32);
        result.map(drop)
    }
}
