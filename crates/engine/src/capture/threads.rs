//! Threads: registers, signals, and other state the kernel keeps per thread.

use super::call_batch::{CallBatch, CallResults, QueuedCall};
use super::process::pending;
use super::refuse;
use crate::error::{ErrorContext, Result};
use crate::freeze::{ERESTART_RESTARTBLOCK, FrozenLive, FrozenProcess, FrozenThread, Restarts};
use crate::inject::Injector;
use crate::proc::ProcStatus;
use crate::registers;
use crate::tree::Tree;
use stasis_image::model::*;
use stasis_sandbox::Ids;
use stasis_sys::arch::UserRegs;
use stasis_sys::{libc, process as sysprocess, ptrace};

const PR_GET_TID_ADDRESS: u64 = 40;

/// The data read from a thread.
pub struct ThreadQueries {
    altstack: QueuedCall,
    clear_tid: QueuedCall,
    pdeathsig: QueuedCall,
    securebits: QueuedCall,
}

impl ThreadQueries {
    pub fn of(questions: &mut CallBatch) -> ThreadQueries {
        let mut option =
            |number: u64| questions.fill(libc::SYS_prctl, [number, 0, 0, 0, 0, 0], 1, 8);
        let clear_tid = option(PR_GET_TID_ADDRESS);
        let pdeathsig = option(libc::PR_GET_PDEATHSIG as u64);
        let securebits = [libc::PR_GET_SECUREBITS as u64, 0, 0, 0, 0, 0];
        ThreadQueries {
            altstack: questions.fill(libc::SYS_sigaltstack, [0; 6], 1, 24),
            clear_tid,
            pdeathsig,
            securebits: questions.call(libc::SYS_prctl, securebits),
        }
    }

    fn is_answered(&self, answers: &CallResults) -> bool {
        let all = [self.altstack, self.clear_tid, self.pdeathsig, self.securebits];
        all.iter().all(|question| answers.result(*question) >= 0)
    }
}

/// The threads of a process; `leader` is what its first one answered.
pub fn read_all(
    process: &FrozenProcess,
    live: &FrozenLive,
    tree: &Tree,
    leader: (&ThreadQueries, &CallResults),
) -> Result<Vec<Thread>> {
    live.threads
        .iter()
        .enumerate()
        .map(|(index, thread)| {
            let regs = restartable(thread.tid, &thread.regs, &tree.memo().restarts);
            let read = |told| read(process, thread, regs, tree.walls.ids(), told);
            if index == 0 {
                return read(leader);
            }
            let mut questions = CallBatch::default();
            let asked = ThreadQueries::of(&mut questions);
            let mut injector = Injector::new(thread.tid, &live.memory, live.site)?;
            let answers = questions.ask(&mut injector)?;
            injector.finish()?;
            read((&asked, &answers))
        })
        .collect()
}

fn read(
    process: &FrozenProcess,
    thread: &FrozenThread,
    regs: Registers,
    ids: Ids,
    (asked, answers): (&ThreadQueries, &CallResults),
) -> Result<Thread> {
    let tid = thread.tid;
    let doing = || format!("read thread {tid}");
    let (policy, priority) = sysprocess::schedule_of(tid).doing(doing)?;
    if !asked.is_answered(answers) {
        return Err(refuse(process, "a thread does not tell its state"));
    }
    let altstack = answers.words(asked.altstack);
    let securebits = answers.result(asked.securebits) as u32;
    Ok(Thread {
        tid: thread.own_tid,
        name: thread.status.text("Name").unwrap_or("").to_owned(),
        regs,
        xstate: ptrace::xstate(tid).doing(doing)?,
        sigmask: ptrace::sigmask(tid).doing(doing)?,
        altstack: AltStack { sp: altstack[0], flags: altstack[1] as u32, size: altstack[2] },
        clear_tid: answers.words(asked.clear_tid)[0],
        robust_list: sysprocess::robust_list_of(tid).doing(doing)?,
        rseq: thread.rseq.map(|area| Rseq {
            address: area.address,
            length: area.length,
            signature: area.signature,
        }),
        pending: pending(tid, false)?,
        creds: credentials(&thread.status, securebits, ids)
            .ok_or_else(|| refuse(process, "it has an id that is not of this machine"))?,
        no_new_privs: thread.status.number("NoNewPrivs") == Some(1),
        pdeathsig: answers.words(asked.pdeathsig)[0] as u32 as i32,
        nice: sysprocess::nice_of(tid).unwrap_or(0),
        policy,
        priority,
        timer_slack_ns: timer_slack(tid),
        affinity: sysprocess::affinity_of(tid).doing(doing)?,
    })
}

fn timer_slack(tid: i32) -> u64 {
    let text = crate::proc::read_text(tid, "timerslack_ns").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// In the machine's own ids; `None` if one is not.
fn credentials(status: &ProcStatus, securebits: u32, ids: Ids) -> Option<Credentials> {
    let inside = |key: &str| -> Option<Vec<u32>> {
        status.list(key).into_iter().map(|id| ids.inside(id as u32)).collect()
    };
    let four = |key: &str| <[u32; 4]>::try_from(inside(key)?).ok();
    Some(Credentials {
        uids: four("Uid")?,
        gids: four("Gid")?,
        groups: inside("Groups")?,
        inheritable: status.hex("CapInh").unwrap_or(0),
        permitted: status.hex("CapPrm").unwrap_or(0),
        effective: status.hex("CapEff").unwrap_or(0),
        bounding: status.hex("CapBnd").unwrap_or(0),
        ambient: status.hex("CapAmb").unwrap_or(0),
        securebits,
    })
}

const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;

/// Registers as the thread must get them back: an interrupted system call is made again.
///
/// The kernel would normally continue a call that waited with a relative time (-516) from its own
/// record, which is not part of an image. Waits with an absolute deadline are exact when repeated.
/// nanosleep wrote the time left to its second argument when it was stopped: if that is also its
/// first argument, repeating continues; otherwise EINTR tells the caller to read it there. Other
/// waits start over and so last at least as long as requested.
fn restartable(tid: i32, regs: &UserRegs, restarts: &Restarts) -> Registers {
    let mut regs = registers::captured(regs);
    if (regs.orig_rax as i64) < 0 {
        return regs;
    }
    let continued = regs.orig_rax as i64 == libc::SYS_restart_syscall;
    if continued && regs.rax as i64 == ERESTART_RESTARTBLOCK {
        if let Some((call, _)) = restarts.get(&tid).filter(|(_, rip)| *rip == regs.rip) {
            regs.orig_rax = *call;
        } else {
            // interrupted by another process before us: the original call is unknown
            regs.rax = -i64::from(libc::EINTR) as u64;
            regs.orig_rax = u64::MAX;
            return regs;
        }
    }
    let repeat = match regs.rax as i64 {
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => true,
        ERESTART_RESTARTBLOCK => !has_separate_remainder(&regs),
        _ => return regs,
    };
    if repeat {
        regs.rax = regs.orig_rax;
        regs.rip -= 2;
    } else {
        regs.rax = -i64::from(libc::EINTR) as u64;
    }
    regs.orig_rax = u64::MAX;
    regs
}

fn has_separate_remainder(regs: &Registers) -> bool {
    match regs.orig_rax as i64 {
        libc::SYS_nanosleep => regs.rsi != 0 && regs.rsi != regs.rdi,
        libc::SYS_clock_nanosleep => regs.r10 != 0 && regs.r10 != regs.rdx,
        _ => false,
    }
}
