//! One process's kernel state, apart from memory and descriptors.

use super::call_batch::{CallBatch, CallResults, QueuedCall};
use super::inherited::ProcessQueries;
use super::threads::ThreadQueries;
use super::{refuse, threads};
use crate::error::{Error, ErrorContext, Result};
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
        ppid: own_ppid(process, tree)?,
        pgid: list("NSpgid"),
        sid: list("NSsid"),
        exit_signal: field(38),
        state,
    })
}

/// The parent's number inside the machine.
fn own_ppid(process: &FrozenProcess, tree: &Tree) -> Result<i32> {
    let parent = process.stat.field(4).unwrap_or(0) as i32;
    if parent == tree.walls.init.pid {
        return Ok(1);
    }
    let text = proc::read_text(parent, "status")?;
    proc::ProcStatus::parse(&text)
        .innermost("NSpid")
        .ok_or_else(|| refuse(process, "its parent has no number in the machine"))
}

/// State that only the source itself can report.
fn read_live(process: &FrozenProcess, live: &FrozenLive, tree: &Tree) -> Result<LiveProcess> {
    let leader = &live.threads[0];
    let mut timers = listed_timers(process)?;
    let mut questions = CallBatch::default();
    let asked = Asked::of(process, &timers, &mut questions);
    let asked_leader = ThreadQueries::of(&mut questions);
    let mut injector = Injector::new(leader.tid, &live.memory, live.site)?;
    let answers = questions.ask(&mut injector)?;
    injector.finish()?;
    asked.read_timers(&answers, &mut timers)?;
    let mut read = LiveProcess {
        exe: u32::MAX,
        threads: threads::read_all(process, live, tree, (&asked_leader, &answers))?,
        pending: pending(leader.tid, true)?,
        itimers: asked.itimers.map(|timer| itimer(answers.words(timer))),
        timers,
        oom_score_adj: proc::read_text(process.pid, "oom_score_adj")?.trim().parse().unwrap_or(0),
        child_subreaper: answers.words(asked.subreaper)[0] as u32 != 0,
        stopped: live.stopped.map(|signal| JobStop { signal, told: true }),
        ..LiveProcess::default()
    };
    asked.inherited.read(process, &answers, &mut read)?;
    Ok(read)
}

/// The data read from a process.
struct Asked {
    itimers: [QueuedCall; 3],
    subreaper: QueuedCall,
    timers: Vec<(QueuedCall, QueuedCall)>,
    inherited: ProcessQueries,
}

impl Asked {
    fn of(process: &FrozenProcess, timers: &[PosixTimer], questions: &mut CallBatch) -> Asked {
        let subreaper = [libc::PR_GET_CHILD_SUBREAPER as u64, 0, 0, 0, 0, 0];
        Asked {
            itimers: [0, 1, 2]
                .map(|which| questions.fill(libc::SYS_getitimer, [which, 0, 0, 0, 0, 0], 1, 32)),
            subreaper: questions.fill(libc::SYS_prctl, subreaper, 1, 8),
            timers: timers.iter().map(|timer| ask_timer(timer, questions)).collect(),
            inherited: ProcessQueries::ask(&process.status, questions),
        }
    }

    fn read_timers(&self, answers: &CallResults, timers: &mut [PosixTimer]) -> Result<()> {
        for (timer, (left, overrun)) in timers.iter_mut().zip(&self.timers) {
            let result = answers.result(*left);
            if result < 0 {
                let source = std::io::Error::from_raw_os_error(-result as i32);
                return Err(Error::Io { doing: format!("read timer {}", timer.id), source });
            }
            let words = answers.words(*left);
            timer.interval_ns = words[0] * 1_000_000_000 + words[1];
            timer.left_ns = words[2] * 1_000_000_000 + words[3];
            timer.overrun = answers.result(*overrun).max(0) as i32;
        }
        Ok(())
    }
}

/// Time left and interval, and how often it ran out unheard.
fn ask_timer(timer: &PosixTimer, questions: &mut CallBatch) -> (QueuedCall, QueuedCall) {
    let args = [timer.id as u64, 0, 0, 0, 0, 0];
    let left = questions.fill(libc::SYS_timer_gettime, args, 1, 32);
    (left, questions.call(libc::SYS_timer_getoverrun, args))
}

fn itimer(words: &[u64]) -> ITimer {
    ITimer {
        interval_us: words[0] * 1_000_000 + words[1],
        left_us: words[2] * 1_000_000 + words[3],
    }
}

pub fn pending(tid: i32, shared: bool) -> Result<Vec<SigInfo>> {
    let infos = ptrace::pending(tid, shared).doing(|| format!("read signals of {tid}"))?;
    Ok(infos.into_iter().map(SigInfo).collect())
}

/// POSIX timers, from `/proc/PID/timers` and timer_gettime.
fn listed_timers(process: &FrozenProcess) -> Result<Vec<PosixTimer>> {
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
            .ok_or_else(|| refuse(process, "a timer notifies a thread that has exited"))?;
    }
    Ok(())
}

pub fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8"))).collect()
}

/// The kernel's record of the address space. `brk` needs a call in the process itself.
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
