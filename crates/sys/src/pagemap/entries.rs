//! The page map read entry by entry, eight bytes for each page of each mapping.

use super::{FILE, GUARD, PRESENT, Query, Region, SWAPPED, WP_ALLOWED, WRITTEN, ZERO_PAGE};
use crate::PAGE;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Bits of an entry.
const FRAME: u64 = (1 << 55) - 1;
const ENTRY_GUARD: u64 = 1 << 58;
const ENTRY_FILE: u64 = 1 << 61;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_PRESENT: u64 = 1 << 63;

/// Entries read at a time.
const BATCH: u64 = 64 << 10;
/// Programs reserve much more than they use: for mappings from this size on, the kernel is first
/// asked whether they have any pages.
const LARGE: u64 = 256 << 20;

pub fn scan(
    file: &File,
    pid: i32,
    range: Range<u64>,
    query: Query,
    out: &mut Vec<Region>,
) -> io::Result<()> {
    if query.protect || (query.all | query.any) & (WP_ALLOWED | WRITTEN) != 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let zero = zero_frame();
    let mut buffer = vec![0; (BATCH * 8) as usize];
    for mapping in mappings(pid)? {
        let mut at = mapping.start.max(range.start);
        let end = mapping.end.min(range.end);
        while at < end {
            let count = ((end - at) / PAGE).min(BATCH);
            let bytes = &mut buffer[..(count * 8) as usize];
            file.read_exact_at(bytes, at / PAGE * 8)?;
            for (index, entry) in bytes.chunks_exact(8).enumerate() {
                let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
                let categories = categories(entry, zero);
                if query.matches(categories) {
                    push(out, at + index as u64 * PAGE, categories & query.report);
                }
            }
            at += count * PAGE;
        }
    }
    Ok(())
}

fn push(out: &mut Vec<Region>, page: u64, categories: u64) {
    match out.last_mut() {
        Some(last) if last.end == page && last.categories == categories => last.end += PAGE,
        _ => out.push(Region { start: page, end: page + PAGE, categories }),
    }
}

fn categories(entry: u64, zero: Option<u64>) -> u64 {
    let is_zero = entry & ENTRY_PRESENT != 0 && zero == Some(entry & FRAME);
    [
        (entry & ENTRY_PRESENT != 0, PRESENT),
        (entry & ENTRY_SWAPPED != 0, SWAPPED),
        (entry & ENTRY_FILE != 0, FILE),
        (entry & ENTRY_GUARD != 0, GUARD),
        (is_zero, ZERO_PAGE),
    ]
    .iter()
    .fold(0, |all, (holds, bit)| if *holds { all | bit } else { all })
}

/// The frame of the page that all memory reads as before it is written. Without the right to see
/// frames it is not known; its copies then count as pages of their own, which are all zeros.
fn zero_frame() -> Option<u64> {
    static FRAME_OF_ZERO: OnceLock<Option<u64>> = OnceLock::new();
    *FRAME_OF_ZERO.get_or_init(|| {
        let fresh = vec![0u8; 1 << 20]; // so large that it comes from the kernel, untouched
        let page = (fresh.as_ptr() as u64).next_multiple_of(PAGE) + 4 * PAGE;
        std::hint::black_box(fresh[(page - fresh.as_ptr() as u64) as usize]);
        let mut entry = [0; 8];
        let map = File::open("/proc/self/pagemap").ok()?;
        map.read_exact_at(&mut entry, page / PAGE * 8).ok()?;
        let entry = u64::from_ne_bytes(entry);
        (entry & ENTRY_PRESENT != 0 && entry & FRAME != 0).then_some(entry & FRAME)
    })
}

/// Mappings that may hold pages, in order.
fn mappings(pid: i32) -> io::Result<Vec<Range<u64>>> {
    let all = ranges(&std::fs::read_to_string(format!("/proc/{pid}/maps"))?);
    if all.iter().all(|mapping| mapping.end - mapping.start < LARGE) {
        return Ok(all);
    }
    let empty = empty(&std::fs::read_to_string(format!("/proc/{pid}/smaps"))?);
    Ok(all.into_iter().filter(|mapping| !empty.contains(mapping)).collect())
}

fn range_of(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

fn ranges(maps: &str) -> Vec<Range<u64>> {
    let top = 1 << 47; // beyond are the kernel's own
    maps.lines().filter_map(range_of).filter(|range| range.end <= top).collect()
}

/// Large mappings without a page in memory or in swap.
fn empty(smaps: &str) -> Vec<Range<u64>> {
    let mut empty = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        if let Some(range) = range_of(line) {
            empty.extend(candidate.take());
            candidate = (range.end - range.start >= LARGE).then_some(range);
        } else if let Some(("Rss" | "Swap", value)) = line.split_once(':')
            && !value.trim().starts_with("0 ")
        {
            candidate = None;
        }
    }
    empty.extend(candidate);
    empty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_mappings_without_pages_are_passed_over() {
        let mapping = |range: &str, rss: u32, swap: u32| {
            format!("{range} rw-p 00000000 00:00 0\nRss:  {rss} kB\nSwap:  {swap} kB\n")
        };
        let smaps = [
            mapping("10000000-20000000", 0, 0),
            mapping("20000000-20001000", 0, 0),
            mapping("30000000-50000000", 4, 0),
            mapping("50000000-70000000", 0, 40),
            mapping("70000000-90000000", 0, 0),
        ]
        .concat();
        assert_eq!(empty(&smaps), [0x10000000..0x20000000, 0x70000000..0x90000000]);
        assert_eq!(ranges(&smaps).len(), 5);
    }
}
