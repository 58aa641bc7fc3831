//! Making a stopped thread perform system calls for us.
//!
//! A thread is pointed at a `syscall` instruction that is already in its memory and stepped over
//! it; where our interpreter's page is unchanged, it makes several calls before it stops again.
//! Registers, signal mask and the few bytes of scratch memory are put back afterwards, also when
//! something failed: a refused call never ends the target.
//!
//! Nothing the target holds is trusted:
//!
//!   its filter   stays in force: it allows every call we make. Only under filters of the program's
//!                own, which may not, are filters suspended, while a single instruction runs
//!   its code     is read before use; every task that could change it is stopped
//!   its rseq     names no sequence (`rseq`), so the kernel sends it nowhere
//!   its stops    count only where we put them, and for the reason we expect
//!   its time     is bounded: one that does not come back is fetched, or killed

mod site;
#[cfg(test)]
mod tests;

pub use site::{InjectionSite, holds_interpreter, own_instruction};

use crate::error::{Error, ErrorContext, Result};
use crate::rseq;
use stasis_spawner::layout;
use stasis_spawner::program::Program;
use stasis_sys::alarm::Alarm;
use stasis_sys::arch::{self, UserRegs};
use stasis_sys::memory::ProcessMemory;
use stasis_sys::ptrace::{self, StopReason};
use stasis_sys::{PAGE, libc, process};
use std::io;
use std::time::Duration;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const SCRATCH_LEN: usize = PAGE as usize;
/// All but the SIGTRAP that ends a step: the kernel takes away the handler of a signal that it must
/// deliver and finds blocked.
const BLOCKED: u64 = !(1 << (libc::SIGTRAP - 1));
/// Longer than any call takes that we make, on a busy host and with much memory to fork.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a thread may take to stop when it is fetched back.
const FETCH_LIMIT: Duration = Duration::from_secs(1);

/// Options of a stopped thread: its clones are ours.
pub const TRACED: u64 = ptrace::OPT_TRACECLONE | ptrace::OPT_TRACEFORK | ptrace::OPT_TRACEVFORK;
/// Options of a copy that we made: if we die it must not run as a second instance.
pub const COPY: u64 = TRACED | ptrace::OPT_EXITKILL;

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

/// One thread under injection. `finish` (or drop) puts everything back.
pub struct Injector<'a> {
    tid: i32,
    site: InjectionSite,
    memory: &'a ProcessMemory,
    /// Its options while it does nothing for us.
    options: u64,
    saved_regs: UserRegs,
    saved_mask: u64,
    saved_scratch: Option<Vec<u8>>,
    alarm: Alarm,
    finished: bool,
}

/// The reason a call, or a list of calls, ended.
#[derive(Clone, Copy)]
enum End {
    Step,
    Breakpoint,
}

impl End {
    /// Codes the kernel gives to the signal.
    fn codes(self) -> &'static [i32] {
        const TRAP_BRKPT: i32 = 1;
        const TRAP_TRACE: i32 = 2;
        const SI_KERNEL: i32 = 0x80;
        match self {
            End::Step => &[TRAP_BRKPT, TRAP_TRACE],
            End::Breakpoint => &[SI_KERNEL],
        }
    }
}

impl<'a> Injector<'a> {
    pub fn new(tid: i32, memory: &'a ProcessMemory, site: InjectionSite) -> Result<Injector<'a>> {
        Injector::with(tid, memory, site, TRACED, LIMIT)
    }

    /// In a copy that the engine made.
    pub fn of_copy(
        tid: i32,
        memory: &'a ProcessMemory,
        site: InjectionSite,
    ) -> Result<Injector<'a>> {
        Injector::with(tid, memory, site, COPY, LIMIT)
    }

