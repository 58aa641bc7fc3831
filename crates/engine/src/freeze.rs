//! Stopping a whole tree, and letting it go again.
//!
//! Parents first: children are read from a process only after it stands still, so a fork cannot
//! slip through. Orphans can still fall to init meanwhile, so init's children are read again
//! until nothing new turns up. Dropping the value lets everything go on as it was.

use crate::error::{Doing, Error, Result};
use crate::inject::Site;
use crate::jobs;
use crate::proc::{self, Stat, Status};
use stasis_spawner::layout;
use stasis_sys::alarm::Alarm;
use stasis_sys::arch::UserRegs;
use stasis_sys::libc;
use stasis_sys::memory::ProcessMemory;
use stasis_sys::ptrace::{self, Stop};
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::time::Duration;

/// A stopped tree.
pub struct Frozen {
    pub processes: Vec<FrozenProcess>,
}

pub struct FrozenProcess {
    /// In the host's numbering.
    pub pid: i32,
    /// In the machine's.
    pub own_pid: i32,
    pub stat: Stat,
    pub status: Status,
    /// `None` for a zombie.
    pub live: Option<FrozenLive>,
}

pub struct FrozenLive {
    /// The leader first.
    pub threads: Vec<FrozenThread>,
    pub memory: ProcessMemory,
    pub site: Site,
    /// The signal that stopped it, when job control did.
    pub stopped: Option<i32>,
}

pub struct FrozenThread {
    pub tid: i32,
    pub own_tid: i32,
    pub regs: UserRegs,
    pub status: Status,
    stopped: Option<i32>,
}

/// Follow clones we inject ourselves, and if we die, do not take the target along. Set only once a
/// thread stands still: what it forked until then would be ours without our knowing.
const OPTIONS: u64 = ptrace::OPT_TRACECLONE | ptrace::OPT_TRACEFORK | ptrace::OPT_TRACEVFORK;
/// See through the target's seccomp filters, where we may.
const THROUGH: u64 = ptrace::OPT_SUSPEND_SECCOMP;
/// A thread that does not stop in this time waits in a call that nothing interrupts.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long a thread that job control had stopped may take to stop again; it may be killed instead.
const STAND_LIMIT: Duration = Duration::from_millis(100);

