//! Which pages a running tree writes, by write-protection that the kernel lifts by itself.
//!
//! A restored root process is registered with a userfaultfd in asynchronous write-protect mode.
//! At each capture, in the pause, one walk of the page tables tells which pages were written since
//! the last and protects them again. Memory mapped since then is not registered and counts as
//! written. A tree whose memory came on demand cannot be registered before it is all there: its
//! first capture does that, and compares contents. Where the kernel lacks all this (before 6.7)
//! every capture compares contents.

use crate::error::{Doing, Result};
use crate::proc;
use stasis_image::model::{Run, Vma};
use stasis_spawner::layout;
use stasis_sys::pagemap::{PRESENT, Pagemap, Query, Region, SWAPPED, WP_ALLOWED, WRITTEN};
use stasis_sys::{PAGE, uffd};
use std::os::fd::{AsFd, OwnedFd};

const TOP: u64 = 0x7fff_ffff_f000;

/// Spans of memory to register: what is or may be written. The many mappings of libraries that
/// hold no page of the process's own are left out; should one be written to after all, it counts
/// as written because it is not registered.
pub fn ranges(vmas: &[Vma], runs: &[Run]) -> Vec<(u64, u64)> {
    const WRITABLE: u8 = 2;
    let holds_pages = |vma: &Vma| {
        let next = runs.partition_point(|run| run.end() * PAGE <= vma.start);
        runs.get(next).is_some_and(|run| run.page * PAGE < vma.end)
    };
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut broken = true;
    for vma in vmas {
        if !vma.has_private_pages() || (vma.prot & WRITABLE == 0 && !holds_pages(vma)) {
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

fn may_be_written(map: &proc::Mapping) -> bool {
    const WRITABLE: u8 = 2;
    let own = map.start < layout::RESERVED_END && map.end > layout::RESERVED;
    !own && !map.shared && map.prot & WRITABLE != 0
}

/// Write tracking of one process.
pub struct Tracker {
    /// Closing it would end the registration.
    uffd: OwnedFd,
    registered: bool,
    /// Whether every write since the last image was seen.
    complete: bool,
}

impl Tracker {
    /// Of a process that is registered, and protected since its image was restored.
    pub fn new(uffd: OwnedFd) -> Tracker {
        Tracker { uffd, registered: true, complete: true }
    }

    /// Of a process that is to be registered at its first capture.
    pub fn later(uffd: OwnedFd) -> Tracker {
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
        Ok(complete.then_some(regions))
    }

    /// Registers what is or may be written. What is left out, or refused, counts as written.
    fn register(&mut self, pid: i32) -> Result<()> {
        let maps = proc::parse_maps(&proc::read_text(pid, "maps")?).unwrap_or_default();
        for map in maps.iter().filter(|map| may_be_written(map)) {
            let _ = uffd::register_writes(self.uffd.as_fd(), map.start, map.end - map.start);
        }
        self.registered = true;
        Ok(())
    }

    /// The written pages of the last `take` are in an image: answers are complete from here on.
    pub fn captured(&mut self) {
        self.complete = true;
    }
}
