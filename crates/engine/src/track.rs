//! Which pages a running tree writes, by write-protection that the kernel lifts by itself.
//!
//! A template is registered with a userfaultfd in asynchronous write-protect mode, which its forks
//! inherit (`forks`). Only the memory that a clone has beyond its template is registered
//! separately, or all of it if it was not forked from such a template. At each capture, in the
//! pause, one walk of the page tables finds the pages written since the last one and protects them
//! again. Memory mapped since then is not registered and counts as written; the capture that finds
//! much of it registers it for the next. A tree whose memory is filled on demand cannot be
//! registered before it is complete: its first capture does that, and compares contents. Where the
//! kernel lacks all this (before 6.7) every capture compares contents.
//!
//!   new memory ─► registered at its first capture ─┬─ little of it is written ─► stays
//!                                                  └─ most of it, and it is large ─► let go of
//!
//! The first write to a protected page costs a fault, and splits its huge page. A program that
//! writes large memory repeatedly would pay that for nothing, because all of it is saved each time.
//! Such memory is unregistered and becomes huge pages again. It is registered again after a capture
//! that finds most of it unchanged.

use crate::capture::{self, TrackedPages, untracked};
use crate::error::{ErrorContext, Result};
use crate::plan::MemoryPlan;
use crate::proc;
use stasis_image::model::{PageRun, Vma};
use stasis_spawner::layout;
use stasis_store::PageCounts;
use stasis_sys::pagemap::{PRESENT, Pagemap, Query, Region, SWAPPED, WP_ALLOWED, WRITTEN};
use stasis_sys::{PAGE, uffd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

const TOP: u64 = 0x7fff_ffff_f000;
const ALL: (u64, u64) = (0, TOP);
const WRITABLE: u8 = 2;
/// Pages of a mapping that are worth registering it.
const WORTH: u64 = 1 << 20;
/// A mapping is unregistered if this much of it, and half of it, was written.
const REWRITTEN: u64 = 64 << 20;

/// Spans of memory to register: memory that is or may be written. The many mappings of libraries
/// without pages of the process's own are left out; if one is written to, it counts as written
/// because it is not registered.
pub fn ranges(vmas: &[Vma], runs: &[PageRun]) -> Vec<(u64, u64)> {
    ranges_of(vmas, runs, |_| true)
}

/// The spans in mappings that a template does not pass on unchanged.
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
    protect(pid, ALL).map(drop)
}

pub fn register(uffd: BorrowedFd, ranges: &[(u64, u64)]) -> Result<()> {
    let track = |(start, end): &(u64, u64)| uffd::register_writes(uffd, *start, end - start);
    ranges.iter().try_for_each(track).doing(|| "track memory".into())
}

/// Which registered pages between two addresses were written since they were protected; they are
/// protected again.
fn protect(pid: i32, (start, end): (u64, u64)) -> Result<Vec<Region>> {
    let written = Query {
        all: WP_ALLOWED | WRITTEN,
        any: PRESENT | SWAPPED,
        inverted: 0,
        report: WRITTEN,
        protect: true,
    };
    let mut regions = Vec::new();
    let mut pagemap = Pagemap::open(pid).doing(|| format!("open the page map of {pid}"))?;
    pagemap.scan(start, end, written, &mut regions).doing(|| format!("scan pages of {pid}"))?;
    Ok(regions)
}

/// Write tracking of one process.
pub struct Tracker {
    /// Closing it would end the registration.
    uffd: Arc<OwnedFd>,
    registered: bool,
    /// Whether every write since the last image was seen.
    complete: bool,
    /// Mappings that are written over and over. They are not registered.
    rewritten: Vec<(u64, u64)>,
    /// The spans whose huge pages were split.
    split: Vec<(u64, u64)>,
}

impl Tracker {
    /// For a process that is registered, and protected since its image was restored.
    pub fn new(uffd: Arc<OwnedFd>) -> Tracker {
        Tracker { registered: true, complete: true, ..Tracker::later(uffd) }
    }

    /// For a process that will be registered at its first capture.
    pub fn later(uffd: Arc<OwnedFd>) -> Tracker {
        let (rewritten, split) = (Vec::new(), Vec::new());
        Tracker { uffd, registered: false, complete: false, rewritten, split }
    }

    /// Whether every write since the last image was seen.
    pub fn is_complete(&self) -> bool {
        self.complete && self.registered
    }

    /// Registered pages of a stopped process, and those written since the last call; tracking
    /// starts anew. Unregistered pages come on top. `anonymous` are ranges in which no page can be
    /// a file's.
    pub fn take(&mut self, pid: i32, anonymous: &[(u64, u64)]) -> Result<Option<TrackedPages>> {
        // if anything below fails the protections are half renewed: nothing is known any more
        let complete = std::mem::replace(&mut self.complete, false);
        if !self.registered {
            self.register(pid)?;
        }
        let pages = capture::take_tracked(pid, anonymous)?;
        Ok(complete.then_some(pages))
    }

    /// Registers memory that may be written, and other memory with pages of the process's own.
    /// Memory that is left out, or refused, counts as written.
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

    /// Registers mappings of a stopped process in which many pages are `untracked`, and unregisters
    /// those that are `written` repeatedly. All of them count as written this time.
    pub fn adapt(&mut self, pid: i32, written: &[Region], untracked: &[Region]) -> Result<()> {
        if bytes_of(untracked) < WORTH && bytes_of(written) < REWRITTEN {
            return Ok(());
        }
        let maps = proc::parse_maps(&proc::read_text(pid, "maps")?).unwrap_or_default();
        for map in maps.iter().filter(|map| is_its_own(map)) {
            let range = (map.start, map.end);
            let rewritten = bytes_in(written, range);
            if rewritten >= REWRITTEN && rewritten * 2 >= map.end - map.start {
                self.let_go(range);
            } else if bytes_in(untracked, range) >= WORTH && !overlaps(&self.rewritten, range) {
                let (uffd, len) = (self.uffd.as_fd(), map.end - map.start);
                // refused ranges count as written, as before
                if uffd::register_writes(uffd, map.start, len).is_ok() {
                    protect(pid, range)?;
                }
            }
        }
        Ok(())
    }

    fn let_go(&mut self, (start, end): (u64, u64)) {
        if uffd::unregister(self.uffd.as_fd(), start, end - start).is_ok() {
            self.rewritten.retain(|own| !overlaps(&[*own], (start, end)));
            self.rewritten.push((start, end));
            self.split.push((start, end));
        }
    }

    /// The written pages of the last `take` are in an image: answers are complete from here on.
    /// Returns the ranges that lost their huge pages.
    pub fn captured(&mut self, pages: &PageCounts) -> Vec<(u64, u64)> {
        self.complete = true;
        if pages.new * 2 < pages.read {
            self.rewritten.clear();
        }
        std::mem::take(&mut self.split)
    }
}

fn bytes_of(regions: &[Region]) -> u64 {
    regions.iter().map(|region| region.end - region.start).sum()
}

/// How much of sorted regions lies in a range.
fn bytes_in(regions: &[Region], (start, end): (u64, u64)) -> u64 {
    let first = regions.partition_point(|region| region.end <= start);
    let inside = regions[first..].iter().take_while(|region| region.start < end);
    inside.map(|region| region.end.min(end) - region.start.max(start)).sum()
}

fn overlaps(ranges: &[(u64, u64)], (start, end): (u64, u64)) -> bool {
    ranges.iter().any(|own| own.0 < end && start < own.1)
}
