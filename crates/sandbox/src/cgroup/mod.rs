//! Cgroups: a machine's limits on memory, processes and processor time, and its usage.
//!
//!   find ─► Cgroups ──make──► Group ──► set_limits, usage, room, entrances
//!
//! Version 1 has a directory per controller, version 2 one for all; a host without either reports
//! it (`Cgroups::missing`), and its machines have only process limits. Groups are below `stasis` at
//! the root of each hierarchy, named after the engine's process. A group whose last process is
//! still ending cannot be removed yet; `sweep` tries again, and an engine at its start removes the
//! groups of killed ones.

mod files;
mod find;

use crate::config::ResourceLimits;
use files::{CgroupDirs, Version};
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The init of a machine is a process too.
const INIT: u64 = 1;

/// The parent of this engine's groups.
pub struct Cgroups {
    hierarchies: Option<find::Hierarchies>,
    missing: Vec<String>,
    /// Groups of machines that have ended.
    ended: Mutex<Vec<PathBuf>>,
}

/// A machine's usage; `None` where no controller counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    pub memory: Option<u64>,
    pub memory_peak: Option<u64>,
    /// Processes killed by the kernel because memory ran out.
    pub oom_kills: Option<u64>,
    pub cpu_ns: Option<u64>,
    /// Processes and threads, without the init.
    pub pids: Option<u64>,
}

/// How a process enters a group.
pub enum Entrances {
    /// Write "0" to each.
    Tasks(Vec<OwnedFd>),
    /// Be cloned into this directory.
    Directory(OwnedFd),
    None,
}

impl Cgroups {
    /// Finds the host's cgroups, and what is missing.
    pub fn find() -> Arc<Cgroups> {
        let (hierarchies, missing) = find::find();
        let cgroups = Cgroups::new(hierarchies, missing);
        cgroups.remove_leftovers();
        Arc::new(cgroups)
    }

    /// No cgroups, by choice.
    pub fn none() -> Arc<Cgroups> {
        Arc::new(Cgroups::new(None, vec!["cgroups are turned off".into()]))
    }

    fn new(hierarchies: Option<find::Hierarchies>, missing: Vec<String>) -> Cgroups {
        Cgroups { hierarchies, missing, ended: Mutex::default() }
    }

    /// "v1", "v2" or "none".
    pub fn kind(&self) -> &'static str {
        match self.hierarchies.as_ref().map(|found| found.version) {
            Some(Version::V1) => "v1",
            Some(Version::V2) => "v2",
            None => "none",
        }
    }

    /// Limits that machines on this host cannot have, and why. Empty if all exist.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// A new group with these limits.
    pub fn make(self: &Arc<Self>, limits: ResourceLimits) -> io::Result<Cgroup> {
        // there may be several engines in one process
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let files = match &self.hierarchies {
            Some(found) => Some(CgroupDirs::make(found, &name)?),
            None => None,
        };
        let group = Cgroup { files, owner: self.clone(), limits: Mutex::new(limits) };
        group.apply(&limits, 0)?;
        Ok(group)
    }

    /// Removes groups whose last process has ended by now.
    pub fn sweep(&self) {
        let ended = std::mem::take(&mut *self.ended());
        let left: Vec<PathBuf> = ended.into_iter().filter(|dir| !remove(dir)).collect();
        self.ended().extend(left);
    }

    fn ended(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.ended.lock()
    }

    /// Groups of engines that have exited.
    fn remove_leftovers(&self) {
        let bases = self.hierarchies.iter().flat_map(|found| found.bases());
        for entry in bases.flat_map(|base| std::fs::read_dir(base).into_iter().flatten()).flatten()
        {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.split_once('-')?.0.parse::<u32>().ok());
            let gone = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
            if pid.is_some_and(gone) {
                remove(&entry.path());
            }
        }
    }
}

