//! Where a stopped process can be made to call: an instruction, and memory to pass.

use super::SYSCALL;
use crate::error::{Error, ErrorContext, Result};
use crate::rseq;
use stasis_spawner::layout;
use stasis_sys::PAGE;
use stasis_sys::arch::{self, UserRegs};
use stasis_sys::memory::{ProcessMemory, Vmas};
use std::time::{Duration, Instant};

/// Where a process can be made to call, and memory it can pass.
#[derive(Debug, Clone, Copy)]
pub struct InjectionSite {
    pub(super) instruction: u64,
    pub(super) scratch: u64,
    /// Our interpreter is there, unchanged: several calls can be made at one go.
    pub(super) interpreter: bool,
    /// The program has filters of its own, which may refuse our calls.
    pub(super) suspend: bool,
    /// When all calls in a pause must have ended.
    until: Option<Instant>,
}

impl InjectionSite {
    /// Finds a site in a stopped process, given one of its threads' registers and the rseq areas of
    /// all: what we write must not be where the kernel looks for a sequence.
    pub fn find(
        pid: i32,
        memory: &ProcessMemory,
        regs: &UserRegs,
        areas: &[rseq::RseqArea],
    ) -> Result<InjectionSite> {
        let vmas = Vmas::open(pid).doing(|| format!("open the mappings of {pid}"))?;
        let runs =
            |address: &u64| vmas.at(*address).is_some_and(|vma| vma.executable && !vma.shared);
        let instruction = interpreter_site(memory)
            .filter(runs)
            .or_else(|| at(memory, regs.rip.wrapping_sub(2)).filter(runs))
            .or_else(|| vdso_site(pid, memory).filter(runs))
            .or_else(|| mapped_site(pid, memory))
            .ok_or_else(|| Error::refused(pid, "no system call instruction to borrow"))?;
        let is_free = |page: &u64| !areas.iter().any(|area| area.touches(*page, PAGE));
        let stack = regs.rsp & !(PAGE - 1);
        // a write from outside would succeed where one by the process itself would not
        let usable = vmas.at(stack).is_some_and(|vma| vma.writable && !vma.shared);
        let scratch = Some(stack).filter(is_free).filter(|_| usable);
        let scratch = scratch
            .or_else(|| writable_page(pid, is_free))
            .ok_or_else(|| Error::refused(pid, "no writable memory to borrow"))?;
        let interpreter = runs(&layout::CODE) && holds_interpreter(memory);
        Ok(InjectionSite { instruction, scratch, interpreter, suspend: false, until: None })
    }

    /// The same in a process with filters of its own, or without.
    pub fn under(self, own_filters: bool) -> InjectionSite {
        InjectionSite { suspend: own_filters, ..self }
    }

    /// The same, for calls that end by then.
    pub fn until(self, end: Instant) -> InjectionSite {
        InjectionSite { until: Some(end), ..self }
    }

    /// How long one round of calls may take, which is at most `limit`.
    pub(super) fn left(&self, limit: Duration) -> Duration {
        let left = self.until.map(|end| end.saturating_duration_since(Instant::now()));
        left.map_or(limit, |left| left.min(limit))
    }
}

/// Whether the interpreter is where it belongs, unchanged.
pub fn holds_interpreter(memory: &ProcessMemory) -> bool {
    let code = arch::interpreter_code();
    let mut bytes = vec![0; code.len()];
    memory.read(layout::CODE, &mut bytes).is_ok() && bytes == code
}

pub(super) fn at(memory: &ProcessMemory, address: u64) -> Option<u64> {
    let mut bytes = [0; 2];
    memory.read(address, &mut bytes).ok()?;
    (bytes == SYSCALL).then_some(address)
}

/// Our own page, in a process that was restored.
fn interpreter_site(memory: &ProcessMemory) -> Option<u64> {
    at(memory, own_instruction())
}

/// Where our interpreter makes its calls.
pub fn own_instruction() -> u64 {
    let offset = arch::interpreter_code().windows(2).position(|pair| pair == SYSCALL);
    layout::CODE + offset.expect("the interpreter makes system calls") as u64
}

fn vdso_site(pid: i32, memory: &ProcessMemory) -> Option<u64> {
    let auxv = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let words: Vec<u64> =
        auxv.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().expect("8"))).collect();
    let base =
        words.chunks_exact(2).find(|pair| pair[0] == 33 || (pair[0] == 1 && pair[1] != 0))?;
    search(memory, base[1], 2 * PAGE)
}

fn mapped_site(pid: i32, memory: &ProcessMemory) -> Option<u64> {
    let maps = crate::proc::parse_maps(&crate::proc::read_text(pid, "maps").ok()?)?;
    maps.iter()
        .filter(|map| map.prot & 5 == 5 && !map.shared)
        .find_map(|map| search(memory, map.start, (map.end - map.start).min(4 << 20)))
}

fn search(memory: &ProcessMemory, start: u64, len: u64) -> Option<u64> {
    let mut bytes = vec![0; len as usize];
    memory.read(start, &mut bytes).ok()?;
    let offset = bytes.windows(2).position(|pair| pair == SYSCALL)?;
    Some(start + offset as u64)
}

fn writable_page(pid: i32, is_free: impl Fn(&u64) -> bool) -> Option<u64> {
    let maps = crate::proc::parse_maps(&crate::proc::read_text(pid, "maps").ok()?)?;
    let writable = maps.iter().filter(|map| map.prot & 3 == 3 && !map.shared);
    writable.map(|map| map.start).find(is_free)
}
