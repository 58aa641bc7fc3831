//! The present and the written pages of a process.
//!
//! One call covers a whole address space (Linux 6.7 and newer). Before that, the entries of
//! `/proc/PID/pagemap` are read mapping by mapping, which takes longer and does not show written
//! pages; requesting those is an error.

mod entries;

use crate::{check, probe};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// `PAGEMAP_SCAN`, an ioctl on `/proc/PID/pagemap` (Linux 6.7 and newer).
pub const PAGEMAP_SCAN: u64 = 0xc060_6610;

/// Write-protect async allowed here.
pub const WP_ALLOWED: u64 = 1 << 0;
pub const WRITTEN: u64 = 1 << 1;
pub const FILE: u64 = 1 << 2;
pub const PRESENT: u64 = 1 << 3;
pub const SWAPPED: u64 = 1 << 4;
pub const ZERO_PAGE: u64 = 1 << 5;
/// Part of a guard region (Linux 6.15 and newer tell).
pub const GUARD: u64 = 1 << 8;

/// Protect every matching page again, in the same walk.
const WP_MATCHING: u64 = 1;

#[repr(C)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// A range of pages with the same answers.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}

/// The pages to find.
#[derive(Debug, Clone, Copy, Default)]
pub struct Query {
    /// All of these must hold (after inversion).
    pub all: u64,
    /// At least one of these must hold (after inversion); 0: no condition.
    pub any: u64,
    /// Categories whose meaning is turned around.
    pub inverted: u64,
    /// The categories to report of each match.
    pub report: u64,
    /// Also write-protect matching pages.
    pub protect: bool,
}

impl Query {
    /// Whether a page with these categories matches.
    fn matches(&self, categories: u64) -> bool {
        let turned = categories ^ self.inverted;
        turned & self.all == self.all && (self.any == 0 || turned & self.any != 0)
    }
}

pub struct Pagemap {
    file: File,
    pid: i32,
    /// The buffer for the kernel's answers.
    regions: Vec<Region>,
}

const BATCH: usize = 4096;

impl Pagemap {
    pub fn open(pid: i32) -> io::Result<Pagemap> {
        let file = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(Pagemap { file, pid, regions: vec![Region::default(); BATCH] })
    }

    /// Appends the matching ranges between two addresses.
    pub fn scan(
        &mut self,
        start: u64,
        end: u64,
        query: Query,
        out: &mut Vec<Region>,
    ) -> io::Result<()> {
        if probe::has_pagemap_scan() {
            self.scan_at_once(start, end, query, out)
        } else {
            entries::scan(&self.file, self.pid, start..end, query, out)
        }
    }

    fn scan_at_once(
        &mut self,
        start: u64,
        end: u64,
        query: Query,
        out: &mut Vec<Region>,
    ) -> io::Result<()> {
        let mut from = start;
        loop {
            let mut argument = ScanArgument {
                size: size_of::<ScanArgument>() as u64,
                flags: if query.protect { WP_MATCHING } else { 0 },
                start: from,
                end,
                walk_end: 0,
                vec: self.regions.as_mut_ptr() as u64,
                vec_len: BATCH as u64,
                max_pages: 0,
                category_inverted: query.inverted,
                category_mask: query.all,
                category_anyof_mask: query.any,
                return_mask: query.report,
            };
            // SAFETY: the argument and the vector it points at outlive the call, and the vector
            // has room for `vec_len` regions.
            let found = check(
                unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) }
                    .into(),
            )? as usize;
            out.extend_from_slice(&self.regions[..found]);
            // `walk_end` can be stale on large scans: fewer answers than requested is the end
            match self.regions[..found].last() {
                Some(last) if found == BATCH => from = last.end,
                _ => return Ok(()),
            }
        }
    }
}

/// Whether this kernel has the call: an empty scan succeeds.
pub(crate) fn can_scan() -> bool {
    let nothing = Query { report: PRESENT, ..Query::default() };
    let own = Pagemap::open(std::process::id() as i32);
    own.is_ok_and(|mut map| map.scan_at_once(0, crate::PAGE, nothing, &mut Vec::new()).is_ok())
}

/// `GUARD`, on kernels that tell it: others refuse to be asked.
pub fn guard_if_told() -> u64 {
    static TOLD: OnceLock<u64> = OnceLock::new();
    *TOLD.get_or_init(|| {
        let query = Query { any: PRESENT, report: PRESENT | GUARD, ..Query::default() };
        let own = Pagemap::open(std::process::id() as i32);
        let told = own.and_then(|mut map| map.scan(0, crate::PAGE, query, &mut Vec::new()));
        if told.is_ok() { GUARD } else { 0 }
    })
}

/// The argument of a scan that protects every page between two addresses and reports nothing, as
/// words, for a process that does it to itself.
pub fn arm_argument(start: u64, end: u64) -> [u64; 12] {
    let all = WP_ALLOWED | WRITTEN;
    [96, WP_MATCHING, start, end, 0, 0, 0, 0, 0, all, PRESENT | SWAPPED, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways tell the same of memory with pages written, read, given back and never touched.
    #[test]
    fn entries_tell_what_one_call_tells() {
        if !probe::has_pagemap_scan() {
            return;
        }
        let memory = vec![0u8; 64 << 20]; // from the kernel, and not touched yet
        let start = (memory.as_ptr() as u64).next_multiple_of(crate::PAGE);
        let end = start + (48 << 20);
        for page in [3, 4, 5, 900, 9000] {
            // SAFETY: inside the vector, which is ours.
            unsafe { ((start + page * crate::PAGE) as *mut u8).write_volatile(1) };
        }
        // SAFETY: as above; reading brings in the shared zero page.
        unsafe { ((start + 70 * crate::PAGE) as *const u8).read_volatile() };
        let own = Query {
            all: FILE | ZERO_PAGE,
            inverted: FILE | ZERO_PAGE,
            any: PRESENT | SWAPPED,
            report: PRESENT | SWAPPED,
            protect: false,
        };
        let there = Query { any: PRESENT | SWAPPED, report: PRESENT | FILE, ..Query::default() };
        let mut pagemap = Pagemap::open(std::process::id() as i32).unwrap();
        for query in [own, there] {
            let (mut at_once, mut read) = (Vec::new(), Vec::new());
            pagemap.scan_at_once(start, end, query, &mut at_once).unwrap();
            entries::scan(&pagemap.file, pagemap.pid, start..end, query, &mut read).unwrap();
            assert_eq!(at_once, read);
            assert!(!read.is_empty());
        }
    }
}