impl Drop for Cgroups {
    /// Ending processes get a moment; the next engine removes the rest.
    fn drop(&mut self) {
        const TRIES: u32 = 100;
        for _ in 0..TRIES {
            self.sweep();
            if self.ended().is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// True when it is not there any more.
fn remove(dir: &Path) -> bool {
    match std::fs::remove_dir(dir) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// One machine's group; removed some time after it is dropped.
pub struct Cgroup {
    files: Option<CgroupDirs>,
    owner: Arc<Cgroups>,
    limits: Mutex<ResourceLimits>,
}

impl Cgroup {
    pub fn entrances(&self) -> io::Result<Entrances> {
        self.files.as_ref().map_or(Ok(Entrances::None), CgroupDirs::entrances)
    }

    /// Every task of the machine, including its init's; `None` without a group. A task cannot leave
    /// its group, and a new one goes to the end of the kernel's list: a task that runs while the
    /// list is read is in it, or was created by one that is.
    pub fn tasks(&self) -> io::Result<Option<Vec<i32>>> {
        self.files.as_ref().map_or(Ok(None), CgroupDirs::tasks)
    }

    /// Every process of the machine, including its init; `None` without a group.
    pub fn processes(&self) -> io::Result<Option<Vec<i32>>> {
        self.files.as_ref().map_or(Ok(None), CgroupDirs::processes)
    }

    pub fn limits(&self) -> ResourceLimits {
        *self.limits.lock()
    }

    /// Changes the limits of a running machine. A memory limit below the current use is refused if
    /// the kernel cannot reclaim enough.
    pub fn set_limits(&self, limits: ResourceLimits) -> io::Result<()> {
        self.apply(&limits, 0)?;
        *self.limits.lock() = limits;
        Ok(())
    }

    pub fn usage(&self) -> CgroupUsage {
        let usage = self.files.as_ref().map(CgroupDirs::usage).unwrap_or_default();
        CgroupUsage { pids: usage.pids.map(|pids| pids.saturating_sub(INIT)), ..usage }
    }

    /// Extra memory for the engine's own copies of the machine's processes, from its first request
    /// until the value is dropped. The copies count as the machine's: at its limit a capture would
    /// fail, and the kernel would kill the machine's processes for the memory of their copies.
    pub fn room(&self) -> CopyHeadroom<'_> {
        CopyHeadroom { group: self, given: Cell::new(false) }
    }

    /// Room for the tasks of an image, if they are more than the limits of new walls allow: its
    /// machine may have wider limits, which are set after the restore. Says whether there is more
    /// room than the limits allow; `set_limits` takes it back.
    pub fn admit(&self, tasks: u64) -> io::Result<bool> {
        let limits = self.limits();
        let exceeds = limits.pids.is_some_and(|pids| tasks > pids);
        if exceeds {
            self.apply(&limits, tasks)?;
        }
        Ok(exceeds)
    }

    fn apply(&self, limits: &ResourceLimits, copies: u64) -> io::Result<()> {
        /// More than a small program writes to during a capture.
        const EXTRA_MEMORY: u64 = 64 << 20;
        let Some(files) = &self.files else { return Ok(()) };
        let extra = if copies == 0 { 0 } else { EXTRA_MEMORY };
        files.limit_pids(limits.pids.map(|pids| pids + INIT + copies))?;
        files.limit_cpu(limits.cpu_millis)?;
        files.limit_memory(limits.memory.map(|memory| memory + extra))
    }
}

/// See `Cgroup::room`.
pub struct CopyHeadroom<'a> {
    group: &'a Cgroup,
    given: Cell<bool>,
}

impl CopyHeadroom<'_> {
    /// Grants the extra memory, on top of the current use. Without it a copy may still fit.
    pub fn give(&self) {
        let limits = self.group.limits();
        let limited = limits.memory.is_some() || limits.pids.is_some();
        if let (Some(files), true) = (&self.group.files, limited) {
            self.given.set(true);
            // one copy and one helper each, at most
            let copies = files.usage().pids.unwrap_or(0) + 2;
            let _ = self.group.apply(&limits, copies);
        }
    }
}

impl Drop for CopyHeadroom<'_> {
    fn drop(&mut self) {
        // a machine that used the room meanwhile keeps it until the next capture
        if self.given.get() {
            let _ = self.group.apply(&self.group.limits(), 0);
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Some(files) = &self.files {
            self.owner.ended().extend(files.dirs());
        }
    }
}
