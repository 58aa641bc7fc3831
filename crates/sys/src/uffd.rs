//! userfaultfd(2): filling memory on demand, and tracking writes.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub const API: u64 = 0xaa;
pub const IOCTL_API: u64 = 0xc018_aa3f;
pub const IOCTL_REGISTER: u64 = 0xc020_aa00;
pub const IOCTL_UNREGISTER: u64 = 0x8010_aa01;
pub const IOCTL_WAKE: u64 = 0x8010_aa02;
pub const IOCTL_COPY: u64 = 0xc028_aa03;
pub const IOCTL_ZEROPAGE: u64 = 0xc020_aa04;

pub const FEATURE_EVENT_FORK: u64 = 1 << 1;
pub const FEATURE_EVENT_REMAP: u64 = 1 << 2;
pub const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
pub const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
pub const FEATURE_WP_ASYNC: u64 = 1 << 15;

pub const MODE_MISSING: u64 = 1;
pub const MODE_WP: u64 = 2;

/// Events for a monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UffdEvent {
    Fault {
        address: u64,
    },
    /// A child was made; its own userfaultfd comes as this new descriptor of ours.
    Fork {
        fd: i32,
    },
    Remap {
        from: u64,
        to: u64,
        len: u64,
    },
    Remove {
        start: u64,
        end: u64,
    },
    Unmap {
        start: u64,
        end: u64,
    },
    Unknown(u8),
}

/// Reads the next message; `None` when there is none now (the descriptor is non-blocking).
pub fn read_event(uffd: BorrowedFd) -> io::Result<Option<UffdEvent>> {
    let mut message = [0u8; 32];
    // SAFETY: the buffer is one message long, as the size says.
    let got =
        check(unsafe { libc::read(uffd.as_raw_fd(), message.as_mut_ptr().cast(), message.len()) }
            as i64);
    match got {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(None),
        Err(error) => return Err(error),
        Ok(0) => return Ok(None),
        Ok(_) => {}
    }
    let word = |at: usize| u64::from_ne_bytes(message[at..at + 8].try_into().expect("8 bytes"));
    Ok(Some(match message[0] {
        0x12 => UffdEvent::Fault { address: word(16) },
        0x13 => UffdEvent::Fork { fd: word(8) as u32 as i32 },
        0x14 => UffdEvent::Remap { from: word(8), to: word(16), len: word(24) },
        0x15 => UffdEvent::Remove { start: word(8), end: word(16) },
        0x16 => UffdEvent::Unmap { start: word(8), end: word(16) },
        other => UffdEvent::Unknown(other),
    }))
}

/// Installs `bytes` at `address`. Returns the bytes installed; fewer if part was there.
pub fn copy(uffd: BorrowedFd, address: u64, bytes: &[u8]) -> io::Result<u64> {
    copy_as(uffd, address, bytes, 0)
}

/// The same, protected: later writes are recorded.
pub fn copy_protected(uffd: BorrowedFd, address: u64, bytes: &[u8]) -> io::Result<u64> {
    const UFFDIO_COPY_MODE_WP: u64 = 2;
    copy_as(uffd, address, bytes, UFFDIO_COPY_MODE_WP)
}

fn copy_as(uffd: BorrowedFd, address: u64, bytes: &[u8], mode: u64) -> io::Result<u64> {
    let mut argument = [address, bytes.as_ptr() as u64, bytes.len() as u64, mode, 0];
    // SAFETY: the argument has the layout of struct uffdio_copy and points at `bytes`.
    let result =
        check(unsafe { libc::ioctl(uffd.as_raw_fd(), IOCTL_COPY, argument.as_mut_ptr()) }.into());
    let done = argument[4] as i64;
    match result {
        Ok(_) => Ok(bytes.len() as u64),
        Err(_) if done > 0 => Ok(done as u64),
        Err(error) => Err(error),
    }
}

/// Installs zero pages.
pub fn zero(uffd: BorrowedFd, address: u64, len: u64) -> io::Result<()> {
    let mut argument = [address, len, 0, 0];
    // SAFETY: the argument has the layout of struct uffdio_zeropage.
    check(unsafe { libc::ioctl(uffd.as_raw_fd(), IOCTL_ZEROPAGE, argument.as_mut_ptr()) }.into())
        .map(drop)
}

/// Registers memory so that writes to it can be noted.
pub fn register_writes(uffd: BorrowedFd, start: u64, len: u64) -> io::Result<()> {
    let mut argument = [start, len, MODE_WP, 0];
    // SAFETY: the argument has the layout of struct uffdio_register.
    check(unsafe { libc::ioctl(uffd.as_raw_fd(), IOCTL_REGISTER, argument.as_mut_ptr()) }.into())
        .map(drop)
}

fn range_call(uffd: BorrowedFd, request: u64, start: u64, len: u64) -> io::Result<()> {
    let mut argument = [start, len];
    // SAFETY: the argument has the layout of struct uffdio_range.
    check(unsafe { libc::ioctl(uffd.as_raw_fd(), request, argument.as_mut_ptr()) }.into()).map(drop)
}

/// Lets go of memory: nothing of it is noted any more.
pub fn unregister(uffd: BorrowedFd, start: u64, len: u64) -> io::Result<()> {
    range_call(uffd, IOCTL_UNREGISTER, start, len)
}

pub fn wake(uffd: BorrowedFd, start: u64, len: u64) -> io::Result<()> {
    range_call(uffd, IOCTL_WAKE, start, len)
}
