//! Twins: copy-on-write forks that stand still while the source runs on.
//!
//! The source makes a helper that shares its memory; the helper forks the twin and ends, so the
//! twin falls to the machine's init and the program never sees a child of its own. The helper is
//! waited for inside the source, in the same pause. A twin is traced by us and never runs.

use crate::error::{Doing, Error, Result};
use crate::freeze::{Frozen, FrozenProcess};
use crate::inject::{Injector, Site};
use crate::proc;
use crate::tree::Tree;
use stasis_sys::memory::ProcessMemory;
use stasis_sys::process::{self, CloneArgs};
use stasis_sys::ptrace::{self, Stop};
use stasis_sys::{libc, pagemap};

/// One process's copy. Dropping it ends it.
pub struct Twin {
    /// Of the twin itself, in the host's numbering.
    pub pid: i32,
    /// Of the process it is a copy of, in the machine's numbering.
    pub own_pid: i32,
    pub memory: ProcessMemory,
    /// Ranges of the source written since the parent image, where known.
    pub changed: Option<Vec<pagemap::Region>>,
}

pub fn make_all(frozen: &Frozen, tree: &Tree) -> Result<Vec<Twin>> {
    frozen
        .processes
        .iter()
        .filter(|process| process.live.is_some())
        .map(|process| make(process, tree))
        .collect()
}

fn make(process: &FrozenProcess, tree: &Tree) -> Result<Twin> {
    let live = process.live.as_ref().ok_or(Error::Gone)?;
    let changed = tree.take_changed(process.pid)?;
    let pid = fork(process.pid, &live.memory, live.site)?;
    let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), "1000");
    let twin = Twin {
        pid,
        own_pid: process.own_pid,
        memory: ProcessMemory::open(pid).doing(|| "open a twin's memory".into())?,
        changed,
    };
    check_whole(process, &twin)?;
    Ok(twin)
}

fn fork(pid: i32, memory: &ProcessMemory, site: Site) -> Result<i32> {
    let helper_args =
        CloneArgs { flags: libc::CLONE_VM as u64, ..CloneArgs::default() }.to_bytes();
    let mut source = Injector::new(pid, memory, site)?;
    let at = source.put(0, &helper_args)?;
    let helper = source.clone("make a helper", at)?;
    let twin = fork_from_helper(helper, memory, site);
    // the twin was made with our bytes still on the source's stack
    let twin = twin.and_then(|pid| {
        let opened = ProcessMemory::open(pid).doing(|| "open a twin's memory".into());
        let cleaned = opened.and_then(|copy| source.clean_copy(&copy));
        cleaned.map(|()| pid).inspect_err(|_| end(pid))
    });
    end(helper);
    // the helper is the source's child, of a kind ordinary waits do not see
    let wait = [u64::MAX, 0, (libc::__WCLONE | libc::WNOHANG) as u64, 0, 0, 0];
    let waited = source.must("wait for the helper", libc::SYS_wait4, wait);
    source.finish()?;
    waited?;
    twin
}

fn fork_from_helper(helper: i32, memory: &ProcessMemory, site: Site) -> Result<i32> {
    let mut injector = Injector::new(helper, memory, site)?;
    let at = injector.put(128, &CloneArgs::default().to_bytes())?;
    let twin = injector.clone("make a twin", at);
    injector.finish()?;
    twin
}

/// Kills a traced process and takes its status as its tracer.
fn end(pid: i32) {
    let _ = process::kill(pid, libc::SIGKILL);
    while let Ok(stop) = ptrace::wait_stop(pid) {
        if matches!(stop, Stop::Gone(_)) {
            break;
        }
    }
}

/// A mapping marked not to be inherited is missing in the twin, silently.
fn check_whole(process: &FrozenProcess, twin: &Twin) -> Result<()> {
    let size = |pid: i32| -> Result<u64> {
        let text = proc::read_text(pid, "statm")?;
        Ok(text.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0))
    };
    if size(process.pid)? != size(twin.pid)? {
        return Err(super::refuse(process, "memory marked MADV_DONTFORK is not carried yet"));
    }
    Ok(())
}

impl Drop for Twin {
    fn drop(&mut self) {
        end(self.pid);
    }
}
