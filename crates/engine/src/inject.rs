//! Making a stopped thread perform system calls for us.
//!
//! A thread is pointed at a `syscall` instruction that is already in its memory and stepped over
//! it; where our interpreter's page is unchanged, it makes several calls before it stops again.
//! Registers, signal mask and the few bytes of scratch memory are put back afterwards, also when
//! something failed: a refused call never ends the target.
//!
//! Nothing the target holds is trusted: the two bytes of the instruction are read before use,
//! one instruction runs and no more, and all other threads of the process are stopped.

use crate::error::{Doing, Error, Result};
use stasis_spawner::layout;
use stasis_spawner::program::Program;
use stasis_sys::arch::{self, UserRegs};
use stasis_sys::memory::{ProcessMemory, Vmas};
use stasis_sys::ptrace::{self, Stop};
use stasis_sys::{PAGE, libc};

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const SCRATCH_LEN: usize = PAGE as usize;
/// All but the SIGTRAP that ends a step: the kernel takes away the handler of a signal that it must
/// deliver and finds blocked.
const BLOCKED: u64 = !(1 << (libc::SIGTRAP - 1));

/// Where a process can be made to call, and memory it can pass.
#[derive(Debug, Clone, Copy)]
pub struct Site {
    instruction: u64,
    scratch: u64,
    /// Our interpreter is there, unchanged: several calls can be made at one go.
    interpreter: bool,
}

impl Site {
    /// Finds a site in a stopped process, given one of its threads' registers.
    pub fn find(pid: i32, memory: &ProcessMemory, regs: &UserRegs) -> Result<Site> {
        let vmas = Vmas::open(pid).doing(|| format!("open the mappings of {pid}"))?;
        let runs = |address: &u64| vmas.at(*address).is_some_and(|vma| vma.executable);
        let instruction = interpreter_site(memory)
            .filter(runs)
            .or_else(|| at(memory, regs.rip.wrapping_sub(2)).filter(runs))
            .or_else(|| vdso_site(pid, memory).filter(runs))
            .or_else(|| mapped_site(pid, memory))
            .ok_or_else(|| Error::refused(pid, "no system call instruction to borrow"))?;
        let stack = regs.rsp & !(PAGE - 1);
        // a write from outside would succeed where one by the process itself would not
        let usable = vmas.at(stack).is_some_and(|vma| vma.writable && !vma.shared);
        let scratch = if usable { Some(stack) } else { writable_page(pid) };
        let scratch = scratch.ok_or_else(|| Error::refused(pid, "no writable memory to borrow"))?;
        let interpreter = runs(&layout::CODE) && holds_interpreter(memory);
        Ok(Site { instruction, scratch, interpreter })
    }
}

/// Whether the interpreter is where it belongs, unchanged.
pub fn holds_interpreter(memory: &ProcessMemory) -> bool {
    let code = arch::interpreter_code();
    let mut bytes = vec![0; code.len()];
    memory.read(layout::CODE, &mut bytes).is_ok() && bytes == code
}

/// Puts the interpreter into a new program, where restored ones have it.
pub fn install_interpreter(injector: &mut Injector) -> Result<()> {
    let prot = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
    let args = [layout::CODE, PAGE, prot, flags, u64::MAX, 0];
    injector.must("make room for the interpreter", libc::SYS_mmap, args)?;
    injector
        .memory
        .write(layout::CODE, arch::interpreter_code())
        .doing(|| "put the interpreter into a new program".into())
}

fn at(memory: &ProcessMemory, address: u64) -> Option<u64> {
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
        .filter(|map| map.prot & 5 == 5)
        .find_map(|map| search(memory, map.start, (map.end - map.start).min(4 << 20)))
}

fn search(memory: &ProcessMemory, start: u64, len: u64) -> Option<u64> {
    let mut bytes = vec![0; len as usize];
    memory.read(start, &mut bytes).ok()?;
    let offset = bytes.windows(2).position(|pair| pair == SYSCALL)?;
    Some(start + offset as u64)
}

fn writable_page(pid: i32) -> Option<u64> {
    let maps = crate::proc::parse_maps(&crate::proc::read_text(pid, "maps").ok()?)?;
    maps.iter().find(|map| map.prot & 3 == 3 && !map.shared).map(|map| map.start)
}

