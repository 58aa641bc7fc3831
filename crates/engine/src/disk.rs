//! A bound on what a machine writes to disk.
//!
//!   upper directory + open files without a name + the image's files below, where they show
//!
//! Without quotas no file system says no for one directory, so a thread measures every machine
//! that has a limit, again and again, and ends a machine that passed it. What this promises: a
//! runaway is ended after the next look, a second or so later (longer where a walk takes long),
//! and a single file never grows past the limit, which is a limit of the process. A machine that
//! is ended goes on from its last image, and no image is made of one that is past its limit.
//!
//! A machine whose image alone is past its limit, because that was lowered, runs and can remove
//! files; it may not have more than it came with.

use crate::error::{Doing, Error, Result};
use crate::layers::{OPAQUE, order};
use crate::store::Image;
use crate::unlinked;
use crate::walls::Walls;
use stasis_image::PAGE_SIZE;
use stasis_image::model::{FileEntry, FileKind, FileTree, Manifest};
use stasis_sandbox::DiskLimit;
use stasis_sandbox::disk::{self, DiskUsage};
use stasis_sys::{files as sysfiles, libc, process};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between looks, at least.
const PERIOD: Duration = Duration::from_millis(500);
/// Looking takes at most this part of a processor.
const SHARE: u32 = 20;
/// Mapped files are looked for at one of so many looks: it takes longer than all the rest.
const MAPPED: u64 = 4;
/// What a machine whose image is past its limit may write to remove files.
const SLACK: u64 = 1 << 20;

/// What one machine has on the disk, and may have.
pub struct Account {
    upper: PathBuf,
    /// Its init, in the host's numbering.
    init: i32,
    limit: Mutex<Option<DiskLimit>>,
    /// What the image it comes from says. Its tree has the image in use: nobody else should for
    /// its sake.
    image: OnceLock<Weak<Manifest>>,
    /// What the first so many of the image's entries take, once somebody asks.
    sums: OnceLock<Vec<DiskUsage>>,
    /// The machine was ended for what it has.
    ended: AtomicBool,
}

/// The image's files, which lie below the upper directory.
struct Layer<'a> {
    manifest: Arc<Manifest>,
    sums: &'a [DiskUsage],
}

fn sums_of(entries: &[FileEntry]) -> Vec<DiskUsage> {
    let mut sums = vec![DiskUsage::default()];
    for entry in entries {
        sums.push(sums[sums.len() - 1] + of_entry(entry));
    }
    sums
}

impl Layer<'_> {
    fn all(&self) -> DiskUsage {
        self.sums[self.sums.len() - 1]
    }

    /// What a path and all below it take.
    fn at(&self, path: &[u8]) -> DiskUsage {
        let entries = &self.manifest.files.entries;
        let start = entries.partition_point(|entry| order(&entry.path, path).is_lt());
        let is_in = |entry: &FileEntry| {
            entry
                .path
                .strip_prefix(path)
                .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        let count = entries[start..].partition_point(is_in);
        self.sums[start + count] - self.sums[start]
    }
}

fn of_entry(entry: &FileEntry) -> DiskUsage {
    let pages = match &entry.kind {
        FileKind::Regular { runs, .. } => runs.iter().map(|run| u64::from(run.count)).sum(),
        _ => 0,
    };
    DiskUsage { bytes: pages * PAGE_SIZE as u64, files: 1 }
}

impl Account {
    pub fn new(upper: PathBuf, init: i32, limit: Option<DiskLimit>) -> Account {
        let (image, sums) = (OnceLock::new(), OnceLock::new());
        let ended = AtomicBool::new(false);
        Account { upper, init, limit: Mutex::new(limit), image, sums, ended }
    }

    /// The machine comes from this image.
    pub fn set_below(&self, image: &Image) {
        let _ = self.image.set(Arc::downgrade(&image.manifest));
    }

