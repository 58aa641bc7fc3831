//! Which pages of a process are there, and which were written.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

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

/// What to look for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Query {
    /// All of these must hold (after inversion).
    pub all: u64,
    /// At least one of these must hold (after inversion); 0: no condition.
    pub any: u64,
    /// Categories whose meaning is turned around.
    pub inverted: u64,
    /// What to report of each match.
    pub report: u64,
    /// Also write-protect what matches.
    pub protect: bool,
}

pub struct Pagemap {
    file: File,
    /// What the kernel writes answers to.
    regions: Vec<Region>,
}

const BATCH: usize = 4096;

impl Pagemap {
    pub fn open(pid: i32) -> io::Result<Pagemap> {
        let file = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(Pagemap { file, regions: vec![Region::default(); BATCH] })
    }

    /// Appends the matching ranges between two addresses.
    pub fn scan(
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
            // `walk_end` can be stale on large scans: fewer answers than asked for is the end
            match self.regions[..found].last() {
                Some(last) if found == BATCH => from = last.end,
                _ => return Ok(()),
            }
        }
    }
}

/// The argument of a scan that protects every page between two addresses and reports nothing, as
/// words, for a process that does it to itself.
pub fn arm_argument(start: u64, end: u64) -> [u64; 12] {
    let all = WP_ALLOWED | WRITTEN;
    [96, WP_MATCHING, start, end, 0, 0, 0, 0, 0, all, PRESENT | SWAPPED, 0]
}