/// One thread under injection. `finish` (or drop) puts everything back.
pub struct Injector<'a> {
    tid: i32,
    site: Site,
    memory: &'a ProcessMemory,
    saved_regs: UserRegs,
    saved_mask: u64,
    saved_scratch: Option<Vec<u8>>,
}

impl<'a> Injector<'a> {
    pub fn new(tid: i32, memory: &'a ProcessMemory, site: Site) -> Result<Injector<'a>> {
        let prepare = || -> std::io::Result<(UserRegs, u64)> {
            let saved = (ptrace::regs(tid)?, ptrace::sigmask(tid)?);
            ptrace::set_sigmask(tid, BLOCKED)?;
            Ok(saved)
        };
        let (saved_regs, saved_mask) = prepare().doing(|| format!("prepare thread {tid}"))?;
        Ok(Injector { tid, site, memory, saved_regs, saved_mask, saved_scratch: None })
    }

    /// Puts bytes at `offset` of the scratch memory; their address.
    pub fn put(&mut self, offset: usize, bytes: &[u8]) -> Result<u64> {
        assert!(offset + bytes.len() <= SCRATCH_LEN, "scratch memory is {SCRATCH_LEN} bytes");
        if self.saved_scratch.is_none() {
            let mut saved = vec![0; SCRATCH_LEN];
            self.memory.read(self.site.scratch, &mut saved).doing(|| "save scratch".into())?;
            self.saved_scratch = Some(saved);
        }
        let address = self.site.scratch + offset as u64;
        self.memory.write(address, bytes).doing(|| "write scratch".into())?;
        Ok(address)
    }

    pub fn get(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.memory
            .read(self.site.scratch + offset as u64, &mut bytes)
            .doing(|| "read scratch".into())?;
        Ok(bytes)
    }

    /// Performs a call; its result, which may be a negative errno.
    pub fn call(&mut self, number: i64, args: [u64; 6]) -> Result<i64> {
        self.start(number, args)?;
        match self.wait(ptrace::step)? {
            Stop::Signal(libc::SIGTRAP) => self.result(),
            other => Err(self.lost(other)),
        }
    }

    /// Performs up to 24 calls, whatever their results; at one go where our interpreter is.
    pub fn batch(&mut self, calls: &[(i64, [u64; 6])]) -> Result<Vec<i64>> {
        /// Operations come after what the caller put, results after them.
        const OPS_AT: usize = 1024;
        const RESULTS_AT: usize = SCRATCH_LEN - 8 * 24;
        if !self.site.interpreter {
            return calls.iter().map(|(number, args)| self.call(*number, *args)).collect();
        }
        let mut program = Program::new(self.site.scratch + OPS_AT as u64, 0);
        for (index, (number, args)) in calls.iter().enumerate() {
            let label = program.any("a call", *number, args);
            let result = self.site.scratch + (RESULTS_AT + 8 * index) as u64;
            program.store_result(label, result);
        }
        program.trap();
        let ops = program.ops_bytes();
        assert!(OPS_AT + ops.len() <= RESULTS_AT, "too many calls for one batch");
        let first = self.put(OPS_AT, &ops)?;
        let mut regs = self.saved_regs;
        (regs.rip, regs.rbx, regs.orig_rax) = (layout::CODE, first, u64::MAX);
        regs.eflags &= !0x100;
        ptrace::set_regs(self.tid, &regs)
            .and_then(|()| ptrace::resume(self.tid, 0))
            .doing(|| format!("inject calls into thread {}", self.tid))?;
        match self.wait(|tid| ptrace::resume(tid, 0))? {
            Stop::Signal(libc::SIGTRAP) => {}
            other => return Err(self.lost(other)),
        }
        let results = self.get(RESULTS_AT, 8 * calls.len())?;
        let words = results.chunks_exact(8);
        Ok(words.map(|word| i64::from_ne_bytes(word.try_into().expect("8"))).collect())
    }

    /// Performs a call that must succeed.
    pub fn must(&mut self, what: &str, number: i64, args: [u64; 6]) -> Result<i64> {
        let result = self.call(number, args)?;
        if (-4095..0).contains(&result) {
            let source = std::io::Error::from_raw_os_error(-result as i32);
            return Err(Error::Io { doing: format!("{what} in thread {}", self.tid), source });
        }
        Ok(result)
    }

    /// Performs a clone; the host's number of the child, which is stopped and traced.
    pub fn clone(&mut self, what: &str, args: u64) -> Result<i32> {
        self.start(libc::SYS_clone3, [args, stasis_sys::process::CLONE_ARGS_SIZE, 0, 0, 0, 0])?;
        let child = match self.wait(ptrace::step)? {
            Stop::Event(_) => {
                let child = ptrace::event_message(self.tid).doing(|| what.to_owned())? as i32;
                ptrace::step(self.tid).doing(|| what.to_owned())?;
                match self.wait(ptrace::step)? {
                    Stop::Signal(libc::SIGTRAP) => child,
                    other => return Err(self.lost(other)),
                }
            }
            Stop::Signal(libc::SIGTRAP) => {
                let source = std::io::Error::from_raw_os_error(-self.result()? as i32);
                return Err(Error::Io { doing: what.to_owned(), source });
            }
            other => return Err(self.lost(other)),
        };
        match ptrace::wait_stop(child).doing(|| what.to_owned())? {
            Stop::Gone(_) => Err(Error::Gone),
            _ => Ok(child),
        }
    }

    fn start(&mut self, number: i64, args: [u64; 6]) -> Result<()> {
        let [rdi, rsi, rdx, r10, r8, r9] = args;
        let mut regs = self.saved_regs;
        regs.rax = number as u64;
        regs.orig_rax = u64::MAX;
        regs.rip = self.site.instruction;
        regs.eflags &= !0x100;
        (regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9) = (rdi, rsi, rdx, r10, r8, r9);
        ptrace::set_regs(self.tid, &regs)
            .and_then(|()| ptrace::step(self.tid))
            .doing(|| format!("inject a call into thread {}", self.tid))
    }

    /// Waits for the end of what was started. A thread that job control had stopped reports that
    /// once more before it runs, and so does one that stopped for something else a moment before
    /// it was interrupted; both are sent on by `again`.
    fn wait(&self, again: fn(i32) -> std::io::Result<()>) -> Result<Stop> {
        let doing = || format!("wait for thread {}", self.tid);
        loop {
            match ptrace::wait_stop(self.tid).doing(doing)? {
                Stop::Group(_) | Stop::Interrupted => again(self.tid).doing(doing)?,
                stop => return Ok(stop),
            }
        }
    }

    fn result(&self) -> Result<i64> {
        let regs =
            ptrace::regs(self.tid).doing(|| format!("read registers of thread {}", self.tid))?;
        if regs.rip != self.site.instruction + SYSCALL.len() as u64 {
            return Err(Error::refused(self.tid, "a signal came in the way of a call"));
        }
        Ok(regs.rax as i64)
    }

    fn lost(&self, stop: Stop) -> Error {
        match stop {
            Stop::Gone(_) => Error::Gone,
            other => Error::refused(self.tid, format!("stopped for {other:?} during a call")),
        }
    }

    /// Puts the scratch memory back in a copy of the process that was made meanwhile.
    pub fn repair(&self, copy: &ProcessMemory) -> Result<()> {
        match &self.saved_scratch {
            Some(saved) => copy.write(self.site.scratch, saved).doing(|| "repair a twin".into()),
            None => Ok(()),
        }
    }

    /// Puts scratch memory, registers and mask back.
    pub fn finish(mut self) -> Result<()> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<()> {
        if let Some(saved) = self.saved_scratch.take() {
            self.memory.write(self.site.scratch, &saved).doing(|| "restore scratch".into())?;
        }
        ptrace::set_regs(self.tid, &self.saved_regs)
            .and_then(|()| ptrace::set_sigmask(self.tid, self.saved_mask))
            .doing(|| format!("restore thread {}", self.tid))
    }
}

impl Drop for Injector<'_> {
    fn drop(&mut self) {
        let _ = self.put_back();
    }
}