impl Frozen {
    /// Stops everything below `init`, when no thread is on our own pages: right after a restore
    /// one may still be on its way out.
    ///
    /// Waits that this interrupts are noted in `restarts`, also those of an attempt that is given
    /// up: the kernel goes on with them, and the next stop could not tell what they were.
    pub fn stop(init: i32, restarts: &mut Restarts) -> Result<Frozen> {
        const TRIES: u32 = 500;
        for _ in 0..TRIES {
            let frozen = Frozen::stop_now(init)?;
            frozen.threads().for_each(|thread| note_restart(thread, restarts));
            if !frozen.is_on_our_pages() && !frozen.is_half_stopped() {
                return Ok(frozen);
            }
            drop(frozen);
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(Error::refused(0, "a thread does not leave the engine's own pages, or does not stop"))
    }

    /// Kills everything where it stands. One by one: the end of an init reaches the others only a
    /// moment later, and they would run until then.
    pub fn end(self) {
        for process in self.processes.iter().filter(|process| process.live.is_some()) {
            let _ = stasis_sys::process::kill(process.pid, libc::SIGKILL);
        }
    }

    /// Whether a stop by job control has reached some threads of a process and not yet others. Its
    /// parent is told, by a signal, when it has reached all.
    fn is_half_stopped(&self) -> bool {
        let live = self.processes.iter().filter_map(|process| process.live.as_ref());
        live.filter(|live| live.stopped.is_some())
            .any(|live| live.threads.iter().any(|thread| thread.stopped.is_none()))
    }

    fn threads(&self) -> impl Iterator<Item = &FrozenThread> {
        let live = self.processes.iter().filter_map(|process| process.live.as_ref());
        live.flat_map(|live| &live.threads)
    }

    fn is_on_our_pages(&self) -> bool {
        self.threads()
            .any(|thread| (layout::RESERVED..layout::RESERVED_END).contains(&thread.regs.rip))
    }

    fn stop_now(init: i32) -> Result<Frozen> {
        let mut frozen = Frozen { processes: Vec::new() };
        let mut seen = HashSet::new();
        loop {
            let new: Vec<i32> =
                proc::children(init)?.into_iter().filter(|pid| !seen.contains(pid)).collect();
            if new.is_empty() {
                break;
            }
            let mut queue = new;
            while let Some(pid) = queue.pop() {
                if seen.insert(pid) && frozen.stop_process(pid)? {
                    queue.extend(proc::children(pid)?);
                }
            }
        }
        frozen.processes.sort_by_key(|process| process.own_pid);
        if frozen.processes.is_empty() {
            return Err(Error::Gone);
        }
        Ok(frozen)
    }

    /// Stops one process; false when it is a zombie or already gone.
    fn stop_process(&mut self, pid: i32) -> Result<bool> {
        let mut seized = Vec::new();
        let zombie = !seize_all(pid, &mut seized)?;
        let entry = |live| -> Result<FrozenProcess> {
            let status = Status::parse(&proc::read_text(pid, "status")?);
            let stat = Stat::parse(&proc::read_text(pid, "stat")?);
            let stat = stat.ok_or_else(|| Error::refused(pid, "its stat file is unreadable"))?;
            let own_pid = status.innermost("NSpid").unwrap_or(0);
            Ok(FrozenProcess { pid, own_pid, stat, status, live })
        };
        if zombie {
            // between listing and looking it may have been waited for
            if let Ok(process) = entry(None) {
                self.processes.push(process);
            }
            return Ok(false);
        }
        // whatever fails from here on, the threads seized must be let go
        let guard = Threads(seized);
        let live = look_at(pid, &guard.0)?;
        let process = entry(Some(live))?;
        std::mem::forget(guard);
        self.processes.push(process);
        Ok(true)
    }
}

/// A thread that stands still, and the signal that had stopped it before we did.
type Seized = (i32, Option<i32>);

/// Threads to let go when an error is on its way out.
struct Threads(Vec<Seized>);

impl Drop for Threads {
    fn drop(&mut self) {
        for (tid, _) in &self.0 {
            let _ = ptrace::detach(*tid, 0);
        }
    }
}

/// Seizes and stops every thread, until no new one turns up. False for a zombie.
fn seize_all(pid: i32, seized: &mut Vec<Seized>) -> Result<bool> {
    loop {
        let Ok(all) = proc::threads(pid) else { return Ok(false) };
        let is_new = |tid: &i32| seized.iter().all(|(known, _)| known != tid);
        let new: Vec<i32> = all.into_iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(!seized.is_empty());
        }
        // all are asked before any is waited for: one that runs stops at once, and leaves its
        // processor to those that must wake up in order to stop
        let asked: Vec<_> = new.into_iter().map(|tid| (tid, ask(tid))).collect();
        let alarm = Alarm::set(STOP_LIMIT).doing(|| "set an alarm".into())?;
        for (tid, asked) in asked {
            match asked.and_then(|()| stand(tid, &alarm)) {
                Ok(stopped) => seized.push((tid, stopped)),
                Err(error) if is_dead(pid, tid) => {
                    let _ = error;
                    if tid == pid {
                        drop(Threads(std::mem::take(seized)));
                        return ended(pid);
                    }
                }
                Err(error) => {
                    drop(Threads(std::mem::take(seized)));
                    return Err(match error.kind() {
                        ErrorKind::TimedOut => Error::refused(pid, unstoppable(tid)),
                        ErrorKind::PermissionDenied => Error::refused(pid, traced(pid)),
                        _ => Error::Io { doing: format!("stop thread {tid}"), source: error },
                    });
                }
            }
        }
    }
}

fn unstoppable(tid: i32) -> String {
    format!(
        "thread {tid} is in a call that nothing interrupts (such as vfork), and cannot be stopped"
    )
}

fn traced(pid: i32) -> String {
    let text = proc::read_text(pid, "status").unwrap_or_default();
    match Status::parse(&text).number("TracerPid") {
        None | Some(0) => "it may not be traced".into(),
        Some(tracer) => format!("it is traced by process {tracer} of the host"),
    }
}

