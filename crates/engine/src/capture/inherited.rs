//! State a fork inherits, read from the twin while the source runs on.
//!
//! The pause asks only for what a copy would not have: registers, timers, pending signals,
//! alternate stacks. Signal handlers, limits and the like are the same in the twin. The working
//! directory is too, but whether it still has its name was decided in the pause (`fds::cwd`).
//! Where no twin is made, all this is asked of the source itself, in the pause.

use super::process::{mm_fields_of, words};
use super::still::Still;
use crate::error::{Doing, Error, Result};
use crate::inject::{Injector, Site};
use crate::proc::{self, Stat, Status};
use stasis_image::model::*;
use stasis_sys::memory::ProcessMemory;
use stasis_sys::{libc, process as sysprocess};

pub fn read_all(stills: &[Still], processes: &mut [Process]) -> Result<()> {
    let twins = stills.iter().filter_map(Still::twin);
    for twin in twins {
        let process = processes.iter_mut().find(|process| process.pid == twin.own_pid);
        if let Some(Process { state: ProcessState::Live(live), .. }) = process {
            let pid = twin.pid;
            let status = Status::parse(&proc::read_text(pid, "status")?);
            let stat = Stat::parse(&proc::read_text(pid, "stat")?);
            let stat = stat.ok_or_else(|| Error::refused(pid, "its stat file is unreadable"))?;
            read(&Asked { pid, stat: &stat, status: &status }, &twin.memory, twin.site, live)?;
        }
    }
    Ok(())
}

/// Whom to ask: a twin, or the source.
pub struct Asked<'a> {
    pub pid: i32,
    pub stat: &'a Stat,
    pub status: &'a Status,
}

pub fn read(asked: &Asked, memory: &ProcessMemory, site: Site, live: &mut Live) -> Result<()> {
    let Asked { pid, stat, status } = *asked;
    let mut injector = Injector::new(pid, memory, site)?;
    live.mm = mm_fields_of(pid, stat)?;
    let ask = |option: i32| (libc::SYS_prctl, [option as u64, 0, 0, 0, 0, 0]);
    let brk = (libc::SYS_brk, [0; 6]);
    let (actions, answers) = actions(
        status,
        &mut injector,
        [brk, ask(libc::PR_GET_DUMPABLE), ask(libc::PR_GET_THP_DISABLE)],
    )?;
    injector.finish()?;
    live.mm.brk = answers[0] as u64;
    if answers[1] < 0 {
        return Err(Error::refused(pid, "it does not tell whether it may be dumped"));
    }
    live.dumpable = answers[1] as u32;
    live.huge_pages_disabled = answers[2] > 0;
    live.actions = actions;
    live.umask =
        status.text("Umask").and_then(|text| u32::from_str_radix(text, 8).ok()).unwrap_or(0o22);
    live.rlimits = rlimits(pid)?;
    live.personality =
        u32::from_str_radix(proc::read_text(pid, "personality")?.trim(), 16).unwrap_or(0);
    Ok(())
}

fn rlimits(pid: i32) -> Result<Vec<(u64, u64)>> {
    (0..16)
        .map(|resource| {
            sysprocess::rlimit_of(pid, resource).doing(|| format!("read limits of {pid}"))
        })
        .collect()
}

type Call = (i64, [u64; 6]);

/// Handlers of caught signals; ignored ones need no question, the rest are default. What else is
/// to be asked goes along with the first of them.
fn actions(
    status: &Status,
    injector: &mut Injector,
    others: [Call; 3],
) -> Result<(Vec<SigAction>, Vec<i64>)> {
    const SIZE: usize = 32;
    /// What is asked at one go, so that the answers fit the scratch memory.
    const TOGETHER: usize = 24;
    let caught = status.hex("SigCgt").unwrap_or(0);
    let ignored = status.hex("SigIgn").unwrap_or(0);
    let signals = |set: u64| (1..=64i32).filter(move |signal| set >> (signal - 1) & 1 != 0);
    let ignore = |signal| SigAction {
        signal,
        handler: libc::SIG_IGN as u64,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    let mut actions: Vec<SigAction> = signals(ignored).map(ignore).collect();
    let mut answers = injector.batch(&others)?;
    let asked: Vec<i32> = signals(caught & !ignored).collect();
    for some in asked.chunks(TOGETHER) {
        let at = injector.put(0, &[0; SIZE * TOGETHER])?;
        let question = |(index, signal): (usize, &i32)| {
            let to = at + (index * SIZE) as u64;
            (libc::SYS_rt_sigaction, [*signal as u64, 0, to, 8, 0, 0])
        };
        let calls: Vec<Call> = some.iter().enumerate().map(question).collect();
        answers.extend(injector.batch(&calls)?);
        let told = injector.get(0, SIZE * some.len())?;
        for (signal, told) in some.iter().zip(told.chunks_exact(SIZE)) {
            let words = words(told);
            let [handler, flags, restorer, mask] = [words[0], words[1], words[2], words[3]];
            actions.push(SigAction { signal: *signal, handler, flags, restorer, mask });
        }
    }
    if answers[others.len()..].iter().any(|answer| *answer != 0) {
        let source = std::io::Error::from_raw_os_error(libc::EINVAL);
        return Err(Error::Io { doing: "read signal handlers".into(), source });
    }
    actions.sort_unstable_by_key(|action| action.signal);
    answers.truncate(others.len());
    Ok((actions, answers))
}
