//! From the mappings a process has to the mappings it should have.
//!
//! Pure: a list of steps and of pages to fill, from two layouts. The hot path starts from a
//! template's layout and changes little; the cold path starts from nothing. A mapping is kept only
//! if it stays *one* mapping: where a program could call mremap over a range, the range must not
//! have become two.

use stasis_image::PackRoot;
use stasis_image::model::*;
use stasis_sys::PAGE;
use std::collections::HashMap;

/// One change to the address space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryStep {
    Unmap {
        start: u64,
        end: u64,
    },
    /// Lengthens a mapping in place.
    Grow {
        start: u64,
        end: u64,
        new_end: u64,
    },
    /// Maps the target's mapping with this index, replacing existing ones.
    Map {
        index: usize,
    },
    /// Gives the pages back: they read as zeros, or as the file, again.
    Discard {
        start: u64,
        end: u64,
    },
    Protect {
        start: u64,
        end: u64,
        prot: u8,
    },
    /// Puts a guard region up, or takes one down.
    Guard {
        start: u64,
        end: u64,
        up: bool,
    },
    /// Moves one of the kernel's own mappings.
    MoveKernel {
        kind: KernelMapping,
        from: u64,
        to: u64,
        len: u64,
    },
}

/// A layout to start from or to reach.
#[derive(Clone, Copy)]
pub struct Layout<'a> {
    pub vmas: &'a [Vma],
    pub runs: &'a [PageRun],
    pub packs: &'a [PackRef],
    pub files: &'a [MappedFile],
    pub guards: &'a [(u64, u64)],
}

/// The steps in order, and the pages to fill afterwards.
#[derive(Debug, Default, PartialEq)]
pub struct MemoryPlan {
    /// Before filling: pages are writable where they must be filled.
    pub before: Vec<MemoryStep>,
    /// Pages to fill, as runs of the target.
    pub fills: Vec<PageRun>,
    /// After filling: the protections the target has.
    pub after: Vec<MemoryStep>,
    /// Indexes of target mappings that were mapped anew.
    pub mapped: Vec<usize>,
}

const WRITE: u8 = 2;

/// How one target mapping is reached.
enum Way<'a> {
    Keep(&'a Vma),
    Grow(&'a Vma),
    Map,
}

pub fn plan(base: Layout, target: Layout) -> MemoryPlan {
    let mut plan = MemoryPlan::default();
    let ways: Vec<Way> = target.vmas.iter().map(|vma| way(&base, &target, vma)).collect();
    move_kernel(&base, &target, &mut plan);
    unmap_rest(&base, &target, &mut plan);
    let same = SamePages::new(&base, &target);
    for (index, (vma, way)) in target.vmas.iter().zip(&ways).enumerate() {
        let kept = match way {
            Way::Map => {
                if !matches!(vma.backing, Backing::Kernel(_)) {
                    plan.before.push(MemoryStep::Map { index });
                    plan.mapped.push(index);
                }
                None
            }
            Way::Keep(old) => Some((old.prot, vma.start, vma.end)),
            Way::Grow(old) => {
                let grow = MemoryStep::Grow { start: vma.start, end: old.end, new_end: vma.end };
                plan.before.push(grow);
                Some((old.prot, vma.start, old.end))
            }
        };
        pages(vma, kept, &same, &mut plan);
    }
    guards(&base, &target, &mut plan);
    plan
}

/// Guards of the base come down before anything is filled, those of the target go up after.
fn guards(base: &Layout, target: &Layout, plan: &mut MemoryPlan) {
    if base.guards == target.guards {
        return;
    }
    let kept = |start: u64| target.vmas.iter().any(|vma| vma.start <= start && start < vma.end);
    for (start, end) in base.guards.iter().copied().filter(|(start, _)| kept(*start)) {
        plan.before.push(MemoryStep::Guard { start, end, up: false });
    }
    for (start, end) in target.guards.iter().copied() {
        plan.after.push(MemoryStep::Guard { start, end, up: true });
    }
}

fn way<'a>(base: &Layout<'a>, target: &Layout, vma: &Vma) -> Way<'a> {
    let index = base.vmas.partition_point(|old| old.end <= vma.start);
    let Some(old) = base.vmas.get(index).filter(|old| old.start <= vma.start) else {
        return Way::Map;
    };
    if !same_backing(base, old, target, vma) || !same_nature(old, vma) {
        return Way::Map;
    }
    if old.end >= vma.end {
        return Way::Keep(old);
    }
    // only anonymous memory grows, only as a whole, and only into nothing
    let next = base.vmas.get(index + 1);
    let room = next.is_none_or(|next| next.start >= vma.end);
    let whole = old.start == vma.start && matches!(vma.backing, Backing::Anonymous);
    if room && whole { Way::Grow(old) } else { Way::Map }
}

