//! Signal handlers, limits and the like, read from the source in the pause.
//!
//! A twin has them too, but by then it is among the processes of a running source, and nothing may
//! run in it.

use super::call_batch::{CallBatch, CallResults, QueuedCall};
use super::process::mm_fields_of;
use crate::error::{Error, ErrorContext, Result};
use crate::freeze::FrozenProcess;
use crate::proc::{self, ProcStatus};
use stasis_image::model::*;
use stasis_sys::{libc, process as sysprocess};

/// The data read from one process.
pub struct ProcessQueries {
    brk: QueuedCall,
    dumpable: QueuedCall,
    huge_pages_disabled: QueuedCall,
    handlers: Vec<(i32, QueuedCall)>,
}

impl ProcessQueries {
    pub fn ask(status: &ProcStatus, questions: &mut CallBatch) -> ProcessQueries {
        const SIZE: usize = 32;
        let mut option =
            |number: i32| questions.call(libc::SYS_prctl, [number as u64, 0, 0, 0, 0, 0]);
        let dumpable = option(libc::PR_GET_DUMPABLE);
        let huge_pages_disabled = option(libc::PR_GET_THP_DISABLE);
        let brk = questions.call(libc::SYS_brk, [0; 6]);
        let mut handler = |signal: i32| {
            let args = [signal as u64, 0, 0, 8, 0, 0];
            (signal, questions.fill(libc::SYS_rt_sigaction, args, 2, SIZE))
        };
        let handlers = signals(status, "SigCgt").map(&mut handler).collect();
        ProcessQueries { brk, dumpable, huge_pages_disabled, handlers }
    }

    pub fn read(
        self,
        process: &FrozenProcess,
        answers: &CallResults,
        live: &mut LiveProcess,
    ) -> Result<()> {
        let FrozenProcess { pid, stat, status, .. } = process;
        let pid = *pid;
        live.mm = mm_fields_of(pid, stat)?;
        live.mm.brk = answers.result(self.brk) as u64;
        live.dumpable = u32::try_from(answers.result(self.dumpable))
            .map_err(|_| Error::refused(pid, "it does not tell whether it may be dumped"))?;
        live.huge_pages_disabled = answers.result(self.huge_pages_disabled) > 0;
        live.actions = self.actions(status, answers)?;
        live.umask =
            status.text("Umask").and_then(|text| u32::from_str_radix(text, 8).ok()).unwrap_or(0o22);
        live.rlimits = rlimits(pid)?;
        live.personality =
            u32::from_str_radix(proc::read_text(pid, "personality")?.trim(), 16).unwrap_or(0);
        Ok(())
    }

    /// Signals that have a handler, or are ignored. A handler's flags are no affair of ours.
    fn actions(&self, status: &ProcStatus, answers: &CallResults) -> Result<Vec<SigAction>> {
        let handler = libc::SIG_IGN as u64;
        let ignore = |signal| SigAction { signal, handler, flags: 0, restorer: 0, mask: 0 };
        let mut actions: Vec<SigAction> = signals(status, "SigIgn").map(ignore).collect();
        for (signal, question) in &self.handlers {
            if answers.result(*question) != 0 {
                let source = std::io::Error::from_raw_os_error(libc::EINVAL);
                return Err(Error::Io { doing: "read signal handlers".into(), source });
            }
            let words = answers.words(*question);
            let [handler, flags, restorer, mask] = [words[0], words[1], words[2], words[3]];
            actions.push(SigAction { signal: *signal, handler, flags, restorer, mask });
        }
        actions.sort_unstable_by_key(|action| action.signal);
        Ok(actions)
    }
}

/// The signals of one of the sets that a status file shows.
fn signals(status: &ProcStatus, set: &str) -> impl Iterator<Item = i32> {
    let set = status.hex(set).unwrap_or(0);
    (1..=64).filter(move |signal| set >> (signal - 1) & 1 != 0)
}

fn rlimits(pid: i32) -> Result<Vec<(u64, u64)>> {
    (0..16)
        .map(|resource| {
            sysprocess::rlimit_of(pid, resource).doing(|| format!("read limits of {pid}"))
        })
        .collect()
}
