//! Descriptors: memory files, polling, pipes, ranges.

use crate::{c_string, check};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub fn memfd(name: &str, flags: u32) -> io::Result<OwnedFd> {
    let name = c_string(name)?;
    // SAFETY: the name outlives the call; a returned descriptor is new and ours.
    unsafe {
        let fd = check(libc::memfd_create(name.as_ptr(), flags).into())?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// A pipe: read end, write end.
pub fn pipe(flags: i32) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: the array has room for both ends; both are new and ours.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), flags).into())?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Copies the contents of `from` (a pipe) to `to` (a pipe) without consuming them. Returns the
/// bytes copied.
pub fn tee(from: BorrowedFd, to: BorrowedFd, len: usize) -> io::Result<usize> {
    const FLAGS: u32 = libc::SPLICE_F_NONBLOCK;
    // SAFETY: both borrows keep their pipe open, and `len` counts bytes that the kernel shares
    // between the pipes: no memory of this process is read or written.
    let copied = check(unsafe { libc::tee(from.as_raw_fd(), to.as_raw_fd(), len, FLAGS) } as i64)?;
    Ok(copied as usize)
}

/// Commands of fcntl(2) that take a number.
const NUMERIC: [i32; 9] = [
    libc::F_DUPFD_CLOEXEC,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_SETPIPE_SZ,
    libc::F_GETPIPE_SZ,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
    F_GETSIG,
];

/// Panics if the command is not one that takes a number.
pub fn fcntl(fd: BorrowedFd, command: i32, argument: u64) -> io::Result<i32> {
    assert!(NUMERIC.contains(&command), "fcntl {command} may take a pointer");
    // SAFETY: a command that took the number for a pointer would write anywhere; the list above has
    // none.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) }.into()).map(|v| v as i32)
}

/// An ioctl whose argument points to `buffer`. Requests from before sizes were part of the number
/// fill a fixed struct (`winsize`, `rtentry`, an integer), which callers pass whole. Panics if the
/// buffer is smaller than the size in the request.
pub fn ioctl_buffer(fd: BorrowedFd, request: u64, buffer: &mut [u8]) -> io::Result<i32> {
    let size = (request >> 16 & 0x3fff) as usize;
    assert!(buffer.len() >= size, "ioctl {request:#x} needs {size} bytes");
    // SAFETY: the kernel may write as many bytes as the request encodes; the buffer has them.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, buffer.as_mut_ptr()) }.into())
        .map(|v| v as i32)
}

/// An ioctl whose argument is a number. Panics if the request encodes a size, as those with a
/// pointer do.
pub(crate) fn ioctl_value(fd: BorrowedFd, request: u64, value: u64) -> io::Result<i32> {
    assert_eq!(request >> 16 & 0x3fff, 0, "ioctl {request:#x} takes a pointer");
    // SAFETY: a request that took the number for a pointer could write anywhere. This function is
    // called with SIOCUNIXFILE only, which ignores it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, value) }.into()).map(|v| v as i32)
}

/// True when the descriptor is readable or hung up within the time.
pub fn poll_readable(fd: BorrowedFd, timeout_ms: i32) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    let ready = check(unsafe { libc::poll(&raw mut entry, 1, timeout_ms) }.into());
    match ready {
        Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(false),
        other => Ok(other? > 0),
    }
}

/// The current readiness of a descriptor: POLL* bits.
pub fn ready_for(fd: BorrowedFd, events: i16) -> io::Result<i16> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    check(unsafe { libc::poll(&raw mut entry, 1, 0) }.into())?;
    Ok(entry.revents)
}

/// The readiness of several descriptors, for the POLL* bits given with each.
pub fn poll_for(wanted: &[(BorrowedFd, i16)], timeout_ms: i32) -> io::Result<Vec<i16>> {
    let entry = |(fd, events): &(BorrowedFd, i16)| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: *events,
        revents: 0,
    };
    let mut entries: Vec<libc::pollfd> = wanted.iter().map(entry).collect();
    // SAFETY: the array and its length agree and outlive the call.
    let ready =
        check(unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as u64, timeout_ms) }.into());
    match ready {
        Err(error) if error.raw_os_error() != Some(libc::EINTR) => Err(error),
        Err(_) => Ok(vec![0; wanted.len()]),
        Ok(_) => Ok(entries.iter().map(|entry| entry.revents).collect()),
    }
}

/// Which of several descriptors are readable or hung up.
pub fn poll_many(fds: &[BorrowedFd], timeout_ms: i32) -> io::Result<Vec<bool>> {
    let mut entries: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    // SAFETY: the array and its length agree and outlive the call.
    let ready =
        check(unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as u64, timeout_ms) }.into());
    match ready {
        Err(error) if error.raw_os_error() != Some(libc::EINTR) => Err(error),
        _ => Ok(entries.iter().map(|entry| entry.revents != 0).collect()),
    }
}