/// Traits that cannot be changed by a call on an existing mapping.
fn same_nature(old: &Vma, new: &Vma) -> bool {
    old.traits.grows_down == new.traits.grows_down
        && old.traits.no_reserve == new.traits.no_reserve
        && old.name == new.name
        && (old.traits.huge, old.traits.no_huge) == (new.traits.huge, new.traits.no_huge)
        && old.traits.mergeable == new.traits.mergeable
        && old.traits.dont_dump == new.traits.dont_dump
}

fn same_backing(base: &Layout, old: &Vma, target: &Layout, new: &Vma) -> bool {
    match (&old.backing, &new.backing) {
        (Backing::Anonymous, Backing::Anonymous) => true,
        (
            Backing::PrivateFile { file: old_file, offset: old_offset },
            Backing::PrivateFile { file, offset },
        ) => {
            base.files.get(*old_file as usize) == target.files.get(*file as usize)
                && old_offset.wrapping_sub(old.start) == offset.wrapping_sub(new.start)
        }
        // shared mappings belong to one tree and are never inherited from a template
        _ => false,
    }
}

/// The kernel's pages are moved, never mapped: in pairs through an unused address, because the
/// target of one may still hold another.
fn move_kernel(base: &Layout, target: &Layout, plan: &mut MemoryPlan) {
    let find = |vmas: &[Vma], kind: KernelMapping| {
        vmas.iter().find(|vma| vma.backing == Backing::Kernel(kind)).map(|v| (v.start, v.len()))
    };
    let mut aside = stasis_spawner::layout::RESERVED_END - (16 << 20);
    let mut last = Vec::new();
    for kind in [KernelMapping::Vvar, KernelMapping::VvarVclock, KernelMapping::Vdso] {
        let (Some((from, len)), Some((to, _))) = (find(base.vmas, kind), find(target.vmas, kind))
        else {
            continue;
        };
        if from != to {
            plan.before.push(MemoryStep::MoveKernel { kind, from, to: aside, len });
            last.push(MemoryStep::MoveKernel { kind, from: aside, to, len });
            aside += len;
        }
    }
    plan.before.extend(last);
}

/// Everything of the base that no target mapping covers.
fn unmap_rest(base: &Layout, target: &Layout, plan: &mut MemoryPlan) {
    let kernel_stays = |vma: &Vma| {
        matches!(vma.backing, Backing::Kernel(_))
            && target.vmas.iter().any(|new| new.backing == vma.backing)
    };
    let mut steps = Vec::new();
    for old in base.vmas.iter().filter(|old| !kernel_stays(old)) {
        let mut at = old.start;
        let first = target.vmas.partition_point(|vma| vma.end <= old.start);
        for vma in target.vmas[first..].iter().take_while(|vma| vma.start < old.end) {
            if vma.start > at {
                steps.push(MemoryStep::Unmap { start: at, end: vma.start });
            }
            at = at.max(vma.end);
        }
        if at < old.end {
            steps.push(MemoryStep::Unmap { start: at, end: old.end });
        }
    }
    // before the kernel's pages come: their new place may be under something that goes
    plan.before.splice(0..0, steps);
}

