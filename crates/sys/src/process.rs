//! Processes: making them, naming them, ending them, asking about them.

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

/// What wait(2) said of one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    pub pid: i32,
    pub status: i32,
}

/// Waits for a child; with `WNOHANG`, `None` when nothing has happened.
pub fn wait(pid: i32, flags: i32) -> io::Result<Option<Waited>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        match check(unsafe { libc::waitpid(pid, &raw mut status, flags) }.into()) {
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some(Waited { pid: pid as i32, status })),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for a child until the alarm goes off, which is an error of kind `TimedOut`.
pub fn wait_until(pid: i32, flags: i32, alarm: &Alarm) -> io::Result<Waited> {
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        match check(unsafe { libc::waitpid(pid, &raw mut status, flags) }.into()) {
            Ok(pid) => return Ok(Waited { pid: pid as i32, status }),
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => return Err(error),
            Err(_) if alarm.is_over() => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => {}
        }
    }
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
    // SAFETY: the callers in this project pass options whose arguments are numbers only.
    check(unsafe { libc::syscall(libc::SYS_prctl, option, a, b, c, d) })
}

pub fn set_name(name: &str) -> io::Result<()> {
    let name = crate::c_string(name)?;
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    check(unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) })
        .map(drop)
}

pub fn set_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: numbers only. The raw calls change this thread alone, which is all there is in
    // the single-threaded callers.
    unsafe {
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

/// Ids under which files are accessed and made, while everything else stays.
pub fn set_fs_ids(uid: u32, gid: u32) {
    // SAFETY: numbers only; the calls return the old id and no error.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
    }
}

pub fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: count and pointer describe the list.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

/// No program started later gains a capability.
pub fn drop_bounding_set() -> io::Result<()> {
    for capability in 0..64 {
        // numbers the kernel does not know end the list
        if prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0).is_err() {
            break;
        }
        prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0)?;
    }
    Ok(())
}

/// Gives every capability up.
pub fn drop_capabilities() -> io::Result<()> {
    const VERSION: u32 = 0x2008_0522;
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64, 0, 0, 0)?;
    let header = [VERSION, 0];
    let none = [0u32; 6];
    // SAFETY: both arrays have the layout of the header and of two sets, and outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }).map(drop)
}

/// Gives some capabilities up, also for programs started later. To be called before any thread is.
pub fn give_up_capabilities(numbers: &[u32]) -> io::Result<()> {
    const VERSION: u32 = 0x2008_0522;
    for number in numbers {
        // a kernel that does not know it does not give it
        let _ = prctl(libc::PR_CAPBSET_DROP, u64::from(*number), 0, 0, 0);
    }
    let header = [VERSION, 0];
    // effective, permitted and inheritable, first of the lower 32 and then of the others
    let mut sets = [0u32; 6];
    // SAFETY: both arrays have the layout of the header and of two sets, and outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) })?;
    for number in numbers {
        let half = *number as usize / 32 * 3;
        sets[half..half + 3].iter_mut().for_each(|set| *set &= !(1 << (number % 32)));
    }
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }).map(drop)
}

/// Nothing this process starts gains privileges from the file it is.
pub fn no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).map(drop)
}

/// Lowers a limit of this process for good; one that is lower already stays.
pub fn lower_limit(resource: u32, most: u64) -> io::Result<()> {
    let (soft, hard) = rlimit_of(0, resource)?;
    let limit = libc::rlimit64 { rlim_cur: soft.min(most), rlim_max: hard.min(most) };
    // SAFETY: `limit` outlives the call; no old limit is asked for.
    check(unsafe { libc::prlimit64(0, resource, &raw const limit, std::ptr::null_mut()) }.into())
        .map(drop)
}

/// Sets both limits of this process to exactly this.
pub fn fix_limit(resource: u32, both: u64) -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: both, rlim_max: both };
    // SAFETY: `limit` outlives the call; no old limit is asked for.
    check(unsafe { libc::prlimit64(0, resource, &raw const limit, std::ptr::null_mut()) }.into())
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

/// Soft and hard limit of another process.
pub fn rlimit_of(pid: i32, resource: u32) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call; no new limit is passed.
    check(unsafe { libc::prlimit64(pid, resource, std::ptr::null(), &raw mut limit) }.into())?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Head and length of a thread's robust futex list.
pub fn robust_list_of(tid: i32) -> io::Result<(u64, u64)> {
    let (mut head, mut len) = (0u64, 0u64);
    // SAFETY: both out-parameters outlive the call.
    check(unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) })?;
    Ok((head, len))
}