/// Makes `fd` also available as `number`, replacing an existing one; survives exec.
pub fn place(fd: BorrowedFd, number: RawFd) -> io::Result<()> {
    if fd.as_raw_fd() == number {
        return fcntl(fd, libc::F_SETFD, 0).map(drop);
    }
    // SAFETY: dup2 closes whatever `number` was, so an owner of it in this process would be left
    // with another file. The callers are about to exec and hold no owner of that number.
    check(unsafe { libc::dup2(fd.as_raw_fd(), number) }.into()).map(drop)
}

/// A copy of `fd` numbered at least `lowest`, closed on exec.
pub fn duplicate_above(fd: BorrowedFd, lowest: RawFd) -> io::Result<OwnedFd> {
    let copy = fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest as u64)?;
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Closes every descriptor from `first` to `last`.
pub fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the callers are freshly forked processes that give up what they inherited; they
    // hold no owner of a descriptor in the range.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Wraps a descriptor number this process was handed by its parent.
pub fn inherited(number: RawFd) -> OwnedFd {
    // SAFETY: by contract of the callers (a started helper process) the number is open, and no
    // other value in this process owns it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Device and inode behind a descriptor, and its stat otherwise.
pub fn set_mode(fd: BorrowedFd, mode: u32) -> io::Result<()> {
    // SAFETY: the borrow keeps the file open; the call changes its mode and no memory of ours.
    check(unsafe { libc::fchmod(fd.as_raw_fd(), mode) }.into()).map(drop)
}

/// The file at a path.
pub fn stat_of(path: &str) -> io::Result<libc::stat64> {
    let path = c_string(path)?;
    // SAFETY: the path outlives the call; the struct is plain integers, which stat fills.
    unsafe {
        let mut stat = std::mem::zeroed();
        check(libc::stat64(path.as_ptr(), &raw mut stat).into())?;
        Ok(stat)
    }
}

/// The kind of a directory entry; links are not followed.
pub fn stat_at(dir: BorrowedFd, name: &OsStr) -> io::Result<libc::stat64> {
    let name = c_string(name)?;
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name outlives the call; the struct is plain integers, which fstatat fills.
    unsafe {
        let mut stat = std::mem::zeroed();
        check(libc::fstatat64(dir.as_raw_fd(), name.as_ptr(), &raw mut stat, flags).into())?;
        Ok(stat)
    }
}

pub fn stat(fd: BorrowedFd) -> io::Result<libc::stat64> {
    // SAFETY: the struct is plain integers; fstat fills it.
    unsafe {
        let mut stat = std::mem::zeroed();
        check(libc::fstat64(fd.as_raw_fd(), &raw mut stat).into())?;
        Ok(stat)
    }
}

pub fn eventfd(initial: u32, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads no memory of ours. `check` lets only a descriptor through, which is
    // new, so nothing else in this process owns it.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::eventfd(initial, flags).into())? as i32)) }
}

/// Takes up to `most` pending events of an epoll set: the events of each, and its data.
pub fn epoll_take(set: BorrowedFd, most: usize) -> io::Result<Vec<(u32, u64)>> {
    epoll_wait(set, most, 0)
}

/// The same, after waiting for the first (-1: without a limit).
pub fn epoll_wait(set: BorrowedFd, most: usize, timeout_ms: i32) -> io::Result<Vec<(u32, u64)>> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; most.max(1)];
    let len = events.len() as i32;
    // SAFETY: pointer and length describe the vector.
    let count = check(
        unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), len, timeout_ms) }.into(),
    )?;
    Ok(events[..count as usize].iter().map(|event| (event.events, event.u64)).collect())
}

/// Adds a descriptor to an epoll set for reading; `data` comes with its events.
pub fn epoll_watch(set: BorrowedFd, fd: BorrowedFd, data: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: data };
    let (set, fd) = (set.as_raw_fd(), fd.as_raw_fd());
    // SAFETY: the event outlives the call.
    check(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event) }.into()).map(drop)
}

pub fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: as for `eventfd`.
    unsafe {
        Ok(OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC).into())? as i32))
    }
}

pub fn timerfd(clock: i32, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: as for `eventfd`.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::timerfd_create(clock, flags).into())? as i32)) }
}

