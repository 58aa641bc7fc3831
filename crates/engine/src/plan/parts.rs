//! Parts of a process's memory: those a template holds, those filled on demand, and those worth
//! huge pages.

use super::memory::Layout;
use stasis_image::model::*;
use stasis_sys::PAGE;
use std::collections::BTreeMap;

/// The memory of one process of an image.
pub fn layout_of<'a>(manifest: &'a Manifest, pid: i32, live: &'a LiveProcess) -> Layout<'a> {
    let memory = manifest.memory.iter().find(|memory| memory.pid == pid);
    Layout {
        vmas: &live.vmas,
        runs: memory.map_or(&[], |memory| &memory.runs),
        packs: &manifest.meta.packs,
        files: &manifest.meta.mapped_files,
        guards: memory.map_or(&[], |memory| &memory.guards),
    }
}

/// The mappings a template of this process holds. Where a file is mapped in pieces that could be
/// one, the kernel makes them one some day: a template in one piece is of use before and after.
pub fn parked(live: &LiveProcess) -> Vec<Vma> {
    let mut held: Vec<Vma> = Vec::with_capacity(live.vmas.len());
    for vma in live.vmas.iter().filter(|vma| parks(vma)) {
        match held.last_mut() {
            Some(last) if goes_on(last, vma) => last.end = vma.end,
            _ => held.push(vma.clone()),
        }
    }
    held
}

/// Whether a mapping of a file is like the one before it, and begins where that ends.
fn goes_on(last: &Vma, next: &Vma) -> bool {
    let Backing::PrivateFile { file, offset } = last.backing else { return false };
    let backing = Backing::PrivateFile { file, offset: offset + last.len() };
    let alike = (last.prot, last.traits, &last.name) == (next.prot, next.traits, &next.name);
    alike && last.end == next.start && next.backing == backing
}

/// Whether a template holds this mapping. Shared ones belong to a tree, and of what may be dropped
/// nothing is held.
pub fn parks(vma: &Vma) -> bool {
    !matches!(
        vma.backing,
        Backing::SharedFile { .. }
            | Backing::Segment { .. }
            | Backing::PrivateSegment { .. }
            | Backing::Sysv { .. }
            | Backing::Droppable
    )
}

/// Runs outside the mappings that are filled on demand. A run never crosses from one mapping to
/// another of the other kind without being cut: planning works mapping by mapping, and captured
/// runs are cut here.
pub(super) fn without_lazy(runs: &[PageRun], vmas: &[Vma], lazy: &[usize]) -> Vec<PageRun> {
    if lazy.is_empty() {
        return runs.to_vec();
    }
    let mut left = Vec::new();
    for run in runs {
        let mut page = run.page;
        for vma in lazy.iter().map(|index| &vmas[*index]) {
            let (first, last) = (vma.start / PAGE, vma.end / PAGE);
            if last <= page || first >= run.end() {
                continue;
            }
            if first > page {
                left.push(run.slice(page, (first - page) as u32));
            }
            page = last.min(run.end());
        }
        if page < run.end() {
            left.push(run.slice(page, (run.end() - page) as u32));
        }
    }
    left
}

/// Runs in anonymous memory, and the others.
pub(super) fn split_anonymous(fills: &[PageRun], vmas: &[Vma]) -> (Vec<PageRun>, Vec<PageRun>) {
    fills.iter().partition(|run| {
        mapping_at(vmas, run.page * PAGE).is_some_and(|vma| vma.backing == Backing::Anonymous)
    })
}

/// Where runs lie in mappings that a template handed down, whose pages are there.
pub(super) fn inherited_spans(runs: &[PageRun], vmas: &[Vma], mapped: &[usize]) -> Vec<(u64, u64)> {
    let is_new = |vma: &Vma| mapped.iter().any(|index| vmas[*index].start == vma.start);
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for run in runs {
        let (start, end) = (run.page * PAGE, run.end() * PAGE);
        match spans.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ if mapping_at(vmas, start).is_some_and(is_new) => {}
            _ => spans.push((start, end)),
        }
    }
    spans
}

/// The mappings that runs lie in, neighbours in one piece.
pub(super) fn spans(runs: &[PageRun], vmas: &[Vma]) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for vma in runs.iter().filter_map(|run| mapping_at(vmas, run.page * PAGE)) {
        match spans.last_mut() {
            Some(last) if vma.start < last.1 => {}
            Some(last) if vma.start == last.1 => last.1 = vma.end,
            _ => spans.push((vma.start, vma.end)),
        }
    }
    spans
}

fn mapping_at(vmas: &[Vma], address: u64) -> Option<&Vma> {
    let vma = vmas.get(vmas.partition_point(|vma| vma.end <= address))?;
    (vma.start <= address).then_some(vma)
}

pub(super) const HUGE: u64 = 2 << 20;
/// How many of the 512 pages of a huge page must be filled for it to be worthwhile.
const DENSE: u64 = 192;

/// Aligned huge ranges inside anonymous mappings that are mostly filled, neighbours in one piece.
pub(super) fn dense_ranges(fills: &[PageRun], vmas: &[Vma]) -> Vec<(u64, u64)> {
    let mut filled: BTreeMap<u64, u64> = BTreeMap::new();
    for run in fills {
        let (mut page, end) = (run.page, run.end());
        while page < end {
            let huge = page * PAGE / HUGE * HUGE;
            let stop = ((huge + HUGE) / PAGE).min(end);
            *filled.entry(huge).or_default() += stop - page;
            page = stop;
        }
    }
    let inside = |start: u64| {
        let index = vmas.partition_point(|vma| vma.end <= start);
        vmas.get(index).is_some_and(|vma| {
            let whole = vma.start <= start && start + HUGE <= vma.end;
            whole && vma.backing == Backing::Anonymous && !vma.traits.no_huge
        })
    };
    let dense = filled.into_iter().filter(|(start, pages)| *pages >= DENSE && inside(*start));
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (start, _) in dense {
        match ranges.last_mut() {
            Some((_, end)) if *end == start => *end += HUGE,
            _ => ranges.push((start, start + HUGE)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(start: u64, end: u64, prot: u8, offset: u64) -> Vma {
        let backing = Backing::PrivateFile { file: 1, offset };
        Vma { start, end, prot, backing, traits: VmaTraits::default(), name: None }
    }

    #[test]
    fn pieces_go_on_if_they_are_alike_and_without_a_gap() {
        let first = vma(0x1000, 0x2000, 3, 0x5000);
        assert!(goes_on(&first, &vma(0x2000, 0x4000, 3, 0x6000)));
        assert!(!goes_on(&first, &vma(0x2000, 0x4000, 1, 0x6000)));
        assert!(!goes_on(&first, &vma(0x2000, 0x4000, 3, 0x7000)));
        assert!(!goes_on(&first, &vma(0x3000, 0x4000, 3, 0x6000)));
    }
}