    fn below(&self) -> Option<Layer<'_>> {
        let manifest = self.image.get()?.upgrade()?;
        let sums = self.sums.get_or_init(|| sums_of(&manifest.files.entries));
        Some(Layer { manifest, sums })
    }

    pub fn limit(&self) -> Option<DiskLimit> {
        *self.limit.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    pub fn set_limit(&self, limit: Option<DiskLimit>) {
        *self.limit.lock().unwrap_or_else(|poison| poison.into_inner()) = limit;
    }

    /// Whether the machine was ended because it passed its limit.
    pub fn has_ended_it(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Everything the machine has, and `most_files` or more if it does not hold still.
    pub fn usage(&self, most_files: u64) -> DiskUsage {
        self.measure(most_files, unlinked::Where::Everywhere)
    }

    fn measure(&self, most_files: u64, places: unlinked::Where) -> DiskUsage {
        let below = self.below();
        let mut hidden = DiskUsage::default();
        // of nested paths the first hides the rest
        let mut last: Vec<u8> = Vec::new();
        let used = disk::usage(&self.upper, most_files, |path, dir| {
            let Some(layer) = &below else { return };
            let opaque = |dir| sysfiles::own_xattr(dir, OPAQUE.as_ref(), &mut [0; 8]).is_ok();
            let below_last =
                path.strip_prefix(last.as_slice()).is_some_and(|rest| rest.starts_with(b"/"));
            if dir.is_none_or(opaque) && (last.is_empty() || !below_last) {
                hidden = hidden + layer.at(path);
                last = path.to_vec();
            }
        });
        let Ok(used) = used else {
            return DiskUsage { bytes: 0, files: most_files.saturating_add(1) };
        };
        let below = below.map(|layer| layer.all()).unwrap_or_default();
        used + (below - hidden) + unlinked::usage(self.init, places)
    }

    /// What the machine may have: at least what it came with.
    fn most(&self, limit: DiskLimit) -> DiskLimit {
        let Some(below) = self.below().map(|layer| layer.all()) else { return limit };
        let (bytes, files) = (limit.bytes, limit.files);
        DiskLimit {
            bytes: if below.bytes > bytes { below.bytes + SLACK } else { bytes },
            files: if below.files > files { below.files + SLACK / 1024 } else { files },
        }
    }

    fn is_over(&self, places: unlinked::Where) -> bool {
        let Some(limit) = self.limit() else { return false };
        let most = self.most(limit);
        let used = self.measure(most.files, places);
        used.bytes > most.bytes || used.files > most.files
    }

    /// Refuses files that a machine may not have.
    pub fn check(&self, files: &FileTree) -> Result<()> {
        let Some(limit) = self.limit() else { return Ok(()) };
        let most = self.most(limit);
        let used = files.entries.iter().map(of_entry).fold(DiskUsage::default(), |a, b| a + b);
        if used.bytes <= most.bytes && used.files <= most.files {
            return Ok(());
        }
        Err(Error::refused(
            1,
            format!(
                "its {} files take {} MiB, more than its limit of {} files and {} MiB: remove some",
                used.files,
                used.bytes >> 20,
                most.files,
                most.bytes >> 20
            ),
        ))
    }
}

/// One machine, for as long as its init lives.
struct Watched {
    init: OwnedFd,
    account: Arc<Account>,
}

#[derive(Default)]
struct Shared {
    machines: Mutex<Vec<Watched>>,
    over: AtomicBool,
}

pub struct DiskWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl DiskWatch {
    pub fn start() -> Result<DiskWatch> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = std::thread::Builder::new()
            .name("stasis-disk".into())
            .spawn(move || watch(&own))
            .doing(|| "start a thread".into())?;
        Ok(DiskWatch { shared, thread: Some(thread) })
    }

    /// Watches a machine from now on.
    pub fn add(&self, walls: &Walls) -> Result<()> {
        let init = walls.init.pidfd.try_clone().doing(|| "copy a descriptor".into())?;
        self.shared.machines().push(Watched { init, account: walls.disk.clone() });
        Ok(())
    }
}

impl Shared {
    fn machines(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.machines.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

impl Watched {
    fn is_gone(&self) -> bool {
        process::pidfd_wait(self.init.as_fd(), 0).unwrap_or(true)
    }

    /// Ends the machine if it has more than it may.
    fn look(&self, places: unlinked::Where) {
        if self.account.is_over(places) {
            self.account.ended.store(true, Ordering::Relaxed);
            let _ = process::pidfd_kill(self.init.as_fd(), libc::SIGKILL);
        }
    }
}

fn watch(shared: &Shared) {
    let mut looks: u64 = 0;
    while !shared.over.load(Ordering::Relaxed) {
        let start = Instant::now();
        looks += 1;
        let places = match looks % MAPPED {
            0 => unlinked::Where::Everywhere,
            _ => unlinked::Where::Open,
        };
        // taken out so that nobody waits for a walk
        let mut machines = std::mem::take(&mut *shared.machines());
        machines.retain(|machine| !machine.is_gone());
        machines.iter().for_each(|machine| machine.look(places));
        shared.machines().extend(machines);
        std::thread::park_timeout(PERIOD.max(start.elapsed() * SHARE));
    }
}
