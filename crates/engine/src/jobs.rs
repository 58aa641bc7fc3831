//! Loading the registers of processes that come back stopped by job control.
//!
//! Such a process is stopped on our own pages, where it sent itself the signal. Each of its threads
//! loads its frame, one instruction, and is resumed: the kernel stops it again before it runs, now
//! as the program it is. The program's own filters are installed before that, for all of its
//! threads at once. If anything fails, the tree is ended.

use crate::error::{Error, ErrorContext, Result};
use crate::inject;
use crate::plan::{self, StoppedThread};
use crate::proc::{self, ProcStatus, Stat};
use stasis_sys::alarm::Alarm;
use stasis_sys::arch::UserRegs;
use stasis_sys::libc;
use stasis_sys::ptrace::{self, StopReason};
use std::collections::HashMap;
use std::time::{Duration, Instant};

pub fn load(init: i32, threads: &[StoppedThread]) -> Result<()> {
    let numbers = numbers(init)?;
    let alarm = Alarm::set(PATIENCE).doing(|| "set an alarm".into())?;
    for thread in threads {
        let tid = *numbers.get(&thread.tid).ok_or(Error::Gone)?;
        await_stop(tid)?;
        load_one(tid, thread, &alarm).doing(|| format!("load stopped thread {}", thread.tid))?;
        await_stop(tid)?;
    }
    Ok(())
}

/// The host's number of every thread below an init, by the machine's.
fn numbers(init: i32) -> Result<HashMap<i32, i32>> {
    let mut numbers = HashMap::new();
    let mut processes = proc::children(init)?;
    while let Some(pid) = processes.pop() {
        for tid in proc::threads(pid)? {
            let status = ProcStatus::parse(&proc::read_text(pid, &format!("task/{tid}/status"))?);
            numbers.extend(status.innermost("NSpid").map(|own| (own, tid)));
        }
        processes.extend(proc::children(pid)?);
    }
    Ok(numbers)
}

const PATIENCE: Duration = Duration::from_secs(10);

/// No process that could continue it runs yet.
fn await_stop(tid: i32) -> Result<()> {
    if stands_within(tid, PATIENCE) {
        return Ok(());
    }
    let what = format!("thread {tid} of the host does not stop as it had been stopped");
    Err(Error::Unfit(what))
}

/// Whether a thread is stopped by job control, or will be in this time.
pub fn stands_within(tid: i32, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        let text = proc::read_text(tid, "stat").unwrap_or_default();
        if Stat::parse(&text).is_some_and(|stat| stat.state == 'T') {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// The machine's filter allows these calls; the program's own may not, and is suspended. The kernel
/// does not divert such a thread: its rseq area was registered, and so cleared, just before.
fn load_one(tid: i32, thread: &StoppedThread, alarm: &Alarm) -> std::io::Result<()> {
    let through = if thread.own_filters { ptrace::OPT_SUSPEND_SECCOMP } else { 0 };
    ptrace::seize(tid, through).or_else(|_| ptrace::seize(tid, 0))?;
    match ptrace::wait_stop(tid, alarm)? {
        StopReason::Group(_) => {}
        other => return Err(unexpected(other)),
    }
    for header in &thread.filters {
        let [operation, flags, header] = plan::install_arguments(*header);
        let set = |regs: &mut UserRegs| (regs.rdi, regs.rsi, regs.rdx) = (operation, flags, header);
        call(tid, libc::SYS_seccomp, set, alarm)?;
        if ptrace::regs(tid)?.rax != 0 {
            return Err(std::io::Error::other("a filter could not be installed"));
        }
    }
    call(tid, libc::SYS_rt_sigreturn, |regs| regs.rsp = thread.frame, alarm)?;
    ptrace::set_sigmask(tid, thread.sigmask)?;
    ptrace::detach(tid, 0)
}

/// Makes one call on our own pages.
fn call(
    tid: i32,
    number: i64,
    set: impl FnOnce(&mut UserRegs),
    alarm: &Alarm,
) -> std::io::Result<()> {
    let mut regs = ptrace::regs(tid)?;
    regs.rip = inject::own_instruction();
    regs.rax = number as u64;
    // no call is under way any more that could be made again
    regs.orig_rax = u64::MAX;
    set(&mut regs);
    ptrace::set_regs(tid, &regs)?;
    loop {
        ptrace::step(tid)?;
        match ptrace::wait_stop(tid, alarm)? {
            StopReason::Signal(libc::SIGTRAP) => return Ok(()),
            // it may report once more that it is stopped, before it runs
            StopReason::Group(_) if !alarm.is_over() => {}
            other => return Err(unexpected(other)),
        }
    }
}

fn unexpected(stop: StopReason) -> std::io::Error {
    std::io::Error::other(format!("it stopped for {stop:?}"))
}
