//! Priority, policy and processors of threads.

use crate::check;
use std::io;

pub fn nice_of(tid: i32) -> io::Result<i32> {
    // SAFETY: only asks, and gets its answer in the result: 20 - nice, so never -1 on success.
    let raw = check(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid) })?;
    Ok(20 - raw as i32)
}

/// A thread's scheduling policy and priority.
pub fn schedule_of(tid: i32) -> io::Result<(i32, i32)> {
    let mut priority = 0i32;
    // SAFETY: the parameter struct is one int, which outlives the call.
    unsafe {
        let policy = check(libc::syscall(libc::SYS_sched_getscheduler, tid))?;
        check(libc::syscall(libc::SYS_sched_getparam, tid, &raw mut priority))?;
        Ok((policy as i32, priority))
    }
}

/// Drops a real-time policy that this thread inherited.
pub fn be_ordinary() -> io::Result<()> {
    let priority = 0i32;
    let policy = libc::SCHED_OTHER;
    // SAFETY: the parameter struct is one int, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) })
        .map(drop)
}

/// Processors a thread may run on, as a bit mask without trailing zeros.
pub fn affinity_of(tid: i32) -> io::Result<Vec<u8>> {
    let mut mask = vec![0u8; 1024];
    // SAFETY: pointer and length describe the buffer.
    let len = check(unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid, mask.len(), mask.as_mut_ptr())
    })?;
    mask.truncate(len as usize);
    Ok(mask)
}

/// Keeps this thread on one processor, or off it, until the value is dropped.
pub struct Pinned {
    before: Vec<u8>,
}

impl Pinned {
    pub fn to(processor: usize) -> io::Result<Pinned> {
        let before = affinity_of(0)?;
        let mut mask = vec![0u8; before.len()];
        match mask.get_mut(processor / 8) {
            Some(byte) => *byte = 1 << (processor % 8),
            None => return Err(io::Error::other("no such processor")),
        }
        set_own_affinity(&mask)?;
        Ok(Pinned { before })
    }

    /// An error where there is no other.
    pub fn away_from(processor: usize) -> io::Result<Pinned> {
        let before = affinity_of(0)?;
        let mut mask = before.clone();
        if let Some(byte) = mask.get_mut(processor / 8) {
            *byte &= !(1 << (processor % 8));
        }
        set_own_affinity(&mask)?;
        Ok(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = set_own_affinity(&self.before);
    }
}

fn set_own_affinity(mask: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe the mask.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, mask.len(), mask.as_ptr()) })
        .map(drop)
}
