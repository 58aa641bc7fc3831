//! Twins: copy-on-write forks that stand still while the source runs on.
//!
//! The source makes a helper that shares its memory; the helper forks the twin and ends, so the
//! twin falls to the machine's init and the program never sees a child of its own. The helper is
//! waited for inside the source, in the same pause. A twin is traced by us and never runs, but for
//! one call in the pause that takes it out of the reach of its source, which has the same user: not
//! dumpable, its memory cannot be opened, and the machine's `/proc` does not show it.

use crate::error::{Error, ErrorContext, Result};
use crate::freeze::{FrozenLive, FrozenProcess};
use crate::inject::{self, InjectionSite, Injector};
use crate::proc;
use crate::tree::Tree;
use stasis_sys::memory::ProcessMemory;
use stasis_sys::{libc, pagemap, ptrace};
use std::collections::HashSet;
use std::time::Instant;

/// One process's copy. Dropping it ends it.
pub struct Twin {
    /// The twin's own pid, in the host's numbering.
    pub pid: i32,
    /// The pid of its source, in the machine's numbering.
    pub own_pid: i32,
    pub memory: ProcessMemory,
    /// Ranges of the source written since the parent image, where known.
    pub changed: Option<Vec<pagemap::Region>>,
    /// Whether pages of ours are left in it from a restore.
    pub restored: bool,
    /// Ranges the source had excluded from inheritance.
    pub marks: ForkAdvice,
}

/// Ranges a fork would leave out or empty. The marks are lifted for the twin and set again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForkAdvice {
    pub dont_fork: Vec<(u64, u64)>,
    pub wipe_on_fork: Vec<(u64, u64)>,
    /// Locked memory; the copy has the pages but not the lock.
    pub locked: Vec<(u64, u64)>,
}

impl ForkAdvice {
    /// Advice that lifts each mark, or sets it again.
    fn advice(&self, lift: bool) -> Vec<(u64, u64, i32)> {
        let (fork, wipe) = if lift {
            (libc::MADV_DOFORK, libc::MADV_KEEPONFORK)
        } else {
            (libc::MADV_DONTFORK, libc::MADV_WIPEONFORK)
        };
        let dont_fork = self.dont_fork.iter().map(|(start, end)| (*start, *end, fork));
        let wipe_on_fork = self.wipe_on_fork.iter().map(|(start, end)| (*start, *end, wipe));
        dont_fork.chain(wipe_on_fork).collect()
    }
}

pub fn make(
    process: &FrozenProcess,
    tree: &Tree,
    changed: Option<Vec<pagemap::Region>>,
    until: Instant,
) -> Result<Twin> {
    let live = process.live.as_ref().ok_or(Error::Gone)?;
    let mut marks = ForkAdvice::default();
    let locks = process.status.number("VmLck").unwrap_or(0) > 0;
    if tree.memo().look_closer || locks {
        let mut all = mappings(process.pid, "smaps")?;
        all.retain(|map| !super::mappings::is_droppable(map));
        marks.wipe_on_fork = flagged(&all, "wf");
        marks.locked = flagged(&all, "lo");
    }
    let mut twin = Twin::fork(process, live, &marks, until)?;
    let size = |pid: i32| proc::size(pid).doing(|| format!("read the size of {pid}"));
    if size(process.pid)? != size(twin.pid)? {
        // only the copy shows which ranges are missing
        marks.dont_fork = missing_ranges(process.pid, twin.pid)?;
        drop(twin);
        twin = Twin::fork(process, live, &marks, until)?;
    }
    twin.changed = changed;
    twin.restored = tree.base.is_some();
    twin.marks = marks;
    Ok(twin)
}

fn mappings(pid: i32, file: &str) -> Result<Vec<proc::Mapping>> {
    proc::parse_maps(&proc::read_text(pid, file)?)
        .ok_or_else(|| Error::refused(pid, format!("its {file} file is unreadable")))
}

/// Mappings of the source that its copy lacks.
fn missing_ranges(source: i32, copy: i32) -> Result<Vec<(u64, u64)>> {
    let copied: HashSet<(u64, u64)> =
        mappings(copy, "maps")?.iter().map(|map| (map.start, map.end)).collect();
    let all = mappings(source, "maps")?;
    Ok(all.iter().map(|map| (map.start, map.end)).filter(|range| !copied.contains(range)).collect())
}