pub fn nice_of(tid: i32) -> io::Result<i32> {
    // SAFETY: numbers only; the raw call returns 20 - nice, never -1 on success.
    let raw = check(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid) })?;
    Ok(20 - raw as i32)
}

/// A thread's scheduling policy and priority.
pub fn schedule_of(tid: i32) -> io::Result<(i32, i32)> {
    let mut priority = 0i32;
    // SAFETY: the parameter struct is one int, which outlives the call.
    unsafe {
        let policy = check(libc::syscall(libc::SYS_sched_getscheduler, tid))?;
        check(libc::syscall(libc::SYS_sched_getparam, tid, &raw mut priority))?;
        Ok((policy as i32, priority))
    }
}

/// Gives up a real-time policy that this thread inherited.
pub fn be_ordinary() -> io::Result<()> {
    let priority = 0i32;
    let policy = libc::SCHED_OTHER;
    // SAFETY: the parameter struct is one int, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) })
        .map(drop)
}

/// Processors a thread may run on, as a bit mask without trailing zeros.
pub fn affinity_of(tid: i32) -> io::Result<Vec<u8>> {
    let mut mask = vec![0u8; 1024];
    // SAFETY: pointer and length describe the buffer.
    let len = check(unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid, mask.len(), mask.as_mut_ptr())
    })?;
    mask.truncate(len as usize);
    Ok(mask)
}

/// Keeps this thread on one processor, or off it, for as long as the value lives.
pub struct Pinned {
    before: Vec<u8>,
}

impl Pinned {
    pub fn to(processor: usize) -> io::Result<Pinned> {
        let before = affinity_of(0)?;
        let mut mask = vec![0u8; before.len()];
        match mask.get_mut(processor / 8) {
            Some(byte) => *byte = 1 << (processor % 8),
            None => return Err(io::Error::other("no such processor")),
        }
        set_own_affinity(&mask)?;
        Ok(Pinned { before })
    }

    /// An error where there is no other.
    pub fn away_from(processor: usize) -> io::Result<Pinned> {
        let before = affinity_of(0)?;
        let mut mask = before.clone();
        if let Some(byte) = mask.get_mut(processor / 8) {
            *byte &= !(1 << (processor % 8));
        }
        set_own_affinity(&mask)?;
        Ok(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = set_own_affinity(&self.before);
    }
}

fn set_own_affinity(mask: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe the mask.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, mask.len(), mask.as_ptr()) })
        .map(drop)
}

/// What kcmp(2) compares.
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
    // SAFETY: numbers only.
    check(unsafe { libc::syscall(libc::SYS_kcmp, a, b, kind as i32, fd_a, fd_b) })
}

/// Whether descriptor `fd` of a process is what its epoll set `epoll` watches by that number.
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
/// should not inherit what the runtime of their parent ignores.
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

/// keyctl(2)'s request for a new session keyring.
pub const KEYCTL_JOIN_SESSION_KEYRING: u64 = 1;

/// Leaves the session keyring that this thread inherited for an empty one of its own.
pub fn own_keyring() -> io::Result<()> {
    let unnamed = std::ptr::null::<libc::c_char>();
    // SAFETY: no name is passed.
    check(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, unnamed) })
        .map(drop)
}

/// Whether there are keyrings to use: a kernel may lack them, and the filter of a container around
/// us may refuse them, to us as to whatever we start.
pub fn has_keyrings() -> bool {
    const GET_KEYRING_ID: u64 = 0;
    const SESSION: i32 = -3;
    // SAFETY: numbers only.
    let asked = check(unsafe { libc::syscall(libc::SYS_keyctl, GET_KEYRING_ID, SESSION, 0) });
    let refused =
        |error: io::Error| matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
    !asked.is_err_and(refused)
}

/// The calling thread's own number.
pub fn own_tid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Sends this process a signal.
pub fn raise(signal: i32) -> io::Result<()> {
    // SAFETY: numbers only; getpid gives this process's number in its own namespace.
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

/// Lets this process have as many descriptors as the kernel has for one; where it is not
/// privileged, as many as it was granted.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let (_, hard) = rlimit_of(0, libc::RLIMIT_NOFILE)?;
    let all = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
    let all = all.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(hard);
    set_descriptor_limit(all.max(hard)).or_else(|_| set_descriptor_limit(hard))
}

fn set_descriptor_limit(most: u64) -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: most, rlim_max: most };
    let new = &raw const limit;
    // SAFETY: `limit` outlives the call; no old limit is asked for.
    check(unsafe { libc::prlimit64(0, libc::RLIMIT_NOFILE, new, std::ptr::null_mut()) }.into())
        .map(drop)
}
