//! Stopping a whole tree, and letting it go again.
//!
//!   walk parents first ─► every task of the machine's list known and stopped? ─► frozen
//!        ▲                         │ a stranger, or one that is gone
//!        └─────────────────────────┘ until a full look finds neither, or the time is over
//!
//! The list is the machine's cgroup, which no task can leave; without one, it is every process of
//! the host in the machine's pid namespace. The forks of a seized thread are seized too, and born
//! stopped. Parents come first, because a parent that waits for its vfork cannot stop while its
//! child is stopped. Right before it is resumed, a tree is checked once more (`check_whole`).
//! Dropping the value resumes everything as it was.

mod scan;

use crate::error::{Error, ErrorContext, Result};
use crate::inject::{InjectionSite, TRACED};
use crate::jobs;
use crate::proc::{self, ProcStatus, Stat};
use crate::rseq;
use crate::walls::Walls;
use scan::TaskScan;
use stasis_spawner::layout;
use stasis_sys::alarm::Alarm;
use stasis_sys::arch::UserRegs;
use stasis_sys::memory::ProcessMemory;
use stasis_sys::ptrace::{self, StopReason};
use stasis_sys::{libc, process};
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

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
    pub status: ProcStatus,
    /// `None` for a zombie.
    pub live: Option<FrozenLive>,
}

pub struct FrozenLive {
    /// The leader first.
    pub threads: Vec<FrozenThread>,
    pub memory: ProcessMemory,
    pub site: InjectionSite,
    /// The signal that stopped it, when job control did.
    pub stopped: Option<i32>,
}

pub struct FrozenThread {
    pub tid: i32,
    pub own_tid: i32,
    pub regs: UserRegs,
    pub status: ProcStatus,
    pub rseq: Option<rseq::RseqArea>,
    stopped: Option<i32>,
}

/// A tree that does not stand still in this time is not captured: a thread waits in a call that
/// nothing interrupts, or new processes come faster than they can be stopped.
const LIMIT: Duration = Duration::from_secs(5);
/// A stopped process must have reported its state by then, all its threads together, including
/// files without a name.
const TELL_LIMIT: Duration = Duration::from_secs(120);
/// How long a thread that job control had stopped may take to stop again; it may be killed instead.
const STAND_LIMIT: Duration = Duration::from_millis(100);

