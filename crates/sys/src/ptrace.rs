//! ptrace(2): stops threads of other processes and reads state that only a tracer sees.
//!
//! All calls for one thread must come from the OS thread that seized it.

use crate::alarm::Alarm;
use crate::arch::UserRegs;
use crate::check;
use crate::process::wait_once;
use std::io;
use std::time::Duration;

const NT_X86_XSTATE: usize = 0x202;
const NT_PRSTATUS: usize = 1;
const PTRACE_GET_RSEQ_CONFIGURATION: u32 = 0x420f;
const PTRACE_PEEKSIGINFO: u32 = 0x4209;
const PTRACE_SECCOMP_GET_FILTER: u32 = 0x420c;
const PTRACE_GETSIGMASK: u32 = 0x420a;
const PTRACE_SETSIGMASK: u32 = 0x420b;
const PTRACE_PEEKSIGINFO_SHARED: u32 = 1;
const PTRACE_EVENT_STOP: i32 = 128;

pub const OPT_EXITKILL: u64 = 0x10_0000;
pub const OPT_TRACECLONE: u64 = 0x8;
pub const OPT_TRACEFORK: u64 = 0x2;
pub const OPT_TRACEVFORK: u64 = 0x4;
pub const OPT_TRACEEXEC: u64 = 0x10;
pub const OPT_SUSPEND_SECCOMP: u64 = 0x20_0000;

pub fn zeroed_regs() -> UserRegs {
    // SAFETY: the struct is plain integers, for which all zeros is a value.
    unsafe { std::mem::zeroed() }
}

fn request(request: u32, tid: i32, addr: usize, data: usize) -> io::Result<i64> {
    // SAFETY: each caller below passes addresses of buffers that outlive its call, of the size
    // the request writes or reads.
    check(unsafe { libc::syscall(libc::SYS_ptrace, request, tid, addr, data) })
}

/// Becomes the tracer of a thread without stopping it.
pub fn seize(tid: i32, options: u64) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

/// Requests a stop of a seized thread; `wait_stop` reports it.
pub fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

pub fn detach(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

pub fn resume(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

pub fn set_options(tid: i32, options: u64) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, options as usize).map(drop)
}

/// Why a traced thread stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Stopped at our request.
    Interrupted,
    /// Stopped by job control (SIGSTOP and friends), as the program had been.
    Group(i32),
    /// About to take this signal.
    Signal(i32),
    /// A ptrace event (clone, fork, exec...).
    Event(i32),
    /// No longer exists.
    Gone(i32),
}

/// Waits for the next stop of one traced thread, until the alarm: a thread in a call that nothing
/// interrupts (the parent of a vfork) does not stop before that call is over, which may be never.
///
/// The kernel reports the end of a process's first thread only after its tracer has waited for all
/// the others. A caller that waits for the first one would wait for itself, so a thread that does
/// not stop soon is checked for its end from time to time.
pub fn wait_stop(tid: i32, alarm: &Alarm) -> io::Result<StopReason> {
    const CHECK: Duration = Duration::from_millis(20);
    let _ticking = alarm.ticking(CHECK)?;
    loop {
        match wait_once(tid, libc::__WALL) {
            Ok(waited) => return Ok(StopReason::of(waited.status)),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Err(_) if alarm.is_over() => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) if has_ended(tid) => return Ok(StopReason::Gone(0)),
            Err(_) => {}
        }
    }
}

/// Whether a thread has ended and is still waited for.
fn has_ended(tid: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{tid}/stat")).unwrap_or_default();
    // after the name, which may contain anything
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
    matches!(state, Some(b'Z' | b'X'))
}

impl StopReason {
    fn of(status: i32) -> StopReason {
        if !libc::WIFSTOPPED(status) {
            return StopReason::Gone(status);
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 => StopReason::Signal(signal),
            PTRACE_EVENT_STOP if signal == libc::SIGTRAP => StopReason::Interrupted,
            PTRACE_EVENT_STOP => StopReason::Group(signal),
            event => StopReason::Event(event),
        }
    }
}

