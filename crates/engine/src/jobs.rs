//! Loading the registers of processes that come back stopped by job control.
//!
//! Such a process stands still on our own pages, where it sent itself the signal. Each of its
//! threads is made to load its frame, one instruction, and is let go: the kernel stops it again
//! before it runs, now as the program it is. If anything fails the tree is ended.

use crate::error::{Doing, Error, Result};
use crate::inject;
use crate::plan::StoppedThread;
use crate::proc::{self, Stat, Status};
use stasis_sys::libc;
use stasis_sys::ptrace::{self, Stop};
use std::collections::HashMap;
use std::time::{Duration, Instant};

pub fn load(init: i32, threads: &[StoppedThread]) -> Result<()> {
    let numbers = numbers(init)?;
    for thread in threads {
        let tid = *numbers.get(&thread.tid).ok_or(Error::Gone)?;
        await_stop(tid)?;
        load_one(tid, thread).doing(|| format!("load stopped thread {}", thread.tid))?;
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
            let status = Status::parse(&proc::read_text(pid, &format!("task/{tid}/status"))?);
            numbers.extend(status.innermost("NSpid").map(|own| (own, tid)));
        }
        processes.extend(proc::children(pid)?);
    }
    Ok(numbers)
}

/// Nobody who could continue it runs yet.
fn await_stop(tid: i32) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(10);
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

fn load_one(tid: i32, thread: &StoppedThread) -> std::io::Result<()> {
    ptrace::seize(tid, 0)?;
    expect(tid, |stop| matches!(stop, Stop::Group(_)))?;
    let mut regs = ptrace::regs(tid)?;
    regs.rip = inject::own_instruction();
    regs.rsp = thread.frame;
    regs.rax = libc::SYS_rt_sigreturn as u64;
    // no call is under way any more that could be made again
    regs.orig_rax = u64::MAX;
    ptrace::set_regs(tid, &regs)?;
    ptrace::step(tid)?;
    expect(tid, |stop| stop == Stop::Signal(libc::SIGTRAP))?;
    ptrace::set_sigmask(tid, thread.sigmask)?;
    ptrace::detach(tid, 0)
}

fn expect(tid: i32, wanted: impl Fn(Stop) -> bool) -> std::io::Result<()> {
    match ptrace::wait_stop(tid)? {
        stop if wanted(stop) => Ok(()),
        other => Err(std::io::Error::other(format!("it stopped for {other:?}"))),
    }
}
