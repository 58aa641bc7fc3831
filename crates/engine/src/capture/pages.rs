//! Private pages, from processes that stand still to the sink.

use super::copied;
use super::pieces::{self, PieceRange};
use super::still::PausedMemory;
use crate::error::{Error, ErrorContext, Result};
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_store::Sink;
use stasis_sys::pagemap::{
    FILE, GUARD, PRESENT, Pagemap, Query, Region, SWAPPED, WP_ALLOWED, WRITTEN, ZERO_PAGE,
    guard_if_told,
};
use std::borrow::Cow;

const PAGE: u64 = PAGE_SIZE as u64;
const TOP: u64 = 0x7fff_ffff_f000;

/// A stopped process, its mappings and its own pages.
pub struct ScannedProcess<'a> {
    pub still: &'a PausedMemory,
    vmas: &'a [Vma],
    own: Cow<'a, OwnPages>,
}

/// Looks at the pages of every process.
pub fn scan_all<'a>(
    stills: &'a [PausedMemory],
    processes: &'a [Process],
) -> Result<Vec<ScannedProcess<'a>>> {
    let scan = |still: &'a PausedMemory| {
        let pid = still.own_pid();
        let process = processes.iter().find(|process| process.pid == pid);
        let vmas = process.and_then(Process::live).map_or(&[][..], |live| &live.vmas);
        let own = match still {
            PausedMemory::Copied(copied) => Cow::Borrowed(&copied.own),
            PausedMemory::Twin(twin) => Cow::Owned(own_pages(twin.pid, &copied::anonymous(vmas))?),
        };
        check_vdso(pid, vmas, &own.pages)?;
        Ok(ScannedProcess { still, vmas, own })
    };
    stills.iter().map(scan).collect()
}

impl ScannedProcess<'_> {
    /// Writes its pages to the sink.
    pub fn write(&self, sink: &mut Sink) -> Result<ProcessPages> {
        let runs = write_process(self.still, self.vmas, &self.own.pages, sink)?;
        Ok(self.as_pages(runs))
    }

    /// Its pages without reading any: what changed since the parent image is in `pack`, in slots
    /// that have the numbers of the pages. With how many these are.
    pub fn refer(&self, pack: u32, sink: &mut Sink) -> (ProcessPages, u64) {
        let parent = sink.parent().cloned();
        let parent_runs =
            parent.as_ref().map_or(&[][..], |image| image.manifest.runs_of(self.still.own_pid()));
        let (mut runs, mut referred) = (Vec::new(), 0);
        for (start, end, _) in intersect(&self.own.pages, self.vmas) {
            for (start, end, changed) in split_changed(start, end, self.still.changed()) {
                if changed {
                    let (page, count) = (start / PAGE, (end - start) / PAGE);
                    push_run(&mut runs, PageRun { page, count: count as u32, pack, slot: page });
                    referred += count;
                } else {
                    let take = |run| push_run(&mut runs, sink.inherited(run));
                    inherit_range(start, end, parent_runs, take);
                }
            }
        }
        (self.as_pages(runs), referred)
    }

    fn as_pages(&self, runs: Vec<PageRun>) -> ProcessPages {
        ProcessPages { pid: self.still.own_pid(), runs, guards: self.own.guards.clone() }
    }
}

/// First address and end.
pub type AddressRange = (u64, u64);

/// A process's own pages (present, not a file's, not the shared zero page).
#[derive(Clone)]
pub struct OwnPages {
    pub pages: Vec<Region>,
    /// The pages that are not registered for tracking.
    pub untracked: Vec<Region>,
    /// Guard regions, which have no pages but are not nothing.
    pub guards: Vec<AddressRange>,
}

/// `anonymous` are ranges in which no page can be a file's: looking at the page tables alone is
/// several times faster than looking at every page.
pub fn own_pages(pid: i32, anonymous: &[AddressRange]) -> Result<OwnPages> {
    let report = PRESENT | WP_ALLOWED | guard_if_told();
    let (guards, pages) = split_guards(scan(pid, anonymous, Query { report, ..OWN })?);
    let untracked = pages.iter().filter(|region| region.categories & WP_ALLOWED == 0);
    Ok(OwnPages { untracked: untracked.copied().collect(), guards, pages: joined(pages) })
}

/// Pages of its own that are registered for tracking.
pub struct TrackedPages {
    /// Those written since they were protected.
    pub written: Vec<Region>,
    pub own: Vec<Region>,
    pub guards: Vec<AddressRange>,
}