    fn with(
        tid: i32,
        memory: &'a ProcessMemory,
        site: InjectionSite,
        options: u64,
        limit: Duration,
    ) -> Result<Injector<'a>> {
        let doing = || format!("prepare thread {tid}");
        // from here on no task runs that could change it
        let intact = site::at(memory, site.instruction).is_some()
            && (!site.interpreter || holds_interpreter(memory));
        if !intact {
            return Err(Error::refused(tid, "the code for our calls was changed"));
        }
        let limit = site.left(limit);
        if limit.is_zero() {
            return Err(Error::refused(tid, "its processes take too long to tell their state"));
        }
        let alarm = Alarm::set(limit).doing(doing)?;
        let saved_regs = ptrace::regs(tid).doing(doing)?;
        let saved_mask = ptrace::sigmask(tid).doing(doing)?;
        let saved_scratch = None;
        // from here on, a drop puts everything back
        let injector = Injector {
            tid,
            site,
            memory,
            options,
            saved_regs,
            saved_mask,
            saved_scratch,
            alarm,
            finished: false,
        };
        ptrace::set_sigmask(tid, BLOCKED).doing(doing)?;
        if site.suspend {
            injector.suspend_filters()?;
        }
        Ok(injector)
    }

    /// Lets calls pass by the filters of a program that has some of its own. Filters are never
    /// suspended while a thread can be sent elsewhere.
    fn suspend_filters(&self) -> Result<()> {
        let doing = || format!("read rseq of thread {}", self.tid);
        let area = rseq::RseqArea::of(self.tid).doing(doing)?;
        let pointer = area.map_or(Ok(0), |area| area.pointer(self.memory)).doing(doing)?;
        if pointer != 0 {
            return Err(Error::refused(self.tid, "it is in a restartable sequence"));
        }
        let through = self.options | ptrace::OPT_SUSPEND_SECCOMP;
        ptrace::set_options(self.tid, through).map_err(|_| {
            let what = "it is under seccomp filters, which this engine may not see through";
            Error::refused(self.tid, what)
        })
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
        let stop = self.wait(ptrace::step)?;
        self.end_of_call(stop)
    }

    /// Performs up to 24 calls, whatever their results; at one go where our interpreter is and the
    /// machine's filter is in force.
    pub fn batch(&mut self, calls: &[(i64, [u64; 6])]) -> Result<Vec<i64>> {
        /// Operations follow the caller's data, results follow them.
        const OPS_AT: usize = 1024;
        const RESULTS_AT: usize = SCRATCH_LEN - 8 * 24;
        if !self.site.interpreter || self.site.suspend {
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
        let stop = self.wait(|tid| ptrace::resume(tid, 0))?;
        self.check_end(stop, End::Breakpoint, layout::CODE + arch::interpreter_trap_end())?;
        let results = self.get(RESULTS_AT, 8 * calls.len())?;
        let words = results.chunks_exact(8);
        Ok(words.map(|word| i64::from_ne_bytes(word.try_into().expect("8"))).collect())
    }

    /// Performs a call that must succeed.
    pub fn must(&mut self, what: &str, number: i64, args: [u64; 6]) -> Result<i64> {
        let result = self.call(number, args)?;
        if (-4095..0).contains(&result) {
            let source = io::Error::from_raw_os_error(-result as i32);
            return Err(Error::Io { doing: format!("{what} in thread {}", self.tid), source });
        }
        Ok(result)
    }

    /// Performs a clone, by the call whose flags a filter can see; the host's number of the child,
    /// which is stopped and traced.
    pub fn clone(&mut self, what: &str, flags: u64) -> Result<i32> {
        self.start(libc::SYS_clone, [flags, 0, 0, 0, 0, 0])?;
        let stop = self.wait(ptrace::step)?;
        if !matches!(stop, StopReason::Event(_)) {
            let source = io::Error::from_raw_os_error(-self.end_of_call(stop)? as i32);
            return Err(Error::Io { doing: what.to_owned(), source });
        }
        let child = ptrace::event_message(self.tid).doing(|| what.to_owned())? as i32;
        let finish = || -> Result<()> {
            ptrace::step(self.tid).doing(|| what.to_owned())?;
            let stop = self.wait(ptrace::step)?;
            self.end_of_call(stop)?;
            match ptrace::wait_stop(child, &self.alarm).doing(|| what.to_owned())? {
                StopReason::Interrupted => Ok(()),
                other => Err(Error::refused(child, format!("a copy stopped for {other:?}"))),
            }
        };
        // it must not run, as a second one of its kind
        finish().map(|()| child).inspect_err(|_| end(child))
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

    /// Waits for the end of the started calls. A thread that job control had stopped reports that
    /// once more before it runs, and so does one that stopped for another reason a moment before it
    /// was interrupted; `again` resumes both.
    fn wait(&self, again: fn(i32) -> io::Result<()>) -> Result<StopReason> {
        let doing = || format!("wait for thread {}", self.tid);
        loop {
            match ptrace::wait_stop(self.tid, &self.alarm) {
                Ok(StopReason::Group(_) | StopReason::Interrupted) if self.alarm.is_over() => {
                    return Err(self.late());
                }
                Ok(StopReason::Group(_) | StopReason::Interrupted) => {
                    again(self.tid).doing(doing)?
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(self.fetch()),
                stop => return stop.doing(doing),
            }
        }
    }

    /// Recovers a thread that did not return. If that fails, it is killed: it would continue with
    /// our calls in its name.
    fn fetch(&self) -> Error {
        let fetch = || -> io::Result<StopReason> {
            ptrace::interrupt(self.tid)?;
            ptrace::wait_stop(self.tid, &Alarm::set(FETCH_LIMIT)?)
        };
        if fetch().is_err() {
            let _ = process::kill(self.tid, libc::SIGKILL);
        }
        self.late()
    }

    fn late(&self) -> Error {
        Error::refused(self.tid, "a call that the engine had it make did not end")
    }

    /// The result of a call that was stepped over.
    fn end_of_call(&self, stop: StopReason) -> Result<i64> {
        let after = self.site.instruction + SYSCALL.len() as u64;
        self.check_end(stop, End::Step, after).map(|regs| regs.rax as i64)
    }

    /// The registers of a thread that stopped where and why it should have. A signal of the
    /// program's own is put back to be taken later, and the capture is given up.
    fn check_end(&self, stop: StopReason, end: End, rip: u64) -> Result<UserRegs> {
        let doing = || format!("look at thread {}", self.tid);
        let signal = match stop {
            StopReason::Signal(signal) => signal,
            // a filter of its own may have condemned it before the call; the others live on
            StopReason::Gone(_) => {
                return Err(Error::refused(self.tid, "it ended during a call; try again"));
            }
            other => {
                let what = format!("it stopped for {other:?} during a call");
                return Err(Error::refused(self.tid, what));
            }
        };
        let code = ptrace::signal_code(self.tid).doing(doing)?;
        let regs = ptrace::regs(self.tid).doing(doing)?;
        let is_ours = signal == libc::SIGTRAP && end.codes().contains(&code);
        if is_ours && regs.rip == rip {
            return Ok(regs);
        }
        if !is_ours {
            self.put_signal_back(signal).doing(doing)?;
        }
        Err(Error::refused(self.tid, "a signal came in the way of a call; try again"))
    }

    /// Queues a signal again that the thread was about to take: the kernel does so by itself with
    /// one that is blocked by then. A stop cannot be blocked, and is sent anew.
    fn put_signal_back(&self, signal: i32) -> io::Result<()> {
        if signal == libc::SIGSTOP {
            return process::kill(self.tid, signal);
        }
        ptrace::set_sigmask(self.tid, u64::MAX)?;
        // it stops again before it runs
        ptrace::interrupt(self.tid)?;
        ptrace::resume(self.tid, signal)?;
        ptrace::wait_stop(self.tid, &self.alarm).map(drop)
    }

    /// Puts the scratch memory back in a copy of the process that was made meanwhile.
    pub fn repair(&self, copy: &ProcessMemory) -> Result<()> {
        match &self.saved_scratch {
            Some(saved) => copy.write(self.site.scratch, saved).doing(|| "repair a twin".into()),
            None => Ok(()),
        }
    }

    /// Puts scratch memory, registers, mask and filters back.
    pub fn finish(mut self) -> Result<()> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        if let Some(saved) = self.saved_scratch.take() {
            self.memory.write(self.site.scratch, &saved).doing(|| "restore scratch".into())?;
        }
        let filters =
            if self.site.suspend { ptrace::set_options(self.tid, self.options) } else { Ok(()) };
        filters
            .and_then(|()| ptrace::set_regs(self.tid, &self.saved_regs))
            .and_then(|()| ptrace::set_sigmask(self.tid, self.saved_mask))
            .doing(|| format!("restore thread {}", self.tid))
    }
}

impl Drop for Injector<'_> {
    fn drop(&mut self) {
        let _ = self.put_back();
    }
}

/// Kills a traced process and reaps it as its tracer. A process that does not end in time ends
/// later without us.
pub fn end(pid: i32) {
    let _ = process::kill(pid, libc::SIGKILL);
    let Ok(alarm) = Alarm::set(LIMIT) else { return };
    while let Ok(stop) = ptrace::wait_stop(pid, &alarm) {
        if matches!(stop, StopReason::Gone(_)) {
            break;
        }
    }
}
