//! Processes: create, name, end and inspect them.

mod credentials;
mod limits;
mod scheduling;

pub use credentials::*;
pub use limits::*;
pub use scheduling::*;

use crate::alarm::Alarm;
use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Arguments of clone3(2), as the kernel lays them out.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

/// The child starts in the cgroup that `CloneArgs::cgroup` is a descriptor of.
pub const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

pub const CLONE_ARGS_SIZE: u64 = size_of::<CloneArgs>() as u64;

impl CloneArgs {
    pub fn to_bytes(&self) -> Vec<u8> {
        [
            self.flags,
            self.pidfd,
            self.child_tid,
            self.parent_tid,
            self.exit_signal,
            self.stack,
            self.stack_size,
            self.tls,
            self.set_tid,
            self.set_tid_size,
            self.cgroup,
        ]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect()
    }
}

/// Which side of a fork this is.
pub enum Forked {
    Parent { pid: i32, pidfd: OwnedFd },
    Child,
}

/// Forks with the given clone flags (no CLONE_VM), for single-threaded callers.
pub fn fork(flags: u64, exit_signal: i32) -> io::Result<Forked> {
    fork_with(CloneArgs { flags, exit_signal: exit_signal as u64, ..CloneArgs::default() })
}

/// Forks into a cgroup (v2), whose directory is `cgroup`.
pub fn fork_into(flags: u64, exit_signal: i32, cgroup: BorrowedFd) -> io::Result<Forked> {
    fork_with(CloneArgs {
        flags: flags | CLONE_INTO_CGROUP,
        exit_signal: exit_signal as u64,
        cgroup: cgroup.as_raw_fd() as u64,
        ..CloneArgs::default()
    })
}

/// Forks a child whose pid in the caller's namespace is `pid`, for single-threaded callers.
pub fn fork_as(pid: i32, exit_signal: i32) -> io::Result<Forked> {
    fork_with(CloneArgs {
        exit_signal: exit_signal as u64,
        set_tid: &raw const pid as u64,
        set_tid_size: 1,
        ..CloneArgs::default()
    })
}

fn fork_with(mut args: CloneArgs) -> io::Result<Forked> {
    let mut pidfd: libc::c_int = -1;
    args.flags |= libc::CLONE_PIDFD as u64;
    args.pidfd = &raw mut pidfd as u64;
    // SAFETY: without CLONE_VM the child gets a copy of the address space. The callers of this
    // function (the spawner and its inits) are single-threaded, so no lock of another thread is
    // held in the copy and ordinary code may go on in it.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, CLONE_ARGS_SIZE) })?;
    if pid == 0 {
        return Ok(Forked::Child);
    }
    // SAFETY: the kernel just stored a new descriptor of ours in `pidfd`.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Forked::Parent { pid: pid as i32, pidfd })
}

pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; a returned descriptor is new and ours.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// A copy of descriptor `number` of the process behind `pidfd`.
pub fn pidfd_getfd(pidfd: BorrowedFd, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: as in `pidfd_open`.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

pub fn pidfd_kill(pidfd: BorrowedFd, signal: i32) -> io::Result<()> {
    // SAFETY: the siginfo pointer is null, which the kernel takes as "like kill".
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })
    .map(drop)
}

pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::kill(pid, signal) }.into()).map(drop)
}

/// The result of wait(2) for one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitStatus {
    pub pid: i32,
    pub status: i32,
}

/// Waits for a child; with `WNOHANG`, `None` when nothing has happened.
pub fn wait(pid: i32, flags: i32) -> io::Result<Option<WaitStatus>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        match check(unsafe { libc::waitpid(pid, &raw mut status, flags) }.into()) {
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some(WaitStatus { pid: pid as i32, status })),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for a child until the alarm goes off, which is an error of kind `TimedOut`.
pub fn wait_until(pid: i32, flags: i32, alarm: &Alarm) -> io::Result<WaitStatus> {
    loop {
        match wait_once(pid, flags) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Err(_) if alarm.is_over() => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => {}
            waited => return waited,
        }
    }
}

/// Waits for a child until a signal interrupts the call, which is an error of kind `Interrupted`.
pub(crate) fn wait_once(pid: i32, flags: i32) -> io::Result<WaitStatus> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let pid = check(unsafe { libc::waitpid(pid, &raw mut status, flags) }.into())?;
    Ok(WaitStatus { pid: pid as i32, status })
}

/// Waits until the process behind `pidfd` has ended, at most `timeout_ms` (-1: for ever).
/// True when it has.
pub fn pidfd_wait(pidfd: BorrowedFd, timeout_ms: i32) -> io::Result<bool> {
    crate::fds::poll_readable(pidfd, timeout_ms)
}