fn flagged(all: &[proc::Mapping], flag: &str) -> Vec<(u64, u64)> {
    all.iter().filter(|map| map.has_flag(flag)).map(|map| (map.start, map.end)).collect()
}

impl Twin {
    fn fork(
        process: &FrozenProcess,
        live: &FrozenLive,
        marks: &ForkAdvice,
        until: Instant,
    ) -> Result<Twin> {
        let (pid, memory) = fork(process.pid, &live.memory, live.site.until(until), marks)?;
        let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), "1000");
        let marks = ForkAdvice::default();
        Ok(Twin { pid, own_pid: process.own_pid, memory, changed: None, restored: false, marks })
    }
}

fn fork(
    pid: i32,
    memory: &ProcessMemory,
    site: InjectionSite,
    marks: &ForkAdvice,
) -> Result<(i32, ProcessMemory)> {
    let mut source = Injector::new(pid, memory, site)?;
    advise(&mut source, &marks.advice(true))?;
    let helper = source.clone("make a helper", libc::CLONE_VM as u64);
    // by its own number: the program may have children of that kind itself
    let number = helper.as_ref().ok().and_then(|helper| own_number(*helper));
    let twin = helper.and_then(|helper| {
        let twin = fork_from_helper(helper, memory, site);
        inject::end(helper);
        twin
    });
    let marked = advise(&mut source, &marks.advice(false));
    // the helper is the source's child, of a kind ordinary waits do not see
    let waited = number.map_or(Ok(0), |number| {
        let flags = (libc::__WCLONE | libc::WNOHANG) as u64;
        source.call(libc::SYS_wait4, [number as u64, 0, flags, 0, 0, 0])
    });
    let whole = twin.and_then(|twin| {
        let copy = hide(twin, site);
        // the copy was made with what we had put into the scratch memory
        let copy = copy.and_then(|copy| source.repair(&copy).map(|()| copy));
        copy.map(|copy| (twin, copy)).inspect_err(|_| inject::end(twin))
    });
    source.finish()?;
    marked.and(waited)?;
    whole
}

/// The number a process has in the machine.
fn own_number(pid: i32) -> Option<i32> {
    proc::ProcStatus::parse(&proc::read_text(pid, "status").ok()?).innermost("NSpid")
}

fn advise(source: &mut Injector, advice: &[(u64, u64, i32)]) -> Result<i64> {
    for (start, end, advice) in advice {
        let args = [*start, end - start, *advice as u64, 0, 0, 0];
        source.must("change what a fork inherits", libc::SYS_madvise, args)?;
    }
    Ok(0)
}

fn fork_from_helper(helper: i32, memory: &ProcessMemory, site: InjectionSite) -> Result<i32> {
    trace_copy(helper)?;
    let mut injector = Injector::of_copy(helper, memory, site)?;
    let twin = injector.clone("make a twin", 0);
    injector.finish()?;
    twin
}

fn trace_copy(pid: i32) -> Result<()> {
    ptrace::set_options(pid, inject::COPY).doing(|| "trace a copy".into())
}

/// Takes a twin out of its source's reach, while the source is stopped; returns the twin's memory.
/// Whether the source is dumpable was read from the source itself.
fn hide(twin: i32, site: InjectionSite) -> Result<ProcessMemory> {
    trace_copy(twin)?;
    let memory = ProcessMemory::open(twin).doing(|| "open a twin's memory".into())?;
    let mut injector = Injector::of_copy(twin, &memory, site)?;
    let args = [libc::PR_SET_DUMPABLE as u64, 0, 0, 0, 0, 0];
    injector.must("hide a twin", libc::SYS_prctl, args)?;
    injector.finish()?;
    Ok(memory)
}

impl Twin {
    /// Everything read from a twin counts only if it was there to the end: of one that was killed
    /// meanwhile (by the machine, or for want of memory) `/proc` shows no memory and no error.
    pub fn check_intact(&self) -> Result<()> {
        ptrace::regs(self.pid).map(drop).map_err(|_| {
            Error::refused(self.own_pid, "its copy was killed while it was being read")
        })
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        inject::end(self.pid);
    }
}
