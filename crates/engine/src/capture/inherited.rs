//! Signal handlers, limits and the like, asked of the source in the pause.
//!
//! A twin has them too, but it stands among the processes of a source that runs on by then, and
//! nothing is to run in it.

use super::process::{mm_fields_of, words};
use crate::error::{Doing, Error, Result};
use crate::freeze::FrozenProcess;
use crate::inject::Injector;
use crate::proc::{self, Status};
use stasis_image::model::*;
use stasis_sys::{libc, process as sysprocess};

pub fn read(process: &FrozenProcess, injector: &mut Injector, live: &mut Live) -> Result<()> {
    let FrozenProcess { pid, stat, status, .. } = process;
    let pid = *pid;
    live.mm = mm_fields_of(pid, stat)?;
    let ask = |option: i32| (libc::SYS_prctl, [option as u64, 0, 0, 0, 0, 0]);
    let brk = (libc::SYS_brk, [0; 6]);
    let (actions, answers) = actions(
        status,
        injector,
        [brk, ask(libc::PR_GET_DUMPABLE), ask(libc::PR_GET_THP_DISABLE)],
    )?;
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
    let mut answers = Vec::new();
    let asked: Vec<i32> = signals(caught & !ignored).collect();
    let (first, rest) = asked.split_at(asked.len().min(TOGETHER - others.len()));
    let mut ahead = others.to_vec();
    for some in [first].into_iter().chain(rest.chunks(TOGETHER)) {
        let at = injector.put(0, &[0; SIZE * TOGETHER])?;
        let question = |(index, signal): (usize, &i32)| {
            let to = at + (index * SIZE) as u64;
            (libc::SYS_rt_sigaction, [*signal as u64, 0, to, 8, 0, 0])
        };
        let mut calls: Vec<Call> = std::mem::take(&mut ahead);
        calls.extend(some.iter().enumerate().map(question));
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