pub fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process without running destructors of the state it was forked from.
    unsafe { libc::_exit(status) }
}

pub fn prctl(option: i32, a: u64, b: u64, c: u64, d: u64) -> io::Result<i64> {
    // SAFETY: some options take addresses, to read, to write, or to change mappings with. Every
    // caller passes a constant option whose arguments are flags, a signal or a limit.
    check(unsafe { libc::syscall(libc::SYS_prctl, option, a, b, c, d) })
}

pub fn set_name(name: &str) -> io::Result<()> {
    let name = crate::c_string(name)?;
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    check(unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) })
        .map(drop)
}

pub fn setsid() -> io::Result<()> {
    // SAFETY: no arguments.
    check(unsafe { libc::setsid() }.into()).map(drop)
}

pub fn set_hostname(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length describe `name`.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }.into()).map(drop)
}

/// Head and length of a thread's robust futex list.
pub fn robust_list_of(tid: i32) -> io::Result<(u64, u64)> {
    let (mut head, mut len) = (0u64, 0u64);
    // SAFETY: both out-parameters outlive the call.
    check(unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) })?;
    Ok((head, len))
}

/// The objects that kcmp(2) compares.
#[derive(Debug, Clone, Copy)]
pub enum Kcmp {
    File = 0,
    Vm = 1,
    Files = 2,
    Fs = 3,
    Sighand = 4,
}

/// Order of two kernel objects: 0 equal, 1 less, 2 greater.
pub fn kcmp(a: i32, b: i32, kind: Kcmp, fd_a: u64, fd_b: u64) -> io::Result<i64> {
    // SAFETY: the kinds of `Kcmp` compare by number: the one that reads a struct, KCMP_EPOLL_TFD,
    // is not among them.
    check(unsafe { libc::syscall(libc::SYS_kcmp, a, b, kind as i32, fd_a, fd_b) })
}

/// Whether the epoll set `epoll` of a process watches its descriptor `fd` under that number.
pub fn is_watched(pid: i32, epoll: i32, fd: i32) -> bool {
    const KCMP_EPOLL_TFD: i32 = 7;
    // set, number, and which of several by that number
    let slot = [epoll as u32, fd as u32, 0];
    // SAFETY: the slot outlives the call, which only reads it.
    let order =
        unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_EPOLL_TFD, fd, slot.as_ptr()) };
    order == 0
}

/// Reads a clock in nanoseconds.
pub fn clock_ns(clock: i32) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call; a clock that does not exist leaves it zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Resets every signal to its default and unblocks nothing: for processes made by `fork` that
/// should not inherit the signals their parent's runtime ignores.
pub fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL is always a valid disposition; SIGKILL and SIGSTOP just refuse.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Blocks every signal of this thread.
pub fn block_signals() {
    let all = u64::MAX;
    // SAFETY: the mask is eight bytes, as the size says.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const all,
            std::ptr::null::<u64>(),
            8,
        )
    };
}

/// Unblocks every signal of this thread.
pub fn unblock_signals() {
    let none = 0u64;
    // SAFETY: as in `block_signals`.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null::<u64>(),
            8,
        )
    };
}

/// Replaces the program. Returns only on failure.
pub fn exec(path: &str, argv: &[String], envp: &[String]) -> io::Error {
    let strings = |list: &[String]| -> io::Result<Vec<std::ffi::CString>> {
        list.iter().map(crate::c_string).collect()
    };
    let attempt = || -> io::Result<()> {
        let path = crate::c_string(path)?;
        let (argv, envp) = (strings(argv)?, strings(envp)?);
        let pointers = |list: &[std::ffi::CString]| -> Vec<*const libc::c_char> {
            list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (argv, envp) = (pointers(&argv), pointers(&envp));
        // SAFETY: both arrays end with a null pointer and point at strings that are alive.
        check(unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) }.into()).map(drop)
    };
    attempt().err().unwrap_or_else(|| io::Error::other("execve returned without an error"))
}

/// The calling thread's own number.
pub fn own_tid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Sends this process a signal.
pub fn raise(signal: i32) -> io::Result<()> {
    // SAFETY: a handler would run wherever this thread is. The only one this program installs does
    // nothing (`alarm.rs`). getpid gives this process's number in its own namespace.
    check(unsafe { libc::syscall(libc::SYS_kill, libc::syscall(libc::SYS_getpid), signal) })
        .map(drop)
}

/// This thread's rseq registration as glibc made it: address, length, signature.
pub fn unregister_rseq(address: u64, length: u32, signature: u32) -> io::Result<()> {
    const UNREGISTER: i32 = 1;
    // SAFETY: asks the kernel to forget an area; memory is not touched by us.
    check(unsafe { libc::syscall(libc::SYS_rseq, address, length, UNREGISTER, signature) })
        .map(drop)
}
