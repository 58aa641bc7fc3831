//! One process's kernel state, apart from memory and descriptors.

use super::{inherited, refuse, threads};
use crate::error::{Doing, Error, Result};
use crate::freeze::{FrozenLive, FrozenProcess};
use crate::inject::Injector;
use crate::proc::{self, Stat};
use crate::tree::Tree;
use stasis_image::model::*;
use stasis_sys::{libc, ptrace};

/// Reads everything but mappings and descriptors, which are filled in later.
pub fn read(process: &FrozenProcess, tree: &Tree) -> Result<Process> {
    let field = |number: usize| process.stat.field(number).unwrap_or(0) as i32;
    let list = |key: &str| process.status.innermost(key).unwrap_or(0);
    let state = match &process.live {
        Some(live) => ProcessState::Live(Box::new(read_live(process, live, tree)?)),
        None => ProcessState::Zombie { status: field(52), comm: process.stat.name.clone() },
    };
    Ok(Process {
        pid: process.own_pid,
        ppid: own_ppid(process)?,
        pgid: list("NSpgid"),
        sid: list("NSsid"),
        exit_signal: field(38),
        state,
    })
}

/// The parent's number inside the machine.
fn own_ppid(process: &FrozenProcess) -> Result<i32> {
    let parent = process.stat.field(4).unwrap_or(0) as i32;
    let text = proc::read_text(parent, "status")?;
    proc::Status::parse(&text)
        .innermost("NSpid")
        .ok_or_else(|| refuse(process, "its parent has no number in the machine"))
}

/// What only the source itself can tell.
fn read_live(process: &FrozenProcess, live: &FrozenLive, tree: &Tree) -> Result<Live> {
    let leader = &live.threads[0];
    let mut injector = Injector::new(leader.tid, &live.memory, live.site)?;
    let (itimers, child_subreaper) = read_itimers(&mut injector)?;
    let timers = read_timers(process, &mut injector)?;
    let mut asked = Live::default();
    inherited::read(process, &mut injector, &mut asked)?;
    injector.finish()?;
    Ok(Live {
        exe: u32::MAX,
        threads: threads::read_all(process, live, tree)?,
        pending: pending(leader.tid, true)?,
        itimers,
        timers,
        oom_score_adj: proc::read_text(process.pid, "oom_score_adj")?.trim().parse().unwrap_or(0),
        child_subreaper,
        stopped: live.stopped.map(|signal| JobStop { signal, told: true }),
        ..asked
    })
}

pub fn pending(tid: i32, shared: bool) -> Result<Vec<SigInfo>> {
    let infos = ptrace::pending(tid, shared).doing(|| format!("read signals of {tid}"))?;
    Ok(infos.into_iter().map(SigInfo).collect())
}

/// Interval timers, and whether orphans below come to this process.
fn read_itimers(injector: &mut Injector) -> Result<([ITimer; 3], bool)> {
    let at = injector.put(0, &[0; 104])?;
    let ask = |which: u64| (libc::SYS_getitimer, [which, at + which * 32, 0, 0, 0, 0]);
    let subreaper = [libc::PR_GET_CHILD_SUBREAPER as u64, at + 96, 0, 0, 0, 0];
    let calls = [ask(0), ask(1), ask(2), (libc::SYS_prctl, subreaper)];
    injector.batch(&calls)?;
    let words = words(&injector.get(0, 104)?);
    let timer = |which: usize| ITimer {
        interval_us: words[4 * which] * 1_000_000 + words[4 * which + 1],
        left_us: words[4 * which + 2] * 1_000_000 + words[4 * which + 3],
    };
    Ok(([timer(0), timer(1), timer(2)], words[12] as u32 != 0))
}

/// POSIX timers, from `/proc/PID/timers` and timer_gettime.
fn read_timers(process: &FrozenProcess, injector: &mut Injector) -> Result<Vec<PosixTimer>> {
    let text = proc::read_text(process.pid, "timers").unwrap_or_default();
    let mut timers: Vec<PosixTimer> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match (key, timers.last_mut()) {
            ("ID", _) => {
                let id = value.parse().unwrap_or(-1);
                timers.push(new_timer(id));
            }
            ("signal", Some(timer)) => {
                let (signal, value) = value.split_once('/').unwrap_or((value, "0"));
                timer.signal = signal.parse().unwrap_or(0);
                timer.value = u64::from_str_radix(value, 16).unwrap_or(0);
            }
            ("notify", Some(timer)) => notify(timer, value, process)?,
            ("ClockID", Some(timer)) => timer.clock = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    for timer in &mut timers {
        let at = injector.put(0, &[0; 32])?;
        let args = [timer.id as u64, at, 0, 0, 0, 0];
        injector.must("timer_gettime", libc::SYS_timer_gettime, args)?;
        let words = words(&injector.get(0, 32)?);
        timer.interval_ns = words[0] * 1_000_000_000 + words[1];
        timer.left_ns = words[2] * 1_000_000_000 + words[3];
        let args = [timer.id as u64, 0, 0, 0, 0, 0];
        timer.overrun = injector.call(libc::SYS_timer_getoverrun, args)?.max(0) as i32;
    }
    Ok(timers)
}

fn new_timer(id: i32) -> PosixTimer {
    PosixTimer {
        id,
        clock: 0,
        notify: 0,
        signal: 0,
        value: 0,
        tid: 0,
        left_ns: 0,
        interval_ns: 0,
        overrun: 0,
    }
}

/// `signal/pid.123`, `none/pid.123` or `signal/tid.124`, in the host's numbering.
fn notify(timer: &mut PosixTimer, value: &str, process: &FrozenProcess) -> Result<()> {
    let (kind, target) = value.split_once('/').unwrap_or((value, ""));
    timer.notify = match kind {
        "signal" | "thread" => libc::SIGEV_SIGNAL,
        "none" => libc::SIGEV_NONE,
        other => return Err(refuse(process, format!("a timer notifies by {other}"))),
    };
    if let Some(tid) = target.strip_prefix("tid.").and_then(|tid| tid.parse::<i32>().ok()) {
        let live = process.live.as_ref();
        let own = live.and_then(|live| live.threads.iter().find(|thread| thread.tid == tid));
        timer.notify = libc::SIGEV_THREAD_ID;
        timer.tid = own
            .map(|thread| thread.own_tid)
            .ok_or_else(|| refuse(process, "a timer notifies a thread that is gone"))?;
    }
    Ok(())
}

pub fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8"))).collect()
}

/// What the kernel remembers of the address space. `brk` needs a call in the process itself.
pub fn mm_fields(pid: i32) -> Result<MmFields> {
    let stat = Stat::parse(&proc::read_text(pid, "stat")?)
        .ok_or_else(|| Error::refused(pid, "its stat file is unreadable"))?;
    mm_fields_of(pid, &stat)
}

/// As above, given the process's stat file.
pub fn mm_fields_of(pid: i32, stat: &Stat) -> Result<MmFields> {
    let field = |number: usize| stat.field(number).unwrap_or(0);
    let auxv =
        std::fs::read(format!("/proc/{pid}/auxv")).doing(|| format!("read auxv of {pid}"))?;
    Ok(MmFields {
        start_code: field(26),
        end_code: field(27),
        start_stack: field(28),
        start_data: field(45),
        end_data: field(46),
        start_brk: field(47),
        brk: field(47),
        arg_start: field(48),
        arg_end: field(49),
        env_start: field(50),
        env_end: field(51),
        auxv: words(&auxv),
        vdso: Vec::new(),
        vdso_hash: None,
    })
}