/// False when a process whose first thread has ended is a zombie. While it is ending its other
/// threads are still there for a moment, a long one on a busy host; if they stay, they run on
/// without it.
fn ended(pid: i32) -> Result<bool> {
    const LOOKS: u32 = 500;
    for _ in 0..LOOKS {
        let threads = proc::threads(pid).unwrap_or_default();
        if threads.into_iter().all(|tid| is_dead(pid, tid)) {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(Error::refused(pid, "its first thread has ended while others run on"))
}

fn is_dead(pid: i32, tid: i32) -> bool {
    let text = proc::read_text(pid, &format!("task/{tid}/stat"));
    let stat = text.ok().and_then(|text| Stat::parse(&text));
    stat.is_none_or(|stat| matches!(stat.state, 'Z' | 'X'))
}

/// Seizes a thread and asks it to stop.
fn ask(tid: i32) -> std::io::Result<()> {
    ptrace::seize(tid, THROUGH).or_else(|_| ptrace::seize(tid, 0))?;
    ptrace::interrupt(tid)
}

/// Waits until a thread that was asked stands still; the signal that had stopped it before, if one
/// had. One that does not stop cannot be let go; it goes with the thread that seized it.
fn stand(tid: i32, alarm: &Alarm) -> std::io::Result<Option<i32>> {
    let follow = || {
        ptrace::set_options(tid, OPTIONS | THROUGH).or_else(|_| ptrace::set_options(tid, OPTIONS))
    };
    let stopped = stop(tid, alarm)?;
    follow().map(|()| stopped).inspect_err(|_| {
        let _ = ptrace::detach(tid, 0);
    })
}

fn stop(tid: i32, alarm: &Alarm) -> std::io::Result<Option<i32>> {
    loop {
        match ptrace::wait_stop_until(tid, alarm)? {
            Stop::Interrupted => return Ok(None),
            Stop::Group(signal) => return Ok(Some(signal)),
            // it takes its signal first; our request is still pending and stops it right after
            Stop::Signal(signal) => ptrace::resume(tid, signal)?,
            Stop::Event(_) => ptrace::resume(tid, 0)?,
            Stop::Gone(_) => return Err(std::io::Error::other("the thread ended")),
        }
    }
}

fn look_at(pid: i32, seized: &[Seized]) -> Result<FrozenLive> {
    let memory = ProcessMemory::open(pid).doing(|| format!("open the memory of {pid}"))?;
    let mut threads = seized
        .iter()
        .map(|(tid, stopped)| {
            let regs = settled_regs(*tid).doing(|| format!("read registers of thread {tid}"))?;
            let status = Status::parse(&proc::read_text(pid, &format!("task/{tid}/status"))?);
            let own_tid = status.innermost("NSpid").unwrap_or(0);
            check_no_trap(pid, &status)?;
            check_seen_through(pid, *tid, &status)?;
            Ok(FrozenThread { tid: *tid, own_tid, regs, status, stopped: *stopped })
        })
        .collect::<Result<Vec<_>>>()?;
    threads.sort_by_key(|thread| (thread.tid != pid, thread.own_tid));
    if threads.first().is_none_or(|leader| leader.tid != pid) {
        return Err(Error::refused(pid, "its first thread has ended while others run on"));
    }
    let site = Site::find(pid, &memory, &threads[0].regs)?;
    let stopped = threads.iter().find_map(|thread| thread.stopped);
    Ok(FrozenLive { threads, memory, site, stopped })
}

/// Calls are injected one step at a time, and the end of a step is a SIGTRAP: one that is waiting
/// to be taken would be taken for it.
fn check_no_trap(pid: i32, status: &Status) -> Result<()> {
    const TRAP: u64 = 1 << (libc::SIGTRAP - 1);
    let pending = ["SigPnd", "ShdPnd"].iter().filter_map(|key| status.hex(key));
    if pending.fold(0, |all, set| all | set) & TRAP != 0 {
        return Err(Error::refused(pid, "a SIGTRAP is waiting to be taken"));
    }
    Ok(())
}

/// Calls are injected past the target's own filters, which a host may not let us do.
fn check_seen_through(pid: i32, tid: i32, status: &Status) -> Result<()> {
    if status.number("Seccomp").unwrap_or(0) != 0
        && ptrace::set_options(tid, OPTIONS | THROUGH).is_err()
    {
        let what = "it is under seccomp filters, which this engine may not see through";
        return Err(Error::refused(pid, what));
    }
    Ok(())
}

/// Waits that were interrupted and that the kernel goes on with: call and place, by thread. A
/// thread interrupted once more is in restart_syscall, which does not say what it continues.
pub type Restarts = HashMap<i32, (u64, u64)>;

/// What a system call leaves in its result when the kernel is to go on with it.
pub const ERESTART_RESTARTBLOCK: i64 = -516;

fn note_restart(thread: &FrozenThread, restarts: &mut Restarts) {
    let regs = &thread.regs;
    let first = regs.orig_rax as i64 != libc::SYS_restart_syscall;
    if regs.rax as i64 == ERESTART_RESTARTBLOCK && (regs.orig_rax as i64) >= 0 && first {
        restarts.insert(thread.tid, (regs.orig_rax, regs.rip));
    }
}

/// A thread's registers, after seeing to it that our stop leaves no trace in them.
///
/// Most system calls that a stop interrupts are repeated by the kernel. A few report EINTR even
/// though the program got no signal; they took nothing, so they are made again.
fn settled_regs(tid: i32) -> std::io::Result<UserRegs> {
    const INTERRUPTED: u64 = -(libc::EINTR as i64) as u64;
    let mut regs = ptrace::regs(tid)?;
    if regs.rax == INTERRUPTED && REPORT_EINTR.contains(&(regs.orig_rax as i64)) {
        regs.rax = regs.orig_rax;
        regs.rip -= 2;
        regs.orig_rax = u64::MAX;
        ptrace::set_regs(tid, &regs)?;
    }
    Ok(regs)
}

/// Calls that report EINTR for a stop (signal(7)), or for one during a socket timeout.
const REPORT_EINTR: [i64; 14] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
];

impl Drop for Frozen {
    fn drop(&mut self) {
        // what stands still stands again before anybody can look
        let (stopped, others): (Vec<_>, Vec<_>) =
            self.threads().partition(|thread| thread.stopped.is_some());
        for thread in &stopped {
            let _ = ptrace::detach(thread.tid, 0);
        }
        for thread in &stopped {
            jobs::stands_within(thread.tid, STAND_LIMIT);
        }
        for thread in others {
            let _ = ptrace::detach(thread.tid, 0);
        }
    }
}
