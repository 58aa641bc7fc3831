//! Mappings, and where the pages behind them are stored.

use serde::{Deserialize, Serialize};

/// One mapping of a process, as `/proc/PID/smaps` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vma {
    pub start: u64,
    pub end: u64,
    /// PROT_READ | PROT_WRITE | PROT_EXEC.
    pub prot: u8,
    pub backing: Backing,
    pub traits: VmaTraits,
    /// Name given with PR_SET_VMA_ANON_NAME.
    pub name: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// Private anonymous memory.
    Anonymous,
    /// A file mapped MAP_PRIVATE; pages written to are in the image.
    PrivateFile { file: u32, offset: u64 },
    /// A file of the machine mapped MAP_SHARED; its contents belong to the file.
    SharedFile { path: String, offset: u64, writable: bool },
    /// Shared memory with no file name: anonymous shared, memfd, deleted shm, System V.
    Segment { segment: u32, offset: u64 },
    /// The contents of such memory mapped MAP_PRIVATE; pages written to are in the image.
    PrivateSegment { segment: u32, offset: u64 },
    /// System V shared memory, attached whole.
    Sysv { id: i32, writable: bool },
    /// The kernel's own pages (`[vdso]`, `[vvar]`, `[vvar_vclock]`).
    Kernel(KernelMapping),
    /// Anonymous memory that the kernel may empty at any time (MAP_DROPPABLE); comes back empty.
    /// The vdso's getrandom keeps its state there, which no two machines may share.
    Droppable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelMapping {
    Vdso,
    Vvar,
    VvarVclock,
}

/// Advice and flags that are not part of the protection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmaTraits {
    pub grows_down: bool,
    pub dont_fork: bool,
    pub wipe_on_fork: bool,
    pub locked: bool,
    pub huge: bool,
    pub no_huge: bool,
    pub mergeable: bool,
    pub dont_dump: bool,
    pub no_reserve: bool,
}

impl Vma {
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// The file that is mapped privately, by its place among the mapped files.
    pub fn file(&self) -> Option<u32> {
        match self.backing {
            Backing::PrivateFile { file, .. } => Some(file),
            _ => None,
        }
    }

    /// Whether pages of this mapping are stored in the image's packs.
    pub fn has_private_pages(&self) -> bool {
        matches!(
            self.backing,
            Backing::Anonymous | Backing::PrivateFile { .. } | Backing::PrivateSegment { .. }
        )
    }
}

/// A mapped file's identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MappedFile {
    pub path: String,
    pub size: u64,
    pub mtime_s: i64,
    pub mtime_ns: i64,
}

/// Shared memory with its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    pub kind: SegmentKind,
    pub size: u64,
    /// Page runs relative to the segment's start (`page` counts from 0).
    pub runs: Vec<PageRun>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentKind {
    /// mmap(MAP_SHARED | MAP_ANONYMOUS), or a deleted file that was mapped shared.
    Anonymous,
    Memfd {
        name: String,
        seals: u32,
    },
    /// System V shared memory, which a process attaches by id.
    Sysv {
        id: i32,
    },
}

/// The private pages of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessPages {
    pub pid: i32,
    /// Sorted by `page`, never overlapping. A page of an anonymous mapping in no run is zero.
    pub runs: Vec<PageRun>,
    /// Guard regions (MADV_GUARD_INSTALL): first address and end.
    pub guards: Vec<(u64, u64)>,
}

/// `count` pages from `page` on, stored one after another from `slot` on in pack `pack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRun {
    /// Virtual address divided by the page size.
    pub page: u64,
    pub count: u32,
    /// Index into `Meta::packs`.
    pub pack: u32,
    pub slot: u64,
}

impl PageRun {
    pub fn end(&self) -> u64 {
        self.page + u64::from(self.count)
    }

    /// The part of this run from `page` on, at most `count` pages long.
    pub fn slice(&self, page: u64, count: u32) -> PageRun {
        debug_assert!(page >= self.page && page + u64::from(count) <= self.end());
        PageRun { page, count, pack: self.pack, slot: self.slot + (page - self.page) }
    }

    /// Whether `next` simply continues this run, in memory and in the pack.
    pub fn continues_with(&self, next: &PageRun) -> bool {
        self.pack == next.pack
            && self.end() == next.page
            && self.slot + u64::from(self.count) == next.slot
            && self.count.checked_add(next.count).is_some()
    }
}

/// Appends `run`, merging it with the last one where it continues it.
pub fn push_run(runs: &mut Vec<PageRun>, run: PageRun) {
    match runs.last_mut() {
        Some(last) if last.continues_with(&run) => last.count += run.count,
        _ => runs.push(run),
    }
}
