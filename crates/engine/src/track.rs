//! Which pages a running tree writes, by write-protection that the kernel lifts by itself.
//!
//! A template is registered with a userfaultfd in asynchronous write-protect mode, and hands that
//! on to its forks (`forks`); only what a clone has beyond its template is registered for itself,
//! or all of it if it was not forked from such a template. At each capture, in the pause, one walk
//! of the page tables tells which pages were written since the last and protects them again. Memory
//! mapped since then is not registered and counts as written. A tree whose memory came on demand
//! cannot be registered before it is all there: its first capture does that, and compares contents.
//! Where the kernel lacks all this (before 6.7) every capture compares contents.

use crate::capture::untracked;
use crate::error::{ErrorContext, Result};
use crate::plan::MemoryPlan;
use crate::proc;
use stasis_image::model::{PageRun, Vma};
use stasis_spawner::layout;
use stasis_sys::pagemap::{PRESENT, Pagemap, Query, Region, SWAPPED, WP_ALLOWED, WRITTEN};
use stasis_sys::{PAGE, uffd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

const TOP: u64 = 0x7fff_ffff_f000;
const WRITABLE: u8 = 2;

/// Spans of memory to register: what is or may be written. The many mappings of libraries that
/// hold no page of the process's own are left out; should one be written to after all, it counts
/// as written because it is not registered.
pub fn ranges(vmas: &[Vma], runs: &[PageRun]) -> Vec<(u64, u64)> {
    ranges_of(vmas, runs, |_| true)
}

/// Those of them in mappings that a template does not hand on as they are.
pub fn new_ranges(vmas: &[Vma], runs: &[PageRun], plan: &MemoryPlan) -> Vec<(u64, u64)> {
    let is_filled = |vma: &Vma| holds_pages(&plan.fills, vma);
    let is_mapped = |vma: &Vma| plan.mapped.iter().any(|index| vmas[*index].start == vma.start);
    ranges_of(vmas, runs, |vma| is_mapped(vma) || is_filled(vma))
}

fn holds_pages(runs: &[PageRun], vma: &Vma) -> bool {
    let next = runs.partition_point(|run| run.end() * PAGE <= vma.start);
    runs.get(next).is_some_and(|run| run.page * PAGE < vma.end)
}

fn ranges_of(vmas: &[Vma], runs: &[PageRun], wanted: impl Fn(&Vma) -> bool) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut broken = true;
    for vma in vmas {
        let may_be_written = vma.prot & WRITABLE != 0 || holds_pages(runs, vma);
        if !vma.has_private_pages() || !may_be_written || !wanted(vma) {
            broken = true;
            continue;
        }
        match ranges.last_mut() {
            Some(last) if !broken && !crosses_reserved(last.1, vma.start) => last.1 = vma.end,
            _ => ranges.push((vma.start, vma.end)),
        }
        broken = false;
    }
    ranges
}

/// The two parts of the address space around our own pages.
pub const AROUND_RESERVED: [(u64, u64); 2] = [(0, layout::RESERVED), (layout::RESERVED_END, TOP)];

fn crosses_reserved(end: u64, start: u64) -> bool {
    end <= layout::RESERVED && start >= layout::RESERVED_END
}

fn is_its_own(map: &proc::Mapping) -> bool {
    let ours = map.start < layout::RESERVED_END && map.end > layout::RESERVED;
    !ours && !map.shared && !map.path.starts_with("[v")
}

/// Registers ranges, and has all that is there and registered protected.
pub fn arm(uffd: BorrowedFd, pid: i32, ranges: &[(u64, u64)]) -> Result<()> {
    register(uffd, ranges)?;
    protect(pid).map(drop)
}

pub fn register(uffd: BorrowedFd, ranges: &[(u64, u64)]) -> Result<()> {
    let track = |(start, end): &(u64, u64)| uffd::register_writes(uffd, *start, end - start);
    ranges.iter().try_for_each(track).doing(|| "track memory".into())
}

/// Which registered pages were written since they were protected; they are protected again.
fn protect(pid: i32) -> Result<Vec<Region>> {
    let written = Query {
        all: WP_ALLOWED | WRITTEN,
        any: PRESENT | SWAPPED,
        inverted: 0,
        report: WRITTEN,
        protect: true,
    };
    let mut regions = Vec::new();
    let mut pagemap = Pagemap::open(pid).doing(|| format!("open the page map of {pid}"))?;
    pagemap.scan(0, TOP, written, &mut regions).doing(|| format!("scan pages of {pid}"))?;
    Ok(regions)
}

/// Write tracking of one process.
pub struct Tracker {
    /// Closing it would end the registration.
    uffd: Arc<OwnedFd>,
    registered: bool,
    /// Whether every write since the last image was seen.
    complete: bool,
}

impl Tracker {
    /// Of a process that is registered, and protected since its image was restored.
    pub fn new(uffd: Arc<OwnedFd>) -> Tracker {
        Tracker { uffd, registered: true, complete: true }
    }

    /// Of a process that is to be registered at its first capture.
    pub fn later(uffd: Arc<OwnedFd>) -> Tracker {
        Tracker { uffd, registered: false, complete: false }
    }

    /// Registered ranges written since the last call, of a process that stands still; tracking
    /// starts anew. Pages that are not registered come on top.
    pub fn take(&mut self, pid: i32) -> Result<Option<Vec<Region>>> {
        // if anything below fails the protections are half renewed: nothing is known any more
        let complete = std::mem::replace(&mut self.complete, false);
        if !self.registered {
            self.register(pid)?;
        }
        let regions = protect(pid)?;
        Ok(complete.then_some(regions))
    }

    /// Registers what may be written, and what else holds pages of the process's own. What is left
    /// out, or refused, counts as written.
    fn register(&mut self, pid: i32) -> Result<()> {
        let maps = proc::parse_maps(&proc::read_text(pid, "maps")?).unwrap_or_default();
        let (writable, rest): (Vec<_>, Vec<_>) =
            maps.iter().filter(|map| is_its_own(map)).partition(|map| map.prot & WRITABLE != 0);
        let register = |map: &proc::Mapping| {
            let _ = uffd::register_writes(self.uffd.as_fd(), map.start, map.end - map.start);
        };
        writable.into_iter().for_each(register);
        let left = untracked(pid)?;
        let holds_pages = |map: &&proc::Mapping| {
            let next = left.partition_point(|region| region.end <= map.start);
            left.get(next).is_some_and(|region| region.start < map.end)
        };
        rest.into_iter().filter(holds_pages).for_each(register);
        self.registered = true;
        Ok(())
    }

    /// The written pages of the last `take` are in an image: answers are complete from here on.
    pub fn captured(&mut self) {
        self.complete = true;
    }
}
