//! Restartable sequences of threads that stand still.
//!
//! A thread names a range of its code (`rseq_cs`). When the kernel resumes it inside that range
//! after a stop, it diverts the thread to an address of the program's choosing and clears the
//! range. A thread that runs for us must not be diverted, so we do beforehand what the kernel does
//! at the thread's next return to its program: a thread inside its range is moved to its handler,
//! and the range is cleared in any case. Nothing has to be restored afterwards, and the image
//! contains the result; registering the area again would have made the kernel clear the range
//! without a trace.

use crate::error::{Error, ErrorContext, Result};
use crate::freeze::ERESTART_RESTARTBLOCK;
use stasis_sys::arch::UserRegs;
use stasis_sys::memory::ProcessMemory;
use stasis_sys::{libc, ptrace};

/// Where `struct rseq` holds the address of a `struct rseq_cs`.
pub const POINTER_AT: u64 = 8;
/// The result of a system call that the kernel will repeat.
const RESTARTS: std::ops::RangeInclusive<i64> = -514..=-512;
const TOP: u64 = 1 << 47;

/// A thread's registration with the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RseqArea {
    pub address: u64,
    pub length: u32,
    pub signature: u32,
}

impl RseqArea {
    pub fn of(tid: i32) -> std::io::Result<Option<RseqArea>> {
        let (address, length, signature) = ptrace::rseq(tid)?;
        Ok((address != 0).then_some(RseqArea { address, length, signature }))
    }

    /// Whether it shares a byte with a range.
    pub fn touches(&self, start: u64, len: u64) -> bool {
        let end = self.address.saturating_add(self.length.into());
        self.address < start.saturating_add(len) && start < end
    }

    pub fn pointer(&self, memory: &ProcessMemory) -> std::io::Result<u64> {
        let mut bytes = [0; 8];
        memory.read(self.address + POINTER_AT, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// A range of code and where a thread stopped in it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sequence {
    start: u64,
    len: u64,
    abort: u64,
}

impl Sequence {
    /// Checked as the kernel does, which ends a process whose sequence makes no sense.
    fn read(pointer: u64, area: &RseqArea, memory: &ProcessMemory) -> Option<Sequence> {
        let mut bytes = [0; 32];
        memory.read(pointer, &mut bytes).ok()?;
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8"));
        // version and flags are both zero in all that programs use today
        let [0, start, len, abort] = [word(0), word(8), word(16), word(24)] else { return None };
        let mut signature = [0; 4];
        memory.read(abort.checked_sub(4)?, &mut signature).ok()?;
        let fine = start < TOP
            && abort < TOP
            && start.checked_add(len)? <= TOP
            && abort.wrapping_sub(start) >= len
            && u32::from_ne_bytes(signature) == area.signature;
        fine.then_some(Sequence { start, len, abort })
    }

    fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.len
    }

    /// The kernel's change to a thread's registers; `None` if it leaves them.
    fn leave(&self, regs: &UserRegs) -> Option<UserRegs> {
        let mut regs = *regs;
        let in_call = regs.orig_rax as i64 >= 0;
        let result = regs.rax as i64;
        // a call to be repeated is set up for that before the sequence is read
        if in_call && (RESTARTS.contains(&result) || result == ERESTART_RESTARTBLOCK) {
            let again = result == ERESTART_RESTARTBLOCK;
            regs.rax = if again { libc::SYS_restart_syscall as u64 } else { regs.orig_rax };
            regs.rip -= 2;
        }
        if !self.holds(regs.rip) {
            return None;
        }
        (regs.rip, regs.orig_rax) = (self.abort, u64::MAX);
        Some(regs)
    }
}

/// Ends the sequence a stopped thread is in, if it is in one. All others of its machine must stand
/// still, or they could begin another.
pub fn leave(tid: i32, area: &RseqArea, memory: &ProcessMemory, regs: &mut UserRegs) -> Result<()> {
    let unreadable = || Error::refused(tid, "its restartable sequences cannot be read");
    let pointer = area.pointer(memory).map_err(|_| unreadable())?;
    if pointer == 0 {
        return Ok(());
    }
    let sequence = Sequence::read(pointer, area, memory).ok_or_else(|| {
        Error::refused(tid, "its restartable sequence is none, and the kernel will end it for that")
    })?;
    memory.write(area.address + POINTER_AT, &[0; 8]).map_err(|_| unreadable())?;
    if let Some(left) = sequence.leave(regs) {
        ptrace::set_regs(tid, &left).doing(|| format!("set registers of thread {tid}"))?;
        *regs = left;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE: Sequence = Sequence { start: 0x1000, len: 0x100, abort: 0x9000 };

    fn regs(rip: u64, rax: i64, orig_rax: i64) -> UserRegs {
        UserRegs { rip, rax: rax as u64, orig_rax: orig_rax as u64, ..ptrace::zeroed_regs() }
    }

    #[test]
    fn a_thread_outside_its_sequence_stays_where_it_is() {
        assert!(SEQUENCE.leave(&regs(0x0fff, 1, -1)).is_none());
        assert!(SEQUENCE.leave(&regs(0x1100, 1, -1)).is_none());
    }

    #[test]
    fn a_thread_inside_is_sent_to_the_handler() {
        let left = SEQUENCE.leave(&regs(0x10ff, 5, -1)).unwrap();
        assert_eq!((left.rip, left.rax), (0x9000, 5));
    }

    #[test]
    fn a_call_inside_is_not_made_again_at_the_handler() {
        let left = SEQUENCE.leave(&regs(0x1101, -512, 7)).unwrap();
        assert_eq!((left.rip, left.rax, left.orig_rax), (0x9000, 7, u64::MAX));
        assert!(SEQUENCE.leave(&regs(0x1102, -512, 7)).is_none(), "the call itself is outside");
    }
}