/// Fills, discards and protections of one target mapping. `kept` is the protection and the part
/// that was there before.
fn pages(vma: &Vma, kept: Option<(u8, u64, u64)>, same: &SamePages, plan: &mut MemoryPlan) {
    if !vma.has_private_pages() {
        return;
    }
    let (first, last) = (vma.start / PAGE, vma.end / PAGE);
    let kept_pages = kept.map_or((0, 0), |(_, start, end)| (start / PAGE, end.min(vma.end) / PAGE));
    let (fills, discards) = same.compare(first, last, kept_pages);
    let old_prot = kept.map(|(prot, ..)| prot);
    let mapped_prot = old_prot.unwrap_or(vma.prot | if fills.is_empty() { 0 } else { WRITE });
    if old_prot.is_some() && !fills.is_empty() && mapped_prot & WRITE == 0 {
        let prot = mapped_prot | WRITE | 1;
        plan.before.push(MemoryStep::Protect { start: vma.start, end: vma.end, prot });
    }
    for (start, end) in discards {
        plan.before.push(MemoryStep::Discard { start: start * PAGE, end: end * PAGE });
    }
    let touched = !fills.is_empty() && (mapped_prot & WRITE == 0 || old_prot.is_none());
    if touched && vma.prot & WRITE == 0 || old_prot.is_some_and(|prot| prot != vma.prot) {
        plan.after.push(MemoryStep::Protect { start: vma.start, end: vma.end, prot: vma.prot });
    }
    plan.fills.extend(fills);
}

/// Tells which pages the base already holds with the right content.
struct SamePages<'a> {
    base: &'a [PageRun],
    target: &'a [PageRun],
    /// Base pack index to target pack index.
    packs: HashMap<u32, u32>,
}

impl<'a> SamePages<'a> {
    fn new(base: &Layout<'a>, target: &Layout<'a>) -> SamePages<'a> {
        let by_root: HashMap<PackRoot, u32> =
            target.packs.iter().enumerate().map(|(i, pack)| (pack.root, i as u32)).collect();
        let packs = base
            .packs
            .iter()
            .enumerate()
            .filter_map(|(i, pack)| Some((i as u32, *by_root.get(&pack.root)?)))
            .collect();
        SamePages { base: base.runs, target: target.runs, packs }
    }

    /// Runs to fill and page ranges to discard between two pages; `kept` is where the base's
    /// pages are still there.
    fn compare(&self, first: u64, last: u64, kept: (u64, u64)) -> (Vec<PageRun>, Vec<(u64, u64)>) {
        let (mut fills, mut discards) = (Vec::new(), Vec::new());
        let mut page = first;
        while page < last {
            let new = next_run(self.target, page);
            let old = next_run(self.base, page);
            let inside = page >= kept.0 && page < kept.1;
            let mut stop = edge(new, page, last).min(edge(old, page, last));
            stop = if inside {
                stop.min(kept.1)
            } else if page < kept.0 {
                stop.min(kept.0)
            } else {
                stop
            };
            let new = new.filter(|run| run.page <= page);
            let old = old.filter(|run| run.page <= page && inside);
            match (new, old) {
                (Some(new), Some(old)) if self.same(new, old, page) => {}
                (Some(new), _) => push_run(&mut fills, new.slice(page, (stop - page) as u32)),
                (None, Some(_)) => push_range(&mut discards, page, stop),
                (None, None) => {}
            }
            page = stop;
        }
        (fills, discards)
    }

    fn same(&self, new: &PageRun, old: &PageRun, page: u64) -> bool {
        self.packs.get(&old.pack) == Some(&new.pack)
            && old.slot + (page - old.page) == new.slot + (page - new.page)
    }
}

/// The run that holds `page`, or the next one after it.
fn next_run(runs: &[PageRun], page: u64) -> Option<&PageRun> {
    runs.get(runs.partition_point(|run| run.end() <= page))
}

/// Where the answer for `page` changes next, because of this run.
fn edge(run: Option<&PageRun>, page: u64, last: u64) -> u64 {
    match run {
        Some(run) if run.page <= page => run.end().min(last),
        Some(run) => run.page.min(last),
        None => last,
    }
}

fn push_range(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    match ranges.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ => ranges.push((start, end)),
    }
}