/// The origin of the signal that a stopped thread is about to take (`si_code`).
pub fn signal_code(tid: i32) -> io::Result<i32> {
    const CODE_AT: usize = 8;
    let mut info = [0u8; 128];
    request(libc::PTRACE_GETSIGINFO, tid, 0, info.as_mut_ptr() as usize)?;
    Ok(i32::from_ne_bytes(info[CODE_AT..CODE_AT + 4].try_into().expect("4")))
}

pub fn event_message(tid: i32) -> io::Result<u64> {
    let mut message = 0u64;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize)?;
    Ok(message)
}

pub fn regs(tid: i32) -> io::Result<UserRegs> {
    let mut regs = zeroed_regs();
    let mut iov = libc::iovec { iov_base: (&raw mut regs).cast(), iov_len: size_of::<UserRegs>() };
    request(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, &raw mut iov as usize)?;
    Ok(regs)
}

pub fn set_regs(tid: i32, regs: &UserRegs) -> io::Result<()> {
    let mut iov = libc::iovec {
        iov_base: std::ptr::from_ref(regs).cast_mut().cast(),
        iov_len: size_of::<UserRegs>(),
    };
    request(libc::PTRACE_SETREGSET, tid, NT_PRSTATUS, &raw mut iov as usize).map(drop)
}

/// The thread's whole extended state, standard format.
pub fn xstate(tid: i32) -> io::Result<Vec<u8>> {
    let mut area = vec![0u8; 16 * 1024];
    let mut iov = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() };
    request(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &raw mut iov as usize)?;
    area.truncate(iov.iov_len);
    Ok(area)
}

pub fn sigmask(tid: i32) -> io::Result<u64> {
    let mut mask = 0u64;
    request(PTRACE_GETSIGMASK, tid, 8, &raw mut mask as usize)?;
    Ok(mask)
}

pub fn set_sigmask(tid: i32, mask: u64) -> io::Result<()> {
    request(PTRACE_SETSIGMASK, tid, 8, &raw const mask as usize).map(drop)
}

/// A thread's rseq registration: address, size, signature; address 0 if there is none.
pub fn rseq(tid: i32) -> io::Result<(u64, u32, u32)> {
    #[repr(C)]
    #[derive(Default)]
    struct Configuration {
        pointer: u64,
        size: u32,
        signature: u32,
        flags: u32,
        pad: u32,
    }
    let mut conf = Configuration::default();
    request(
        PTRACE_GET_RSEQ_CONFIGURATION,
        tid,
        size_of::<Configuration>(),
        &raw mut conf as usize,
    )?;
    Ok((conf.pointer, conf.size, conf.signature))
}

/// Signals queued for a thread, or (`shared`) for its whole process, oldest first.
pub fn pending(tid: i32, shared: bool) -> io::Result<Vec<Vec<u8>>> {
    #[repr(C)]
    struct PeekArgs {
        offset: u64,
        flags: u32,
        count: i32,
    }
    const BATCH: usize = 32;
    let mut all = Vec::new();
    loop {
        let args = PeekArgs {
            offset: all.len() as u64,
            flags: if shared { PTRACE_PEEKSIGINFO_SHARED } else { 0 },
            count: BATCH as i32,
        };
        let mut infos = vec![0u8; BATCH * 128];
        let count = request(
            PTRACE_PEEKSIGINFO,
            tid,
            &raw const args as usize,
            infos.as_mut_ptr() as usize,
        )? as usize;
        all.extend(infos.chunks_exact(128).take(count).map(<[u8]>::to_vec));
        if count < BATCH {
            return Ok(all);
        }
    }
}

/// One of a stopped thread's seccomp filters, newest first, as instructions; `None` past the last.
/// The caller must be under no filter and have the host's privileges.
pub fn seccomp_filter(tid: i32, index: usize) -> io::Result<Option<Vec<u64>>> {
    let mut program = vec![0u64; crate::seccomp::MAX_INSTRUCTIONS];
    match request(PTRACE_SECCOMP_GET_FILTER, tid, index, program.as_mut_ptr() as usize) {
        Ok(length) => {
            program.truncate(length as usize);
            Ok(Some(program))
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs exactly one instruction of a stopped thread.
pub fn step(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, 0).map(drop)
}