/// Finds the registered pages of a stopped process and protects those that were written, in one
/// walk.
pub fn take_tracked(pid: i32, anonymous: &[AddressRange]) -> Result<TrackedPages> {
    let report = WP_ALLOWED | WRITTEN | guard_if_told();
    let query = Query { all: WP_ALLOWED, report, protect: true, ..OWN };
    let (guards, pages) = split_guards(scan(pid, anonymous, query)?);
    let written = pages.iter().filter(|region| region.categories & WRITTEN != 0);
    Ok(TrackedPages { written: written.copied().collect(), own: joined(pages), guards })
}

/// All pages of a process, of which the registered ones are known. `rest` has all others.
pub fn with_rest(
    pid: i32,
    tracked: Vec<Region>,
    mut guards: Vec<AddressRange>,
    rest: &[AddressRange],
) -> Result<OwnPages> {
    let not = WP_ALLOWED | FILE | ZERO_PAGE;
    let query = Query { all: not, inverted: not, report: PRESENT | guard_if_told(), ..OWN };
    let (more, untracked) = split_guards(scan_ranges(pid, rest, query)?);
    guards.extend(more);
    guards.sort_unstable();
    let mut pages = [tracked, untracked.clone()].concat();
    // two lists in order, which a stable sort only merges
    pages.sort_by_key(|region| region.start);
    Ok(OwnPages { pages: joined(pages), untracked, guards })
}

/// Pages that are there. `scan` adds that they are neither a file's nor the shared zero page.
const OWN: Query =
    Query { all: 0, any: PRESENT | SWAPPED, inverted: 0, report: PRESENT, protect: false };

fn split_guards(told: Vec<Region>) -> (Vec<AddressRange>, Vec<Region>) {
    let (guards, pages): (Vec<Region>, Vec<Region>) =
        told.into_iter().partition(|region| region.categories & GUARD != 0);
    (guards.iter().map(|region| (region.start, region.end)).collect(), pages)
}

/// Pages of its own that are not registered for tracking.
pub fn untracked(pid: i32) -> Result<Vec<Region>> {
    let query = Query {
        all: WP_ALLOWED | FILE,
        any: PRESENT | SWAPPED,
        inverted: WP_ALLOWED | FILE,
        report: PRESENT,
        protect: false,
    };
    let mut regions = Vec::new();
    Pagemap::open(pid)
        .and_then(|mut pagemap| pagemap.scan(0, TOP, query, &mut regions))
        .doing(|| format!("scan pages of {pid}"))?;
    Ok(regions)
}

/// Regions that differ only in flags that do not matter here.
fn joined(regions: Vec<Region>) -> Vec<Region> {
    let mut joined: Vec<Region> = Vec::with_capacity(regions.len());
    for region in regions {
        match joined.last_mut() {
            Some(last) if last.end == region.start => last.end = region.end,
            _ => joined.push(region),
        }
    }
    joined
}

fn scan_ranges(pid: i32, ranges: &[AddressRange], query: Query) -> Result<Vec<Region>> {
    let mut regions = Vec::new();
    if ranges.is_empty() {
        return Ok(regions);
    }
    let mut walk = || -> std::io::Result<()> {
        let mut pagemap = Pagemap::open(pid)?;
        let mut scan =
            |(start, end): &AddressRange| pagemap.scan(*start, *end, query, &mut regions);
        ranges.iter().try_for_each(&mut scan)
    };
    walk().doing(|| format!("scan pages of {pid}"))?;
    Ok(regions)
}

fn scan(pid: i32, anonymous: &[AddressRange], wanted: Query) -> Result<Vec<Region>> {
    let query =
        |not: u64| Query { all: wanted.all | not, inverted: wanted.inverted | not, ..wanted };
    let mut regions = Vec::new();
    let mut walk = || -> std::io::Result<()> {
        let mut pagemap = Pagemap::open(pid)?;
        let mut at = 0;
        for (start, end) in anonymous {
            pagemap.scan(at, *start, query(FILE | ZERO_PAGE), &mut regions)?;
            pagemap.scan(*start, *end, query(ZERO_PAGE), &mut regions)?;
            at = *end;
        }
        pagemap.scan(at, TOP, query(FILE | ZERO_PAGE), &mut regions)
    };
    walk().doing(|| format!("scan pages of {pid}"))?;
    Ok(regions)
}