impl Frozen {
    /// Stops everything of a machine but its init, when no thread is on our own pages: right after
    /// a restore one may still be on its way out.
    ///
    /// Waits that this interrupts are recorded in `restarts`, also those of an abandoned attempt:
    /// the kernel continues them, and the next stop could not tell what they were.
    pub fn stop(walls: &Walls, restarts: &mut Restarts) -> Result<Frozen> {
        let alarm = Alarm::set(LIMIT).doing(|| "set an alarm".into())?;
        loop {
            match Frozen::stop_now(walls, restarts, &alarm) {
                Ok(Some(mut frozen)) => {
                    if !frozen.is_on_our_pages() && !frozen.is_half_stopped() {
                        frozen.leave_sequences()?;
                        return Ok(frozen);
                    }
                }
                Ok(None) => {}
                // a task ended between being listed and being read
                Err(Error::Io { source, .. }) if is_missing(&source) && !alarm.is_over() => {
                    proc::children(walls.init.pid).map_err(|_| Error::Gone)?;
                }
                Err(error) => return Err(error),
            }
            if alarm.is_over() {
                return Err(Error::refused(0, restless()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills every process at its stop. One by one: the end of an init reaches the others only a
    /// moment later, and they would run until then.
    pub fn end(self) {
        for process in self.processes.iter().filter(|process| process.live.is_some()) {
            let _ = process::kill(process.pid, libc::SIGKILL);
        }
    }

    /// Whether a stop by job control has reached some threads of a process and not yet others. Its
    /// parent gets a signal when it has reached all.
    fn is_half_stopped(&self) -> bool {
        let live = self.processes.iter().filter_map(|process| process.live.as_ref());
        live.filter(|live| live.stopped.is_some())
            .any(|live| live.threads.iter().any(|thread| thread.stopped.is_none()))
    }

    fn threads(&self) -> impl Iterator<Item = &FrozenThread> {
        let live = self.processes.iter().filter_map(|process| process.live.as_ref());
        live.flat_map(|live| &live.threads)
    }

    /// The threads of the process that was stopped last.
    fn last_threads(&self) -> impl Iterator<Item = &FrozenThread> {
        let live = self.processes.last().and_then(|process| process.live.as_ref());
        live.into_iter().flat_map(|live| &live.threads)
    }

    fn is_on_our_pages(&self) -> bool {
        self.threads()
            .any(|thread| (layout::RESERVED..layout::RESERVED_END).contains(&thread.regs.rip))
    }

    /// The kernel diverts no thread while it runs for us.
    fn leave_sequences(&mut self) -> Result<()> {
        for live in self.processes.iter_mut().filter_map(|process| process.live.as_mut()) {
            for thread in &mut live.threads {
                if let Some(area) = &thread.rseq {
                    rseq::leave(thread.tid, area, &live.memory, &mut thread.regs)?;
                }
            }
        }
        Ok(())
    }

    /// One attempt; `None` if a stopped task has ended, or a process got another thread.
    fn stop_now(walls: &Walls, restarts: &mut Restarts, alarm: &Alarm) -> Result<Option<Frozen>> {
        let mut frozen = Frozen { processes: Vec::new() };
        let mut seen = HashSet::new();
        let mut rounds = 0;
        let mut queue = proc::children(walls.init.pid)?;
        while !queue.is_empty() {
            while let Some(pid) = queue.pop() {
                if seen.insert(pid) && frozen.stop_process(pid, walls.sealed, alarm)? {
                    frozen.last_threads().for_each(|thread| note_restart(thread, restarts));
                    queue.extend(proc::children(pid)?);
                }
            }
            rounds += 1;
            queue = match frozen.look(walls, &seen)? {
                TaskScan::Whole => break,
                TaskScan::Strangers(tops) => tops,
                TaskScan::Changed => return Ok(None),
            };
            if alarm.is_over() {
                return Err(Error::refused(0, restless()));
            }
        }
        if frozen.processes.is_empty() {
            return Err(Error::Gone);
        }
        if rounds > 1 {
            // a task that was reparented meanwhile has its new parent now
            frozen.processes.iter_mut().try_for_each(FrozenProcess::look_again)?;
        }
        frozen.processes.sort_by_key(|process| process.own_pid);
        Ok(Some(frozen))
    }

    /// Stops one process; false when it is a zombie or already gone.
    fn stop_process(&mut self, pid: i32, sealed: bool, alarm: &Alarm) -> Result<bool> {
        let mut seized = Vec::new();
        if !seize_all(pid, &mut seized, alarm)? {
            // between listing and looking it may have been waited for
            self.processes.extend(FrozenProcess::read(pid, None).ok());
            return Ok(false);
        }
        // whatever fails from here on, the seized threads must be resumed
        let guard = Threads(seized);
        let live = look_at(pid, &guard.0, sealed)?;
        let process = FrozenProcess::read(pid, Some(live))?;
        std::mem::forget(guard);
        self.processes.push(process);
        Ok(true)
    }
}

impl FrozenProcess {
    fn read(pid: i32, live: Option<FrozenLive>) -> Result<FrozenProcess> {
        let leader = live.as_ref().and_then(|live| live.threads.first());
        let status = match leader {
            Some(leader) => leader.status.clone(),
            None => ProcStatus::parse(&proc::read_text(pid, "status")?),
        };
        let stat = Stat::parse(&proc::read_text(pid, "stat")?);
        let stat = stat.ok_or_else(|| Error::refused(pid, "its stat file is unreadable"))?;
        let own_pid = status.innermost("NSpid").unwrap_or(0);
        Ok(FrozenProcess { pid, own_pid, stat, status, live })
    }

    fn look_again(&mut self) -> Result<()> {
        let FrozenProcess { stat, status, .. } = FrozenProcess::read(self.pid, None)?;
        (self.stat, self.status) = (stat, status);
        Ok(())
    }
}

fn restless() -> &'static str {
    "its processes do not all stand still: new ones come faster than they can be stopped, or a \
     thread does not leave the engine's own pages"
}

/// Whether an error means that a process or thread has ended.
pub fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT | libc::ECHILD))
}

/// A stopped thread, and the signal that had stopped it before we did.
type Seized = (i32, Option<i32>);

/// Threads to resume when an error is returned.
struct Threads(Vec<Seized>);

impl Drop for Threads {
    fn drop(&mut self) {
        for (tid, _) in &self.0 {
            let _ = ptrace::detach(*tid, 0);
        }
    }
}

/// Seizes and stops every thread, until no new one turns up. False for a zombie.
fn seize_all(pid: i32, seized: &mut Vec<Seized>, alarm: &Alarm) -> Result<bool> {
    loop {
        let Ok(all) = proc::threads(pid) else { return Ok(false) };
        let is_new = |tid: &i32| seized.iter().all(|(known, _)| known != tid);
        let new: Vec<i32> = all.into_iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(!seized.is_empty());
        }
        // all are interrupted before any is awaited: a running thread stops at once, and leaves its
        // processor to those that must wake up in order to stop
        let asked: Vec<_> = new.into_iter().map(|tid| (tid, ask(tid))).collect();
        for (tid, asked) in asked {
            match asked.and_then(|()| stand(tid, alarm)) {
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
    match tracer(pid) {
        0 => "it may not be traced".into(),
        tracer => format!("it is traced by process {tracer} of the host"),
    }
}

/// The thread that traces another; 0 for none.
fn tracer(tid: i32) -> i32 {
    let text = proc::read_text(tid, "status").unwrap_or_default();
    ProcStatus::parse(&text).number("TracerPid").unwrap_or(0) as i32
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

/// Seizes a thread and requests a stop. Its forks are ours from birth and stop by themselves,
/// except for the child of a vfork, for which it waits.
fn ask(tid: i32) -> std::io::Result<()> {
    const BORN_OURS: u64 = ptrace::OPT_TRACEFORK | ptrace::OPT_TRACECLONE;
    match ptrace::seize(tid, BORN_OURS) {
        Ok(()) => ptrace::interrupt(tid),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            if tracer(tid) == process::own_tid() { Ok(()) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

/// Waits until an interrupted thread has stopped; returns the signal that had stopped it before, if
/// any. A thread that does not stop cannot be resumed; it is released with the thread that seized
/// it.
fn stand(tid: i32, alarm: &Alarm) -> std::io::Result<Option<i32>> {
    let stopped = stop(tid, alarm)?;
    ptrace::set_options(tid, TRACED).map(|()| stopped).inspect_err(|_| {
        let _ = ptrace::detach(tid, 0);
    })
}

fn stop(tid: i32, alarm: &Alarm) -> std::io::Result<Option<i32>> {
    loop {
        match ptrace::wait_stop(tid, alarm)? {
            StopReason::Interrupted => return Ok(None),
            StopReason::Group(signal) => return Ok(Some(signal)),
            // it takes its signal first, and stops right after
            StopReason::Signal(signal) => on_to_stop(tid, signal)?,
            StopReason::Event(_) => on_to_stop(tid, 0)?,
            StopReason::Gone(_) => return Err(std::io::Error::other("the thread ended")),
        }
    }
}

/// Lets a thread run to the requested stop. Any other stop uses up an earlier request, so the stop
/// is requested again meanwhile: a thread that waits for one born stopped would never return here.
fn on_to_stop(tid: i32, signal: i32) -> std::io::Result<()> {
    ptrace::interrupt(tid)?;
    ptrace::resume(tid, signal)
}

fn look_at(pid: i32, seized: &[Seized], sealed: bool) -> Result<FrozenLive> {
    let memory = ProcessMemory::open(pid).doing(|| format!("open the memory of {pid}"))?;
    let mut threads = seized
        .iter()
        .map(|(tid, stopped)| {
            let regs = settled_regs(*tid).doing(|| format!("read registers of thread {tid}"))?;
            let status = ProcStatus::parse(&proc::read_text(pid, &format!("task/{tid}/status"))?);
            let own_tid = status.innermost("NSpid").unwrap_or(0);
            check_no_trap(pid, &status)?;
            let rseq = rseq::RseqArea::of(*tid).doing(|| format!("read rseq of thread {tid}"))?;
            Ok(FrozenThread { tid: *tid, own_tid, regs, status, rseq, stopped: *stopped })
        })
        .collect::<Result<Vec<_>>>()?;
    threads.sort_by_key(|thread| (thread.tid != pid, thread.own_tid));
    if threads.first().is_none_or(|leader| leader.tid != pid) {
        return Err(Error::refused(pid, "its first thread has ended while others run on"));
    }
    let areas: Vec<rseq::RseqArea> = threads.iter().filter_map(|thread| thread.rseq).collect();
    let own_filters = threads.iter().any(|thread| has_own_filters(&thread.status, sealed));
    let site = InjectionSite::find(pid, &memory, &threads[0].regs, &areas)?.under(own_filters);
    let site = site.until(Instant::now() + TELL_LIMIT);
    let stopped = threads.iter().find_map(|thread| thread.stopped);
    Ok(FrozenLive { threads, memory, site, stopped })
}

/// Whether a thread is under filters that may refuse our calls: the machine's own refuses none.
fn has_own_filters(status: &ProcStatus, sealed: bool) -> bool {
    let filtered = status.number("Seccomp").unwrap_or(0) != 0;
    filtered && !(sealed && status.number("Seccomp_filters") == Some(1))
}

/// Calls are injected one step at a time, and the end of a step is a SIGTRAP: one that is waiting
/// to be taken would be taken for it.
fn check_no_trap(pid: i32, status: &ProcStatus) -> Result<()> {
    const TRAP: u64 = 1 << (libc::SIGTRAP - 1);
    let pending = ["SigPnd", "ShdPnd"].iter().filter_map(|key| status.hex(key));
    if pending.fold(0, |all, set| all | set) & TRAP != 0 {
        return Err(Error::refused(pid, "a SIGTRAP is waiting to be taken"));
    }
    Ok(())
}

/// Interrupted waits that the kernel continues: call and place, by thread. A thread interrupted
/// once more is in restart_syscall, which does not show what it continues.
pub type Restarts = HashMap<i32, (u64, u64)>;

/// The result of a system call that the kernel will continue.
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
        // stopped again before any other code can observe it
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