/// Makes an expired, unread timer count its missed expirations and continue.
pub fn timerfd_catch_up(fd: BorrowedFd) -> io::Result<()> {
    // SAFETY: plain integers, for which all zeros is a value.
    let mut now: libc::itimerspec = unsafe { std::mem::zeroed() };
    // SAFETY: the value outlives the call.
    check(unsafe { libc::timerfd_gettime(fd.as_raw_fd(), &raw mut now) }.into()).map(drop)
}

pub fn timerfd_set(fd: BorrowedFd, flags: i32, value_ns: u64, interval_ns: u64) -> io::Result<()> {
    let spec = |ns: u64| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    let value = libc::itimerspec { it_interval: spec(interval_ns), it_value: spec(value_ns) };
    // SAFETY: the value outlives the call; no old value is asked for.
    check(
        unsafe {
            libc::timerfd_settime(fd.as_raw_fd(), flags, &raw const value, std::ptr::null_mut())
        }
        .into(),
    )
    .map(drop)
}

pub fn signalfd(mask: u64, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the mask is eight bytes, as the size says; the descriptor is new and ours.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_signalfd4, -1, &raw const mask, 8, flags))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

pub fn inotify(flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: as for `eventfd`.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::inotify_init1(flags).into())? as i32)) }
}

pub fn inotify_watch(fd: BorrowedFd, path: &str, mask: u32) -> io::Result<i32> {
    let path = crate::c_string(path)?;
    // SAFETY: the path outlives the call.
    check(unsafe { libc::inotify_add_watch(fd.as_raw_fd(), path.as_ptr(), mask) }.into())
        .map(|wd| wd as i32)
}

pub fn inotify_unwatch(fd: BorrowedFd, wd: i32) -> io::Result<()> {
    // SAFETY: the borrow keeps the inotify instance open; an unknown `wd` is an error, not memory.
    check(unsafe { libc::inotify_rm_watch(fd.as_raw_fd(), wd) }.into()).map(drop)
}

pub fn seek(fd: impl AsFd, offset: i64, whence: i32) -> io::Result<u64> {
    // SAFETY: the borrow keeps the file open; the call moves the file's offset, which no reference
    // of ours depends on, and the kernel refuses an offset or `whence` that makes no sense.
    check(unsafe { libc::lseek64(fd.as_fd().as_raw_fd(), offset, whence) }).map(|v| v as u64)
}

/// A lock of the open file itself (F_OFD_SETLK), never waiting for it. `len` 0: to the end.
pub fn lock_open_file(fd: BorrowedFd, kind: i32, start: u64, len: u64) -> io::Result<()> {
    let lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start as i64,
        l_len: len as i64,
        l_pid: 0,
    };
    // SAFETY: the lock outlives the call, which only reads it.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }.into())
        .map(drop)
}

/// Magic number of the file system a descriptor's file lies on.
pub fn file_system(fd: BorrowedFd) -> io::Result<i64> {
    // SAFETY: the struct is plain integers; fstatfs fills it.
    unsafe {
        let mut stat: libc::statfs64 = std::mem::zeroed();
        check(libc::fstatfs64(fd.as_raw_fd(), &raw mut stat).into())?;
        Ok(stat.f_type)
    }
}

/// Whether the other side of a descriptor is closed.
pub fn hung_up(fd: BorrowedFd) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    check(unsafe { libc::poll(&raw mut entry, 1, 0) }.into())?;
    Ok(entry.revents & libc::POLLHUP != 0)
}

/// Commands of fcntl(2) for signals about a descriptor, and kinds of their receiver.
pub const F_SETSIG: i32 = 10;
pub const F_GETSIG: i32 = 11;
pub const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;
pub const F_OWNER_TID: i32 = 0;
pub const F_OWNER_PID: i32 = 1;
pub const F_OWNER_PGRP: i32 = 2;

/// The receiver of signals about a descriptor: the kind of number, and the number (0: none).
pub fn owner(fd: BorrowedFd) -> io::Result<(i32, i32)> {
    // struct f_owner_ex
    let mut owner = [0i32; 2];
    // SAFETY: the array has the size and layout of the struct the call fills.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, owner.as_mut_ptr()) }.into())?;
    Ok((owner[0], owner[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "may take a pointer")]
    fn a_command_with_a_pointer_is_refused() {
        let (read, _write) = std::io::pipe().expect("a pipe");
        let _ = fcntl(read.as_fd(), libc::F_GETLK, 0);
    }

    #[test]
    #[should_panic(expected = "needs 44 bytes")]
    fn a_request_that_fills_more_than_the_buffer_is_refused() {
        const TCGETS2: u64 = 0x802c_542a;
        let (read, _write) = std::io::pipe().expect("a pipe");
        let _ = ioctl_buffer(read.as_fd(), TCGETS2, &mut [0; 43]);
    }
}