fn write_process(
    still: &PausedMemory,
    vmas: &[Vma],
    present: &[Region],
    sink: &mut Sink,
) -> Result<Vec<PageRun>> {
    let parent = sink.parent().cloned();
    let parent_runs =
        parent.as_ref().map_or(&[][..], |image| image.manifest.runs_of(still.own_pid()));
    let mut runs = Vec::new();
    // a restore needs the small ranges first: they come first in the pack, which the page cache has
    const LARGE: u64 = 8 << 20;
    let (mut ranges, mut large) = (Vec::new(), Vec::new());
    for (start, end, vma) in intersect(present, vmas) {
        for (start, end, changed) in split_changed(start, end, still.changed()) {
            if changed {
                let into = if end - start < LARGE { &mut ranges } else { &mut large };
                PieceRange::cut(start, end, vma, into);
            } else {
                inherit_range(start, end, parent_runs, |run| sink.inherit(run, &mut runs));
            }
        }
    }
    ranges.append(&mut large);
    let mut read = Vec::new();
    pieces::read_all(still, &ranges, |piece| {
        sink.keep_hashed(
            piece.start / PAGE,
            piece.bytes,
            piece.hashes,
            |number| find(parent_runs, number),
            &mut read,
        )
        .map_err(Error::from)
    })?;
    Ok(merged(runs, read))
}

/// Runs in the order of their addresses.
fn merged(runs: Vec<PageRun>, read: Vec<PageRun>) -> Vec<PageRun> {
    let mut all = [runs, read].concat();
    // a few lists in order, which a stable sort only merges
    all.sort_by_key(|run| run.page);
    let mut merged = Vec::with_capacity(all.len());
    all.into_iter().for_each(|run| push_run(&mut merged, run));
    merged
}

/// The kernel's code is not in the image; a page of it that was written to is the program's own.
fn check_vdso(pid: i32, vmas: &[Vma], present: &[Region]) -> Result<()> {
    let vdso = vmas.iter().find(|vma| vma.backing == Backing::Kernel(KernelMapping::Vdso));
    let Some(vdso) = vdso else { return Ok(()) };
    if present.iter().any(|region| region.start < vdso.end && region.end > vdso.start) {
        return Err(Error::refused(pid, "it wrote to the kernel's vdso"));
    }
    Ok(())
}

/// The parts of `regions` that lie in mappings with private pages.
fn intersect<'a>(regions: &[Region], vmas: &'a [Vma]) -> Vec<(u64, u64, &'a Vma)> {
    let mut parts = Vec::new();
    let mut private = vmas.iter().filter(|vma| vma.has_private_pages()).peekable();
    for region in regions {
        while private.peek().is_some_and(|vma| vma.end <= region.start) {
            private.next();
        }
        for vma in private.clone().take_while(|vma| vma.start < region.end) {
            let (start, end) = (region.start.max(vma.start), region.end.min(vma.end));
            if start < end {
                parts.push((start, end, vma));
            }
        }
    }
    parts
}

/// Cuts a range where it goes over from changed to unchanged. Unknown counts as changed.
pub fn split_changed(start: u64, end: u64, changed: Option<&[Region]>) -> Vec<(u64, u64, bool)> {
    let Some(changed) = changed else { return vec![(start, end, true)] };
    let mut parts = Vec::new();
    let mut at = start;
    let first = changed.partition_point(|region| region.end <= start);
    for region in changed[first..].iter().take_while(|region| region.start < end) {
        if region.start > at {
            parts.push((at, region.start, false));
        }
        let stop = region.end.min(end);
        parts.push((region.start.max(at), stop, true));
        at = stop;
    }
    if at < end {
        parts.push((at, end, false));
    }
    parts
}

/// Pages the tracker says were not written: the parent's, where it has them. Where it has none
/// there is nothing: what looks like a page is the mark of the protection, or the empty part of a
/// huge page.
fn inherit_range(start: u64, end: u64, parent: &[PageRun], mut take: impl FnMut(PageRun)) {
    let (page, last) = (start / PAGE, end / PAGE);
    let first = parent.partition_point(|run| run.end() <= page);
    for run in parent[first..].iter().take_while(|run| run.page < last) {
        let (from, to) = (run.page.max(page), run.end().min(last));
        take(run.slice(from, (to - from) as u32));
    }
}

/// The parent's run of one page.
fn find(runs: &[PageRun], page: u64) -> Option<PageRun> {
    let index = runs.partition_point(|run| run.end() <= page);
    runs.get(index).filter(|run| run.page <= page).map(|run| run.slice(page, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64) -> Region {
        Region { start, end, categories: 0 }
    }

    #[test]
    fn a_range_is_cut_at_every_change() {
        let changed = [region(0x2000, 0x3000), region(0x5000, 0x9000)];
        let parts = split_changed(0x1000, 0x6000, Some(&changed));
        assert_eq!(
            parts,
            [
                (0x1000, 0x2000, false),
                (0x2000, 0x3000, true),
                (0x3000, 0x5000, false),
                (0x5000, 0x6000, true)
            ]
        );
    }

    #[test]
    fn unknown_counts_as_changed() {
        assert_eq!(split_changed(1, 2, None), [(1, 2, true)]);
    }
}
