//! Stops by job control: whether the parent knows of them.
//!
//! A parent that waits with WUNTRACED is notified once. Only the kernel knows whether it was, and
//! it answers only the parent, so the parent is made to query without consuming the answer.

use super::refuse;
use crate::error::Result;
use crate::freeze::Frozen;
use crate::inject::Injector;
use stasis_image::model::*;
use stasis_sys::libc;

pub fn ask_parents(frozen: &Frozen, processes: &mut [Process]) -> Result<()> {
    for process in processes {
        let (pid, ppid) = (process.pid, process.ppid);
        let ProcessState::Live(live) = &mut process.state else { continue };
        if let Some(stop) = &mut live.stopped {
            stop.told = is_told(frozen, pid, ppid)?;
        }
    }
    Ok(())
}

/// An init that belongs to the sandbox does not wait for stops: it counts as notified.
fn is_told(frozen: &Frozen, pid: i32, ppid: i32) -> Result<bool> {
    let Some(parent) = frozen.processes.iter().find(|process| process.own_pid == ppid) else {
        return Ok(true);
    };
    let gone = || refuse(parent, format!("it has ended and has a child {pid}"));
    let live = parent.live.as_ref().ok_or_else(gone)?;
    let mut injector = Injector::new(live.threads[0].tid, &live.memory, live.site)?;
    let info = injector.put(0, &[0; 128])?;
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let ask = [libc::P_PID as u64, pid as u64, info, flags as u64, 0, 0];
    injector.must("ask for a stopped child", libc::SYS_waitid, ask)?;
    let answer = injector.get(0, 4)?;
    injector.finish()?;
    Ok(answer.iter().all(|byte| *byte == 0))
}
