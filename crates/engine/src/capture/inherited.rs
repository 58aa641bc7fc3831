//! State a fork inherits, read from the twin while the source runs on.
//!
//! The pause asks only for what a copy would not have: registers, timers, pending signals,
//! alternate stacks. Signal handlers, limits and the like are the same in the twin. The working
//! directory is too, but whether it still has its name was decided in the pause (`fds::cwd`).

use super::process::{mm_fields, words};
use super::twin::Twin;
use crate::error::{Doing, Result};
use crate::inject::Injector;
use crate::proc::{self, Status};
use stasis_image::model::*;
use stasis_sys::{libc, process as sysprocess};

pub fn read_all(twins: &[Twin], processes: &mut [Process]) -> Result<()> {
    for twin in twins {
        let process = processes.iter_mut().find(|process| process.pid == twin.own_pid);
        if let Some(Process { state: ProcessState::Live(live), .. }) = process {
            read(twin, live)?;
        }
    }
    Ok(())
}

fn read(twin: &Twin, live: &mut Live) -> Result<()> {
    let pid = twin.pid;
    let status = Status::parse(&proc::read_text(pid, "status")?);
    let mut injector = Injector::new(pid, &twin.memory, twin.site)?;
    live.mm = mm_fields(pid)?;
    live.mm.brk = injector.must("brk", libc::SYS_brk, [0; 6])? as u64;
    live.actions = actions(&status, &mut injector)?;
    let dumpable = [libc::PR_GET_DUMPABLE as u64, 0, 0, 0, 0, 0];
    live.dumpable = injector.must("dumpable", libc::SYS_prctl, dumpable)? as u32;
    let huge = [libc::PR_GET_THP_DISABLE as u64, 0, 0, 0, 0, 0];
    live.huge_pages_disabled = injector.call(libc::SYS_prctl, huge)? > 0;
    injector.finish()?;
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

/// Handlers of caught signals; ignored ones need no question, the rest are default.
fn actions(status: &Status, injector: &mut Injector) -> Result<Vec<SigAction>> {
    let caught = status.hex("SigCgt").unwrap_or(0);
    let ignored = status.hex("SigIgn").unwrap_or(0);
    let mut actions = Vec::new();
    for signal in 1..=64 {
        let bit = 1u64 << (signal - 1);
        if ignored & bit != 0 {
            let ignore = libc::SIG_IGN as u64;
            actions.push(SigAction { signal, handler: ignore, flags: 0, restorer: 0, mask: 0 });
        } else if caught & bit != 0 {
            let at = injector.put(0, &[0; 32])?;
            let args = [signal as u64, 0, at, 8, 0, 0];
            injector.must("sigaction", libc::SYS_rt_sigaction, args)?;
            let words = words(&injector.get(0, 32)?);
            actions.push(SigAction {
                signal,
                handler: words[0],
                flags: words[1],
                restorer: words[2],
                mask: words[3],
            });
        }
    }
    Ok(actions)
}
