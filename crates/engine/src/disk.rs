//! A bound on the disk use of a machine.
//!
//!   upper directory + open files without a name + the image's files below, where they show
//!
//! Without quotas no file system limits a single directory, so a thread measures every machine with
//! a limit periodically, and kills a machine that exceeds it (`disk_watch.rs`). A single file never
//! grows past the limit, which is a limit of the process. A killed machine continues from its last
//! image, and no image is made of a machine past its limit.
//!
//! A machine whose image alone is past its limit, because that was lowered, runs and can remove
//! files; it may not have more than it came with.

use crate::error::{Error, Result};
use crate::unlinked::{self, UnlinkedFiles, UnlinkedScope};
use parking_lot::Mutex;
use stasis_image::PAGE_SIZE;
use stasis_image::model::{FileEntry, FileEntryKind, FileTree, Manifest};
use stasis_sandbox::disk::{self, DiskUsage};
use stasis_sandbox::{Cgroup, DiskLimit};
use stasis_store::Image;
use stasis_store::layers::{OPAQUE, order};
use stasis_sys::files as sysfiles;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

/// Bytes a machine whose image exceeds its limit may write to remove files.
const SLACK: u64 = 1 << 20;

/// Why a machine was killed for its disk use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskExcess {
    /// Its files take more than it may have.
    Files,
    /// The files behind its descriptors and mappings cannot be counted: there are too many, or
    /// descriptors are in flight while the disk fills.
    Uncountable,
}

/// The result of a measurement.
pub(crate) struct DiskFinding {
    pub excess: Option<DiskExcess>,
    /// Bytes it may still write.
    pub left: u64,
    /// It may have files that were not counted, behind descriptors in flight.
    pub hides: bool,
}

/// One machine's disk use and limit.
pub struct DiskAccount {
    upper: PathBuf,
    /// Its init, in the host's numbering.
    init: i32,
    group: Weak<Cgroup>,
    limit: Mutex<Option<DiskLimit>>,
    /// The image it was restored from. Its tree keeps the image in use, so this need not.
    image: OnceLock<Weak<Manifest>>,
    /// Sizes of the image's first entries, computed on demand.
    sums: OnceLock<Vec<DiskUsage>>,
    ended: OnceLock<DiskExcess>,
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

    /// The size of a path and everything below it.
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
        FileEntryKind::Regular { runs, .. } => runs.iter().map(|run| u64::from(run.count)).sum(),
        _ => 0,
    };
    DiskUsage { bytes: pages * PAGE_SIZE as u64, files: 1 }
}

impl DiskAccount {
    pub fn new(
        upper: PathBuf,
        init: i32,
        group: &Arc<Cgroup>,
        limit: Option<DiskLimit>,
    ) -> DiskAccount {
        DiskAccount {
            upper,
            init,
            group: Arc::downgrade(group),
            limit: Mutex::new(limit),
            image: OnceLock::new(),
            sums: OnceLock::new(),
            ended: OnceLock::new(),
        }
    }

    pub(crate) fn upper(&self) -> &Path {
        &self.upper
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
        *self.limit.lock()
    }

    pub fn set_limit(&self, limit: Option<DiskLimit>) {
        *self.limit.lock() = limit;
    }

    /// Why the machine was ended, if it was because of its disk.
    pub fn ended_for(&self) -> Option<DiskExcess> {
        self.ended.get().copied()
    }

    pub(crate) fn note_end(&self, excess: DiskExcess) {
        let _ = self.ended.set(excess);
    }

    /// Everything the machine has; more than `most_files` if it does not hold still, or has more
    /// than can be counted.
    pub fn usage(&self, most_files: u64) -> DiskUsage {
        let uncounted = DiskUsage { bytes: 0, files: most_files.saturating_add(1) };
        self.measure(most_files, UnlinkedScope::Everywhere).map_or(uncounted, |all| all.usage)
    }

    /// The same, unless it cannot be counted.
    fn measure(&self, most_files: u64, places: UnlinkedScope) -> Option<UnlinkedFiles> {
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
            let usage = DiskUsage { bytes: 0, files: most_files.saturating_add(1) };
            return Some(UnlinkedFiles { usage, in_flight: false });
        };
        let below = below.map(|layer| layer.all()).unwrap_or_default();
        let open = unlinked::usage(self.init, self.group.upgrade().as_deref(), places)?;
        Some(UnlinkedFiles { usage: used + (below - hidden) + open.usage, ..open })
    }

    /// The machine's limit: at least its initial size.
    fn most(&self, limit: DiskLimit) -> DiskLimit {
        let Some(below) = self.below().map(|layer| layer.all()) else { return limit };
        let (bytes, files) = (limit.bytes, limit.files);
        DiskLimit {
            bytes: if below.bytes > bytes { below.bytes + SLACK } else { bytes },
            files: if below.files > files { below.files + SLACK / 1024 } else { files },
        }
    }

    /// Whether the machine has more than it may.
    pub(crate) fn look(&self, places: UnlinkedScope) -> DiskFinding {
        let Some(limit) = self.limit() else {
            return DiskFinding { excess: None, left: u64::MAX, hides: false };
        };
        let most = self.most(limit);
        let Some(UnlinkedFiles { usage: used, in_flight }) = self.measure(most.files, places)
        else {
            return DiskFinding { excess: Some(DiskExcess::Uncountable), left: 0, hides: false };
        };
        let over = used.bytes > most.bytes || used.files > most.files;
        let left = most.bytes.saturating_sub(used.bytes);
        DiskFinding { excess: over.then_some(DiskExcess::Files), left, hides: in_flight }
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
