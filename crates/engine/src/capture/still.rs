//! A process as it was in the pause: what changed was copied then, if it was little; or a twin
//! holds all of it.

use super::copied::{Copied, CopyBuffer, MappingList, ObservedProcess};
use super::pages::{AddressRange, TrackedPages};
use super::twin::Twin;
use super::{copied, pages, twin};
use crate::error::{Error, ErrorContext, Result};
use crate::freeze::{Frozen, FrozenProcess};
use crate::plan;
use crate::tree::Tree;
use stasis_sandbox::cgroup;
use stasis_sys::pagemap::Region;
use std::time::{Duration, Instant};

/// A stopped tree must have been copied by then, all its processes together.
const COPY_LIMIT: Duration = Duration::from_secs(60);

pub enum PausedMemory {
    Copied(Box<Copied>),
    Twin(Twin),
}

/// Parameters of copies and twins.
pub struct CopyResources<'a> {
    pub copies: CopyBuffer,
    pub twins: &'a cgroup::CopyHeadroom<'a>,
    /// Whether this pause has room for twins: what an earlier one was given may be used up.
    pub room: bool,
}

/// The root's memory as seen from outside: the pages written since the last image and, if they may
/// be few enough to copy, the location of all pages.
pub struct RootScan {
    pid: i32,
    written: Option<Vec<Region>>,
    seen: Option<ObservedProcess>,
}

impl RootScan {
    /// Reads the mappings, which say where pages are worth looking for; then finds the written
    /// pages and, if they are few, the others. The first capture of a tree compares contents and
    /// needs none of this.
    pub fn at(tree: &Tree) -> Result<RootScan> {
        let pid = tree.root;
        let may_copy = tree.knows_written() && !tree.memo().twins_only;
        let list = may_copy.then(|| MappingList::of(pid)).flatten();
        let anonymous =
            list.as_ref().map_or_else(|| last_anonymous(tree), |list| Ok(list.anonymous()))?;
        let tracked = tree.take_changed(pid, &anonymous)?;
        let Some(TrackedPages { written, own, guards }) = tracked else {
            return Ok(RootScan { pid, written: None, seen: None });
        };
        let seen = match list.filter(|_| copied::may_be_small(&written)) {
            Some(list) => {
                let own = pages::with_rest(pid, own, guards, &list.untracked())?;
                Some(list.with(own))
            }
            None => None,
        };
        Ok(RootScan { pid, written: Some(written), seen })
    }
}

/// Ranges that were anonymous in the last image.
fn last_anonymous(tree: &Tree) -> Result<Vec<AddressRange>> {
    let Some(last) = tree.last_image() else { return Ok(Vec::new()) };
    let live = plan::root_of(&last.manifest)?.live().ok_or(Error::Gone)?;
    Ok(copied::anonymous(&live.vmas))
}

/// Makes every live process stand still for good.
pub fn make_all(
    frozen: &Frozen,
    tree: &Tree,
    look: RootScan,
    means: &mut CopyResources,
) -> Result<Vec<PausedMemory>> {
    let live = frozen.processes.iter().filter(|source| source.live.is_some());
    let mut look = Some(look);
    let until = Instant::now() + COPY_LIMIT;
    live.map(|source| {
        let look = look.take_if(|look| look.pid == source.pid);
        make(source, tree, look, means, until)
    })
    .collect()
}

/// Only the root is scanned and copied: any other process may end as soon as it runs again.
fn make(
    source: &FrozenProcess,
    tree: &Tree,
    look: Option<RootScan>,
    means: &mut CopyResources,
    until: Instant,
) -> Result<PausedMemory> {
    let (written, seen) = look.map_or((None, None), |look| (look.written, look.seen));
    if let (Some(written), Some(seen)) = (&written, seen)
        && let Some(copied) = copied::copy(source, tree, written, seen, &mut means.copies)?
    {
        tree.adapt_tracking(source.pid, written, &copied.own.untracked)?;
        return Ok(PausedMemory::Copied(Box::new(copied)));
    }
    let changed = match written {
        Some(written) => {
            let untracked = pages::untracked(source.pid)?;
            tree.adapt_tracking(source.pid, &written, &untracked)?;
            Some(with_untracked(&written, &untracked))
        }
        None => None,
    };
    if !std::mem::replace(&mut means.room, true) {
        means.twins.give();
    }
    twin::make(source, tree, changed, until).map(PausedMemory::Twin)
}

/// Pages that are not registered with the tracker count as written.
pub fn with_untracked(written: &[Region], untracked: &[Region]) -> Vec<Region> {
    let mut changed = [written, untracked].concat();
    changed.sort_unstable_by_key(|region| region.start);
    changed
}

impl PausedMemory {
    /// In the machine's numbering.
    pub fn own_pid(&self) -> i32 {
        match self {
            PausedMemory::Copied(copied) => copied.own_pid,
            PausedMemory::Twin(twin) => twin.own_pid,
        }
    }

    pub fn twin(&self) -> Option<&Twin> {
        match self {
            PausedMemory::Twin(twin) => Some(twin),
            PausedMemory::Copied(_) => None,
        }
    }

    pub fn copied(&self) -> Option<&Copied> {
        match self {
            PausedMemory::Copied(copied) => Some(copied),
            PausedMemory::Twin(_) => None,
        }
    }

    /// Ranges written since the parent image, where known.
    pub fn changed(&self) -> Option<&[Region]> {
        match self {
            PausedMemory::Copied(copied) => Some(&copied.changed),
            PausedMemory::Twin(twin) => twin.changed.as_deref(),
        }
    }

    /// Memory that was copied in the pause, where it lies.
    pub fn copied_bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        self.copied()?.bytes(address, len)
    }

    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let doing = || format!("read page {address:x} of process {}", self.own_pid());
        let read = match self {
            PausedMemory::Copied(copied) => copied.read(address, bytes).doing(doing),
            PausedMemory::Twin(twin) => twin.memory.read(address, bytes).doing(doing),
        };
        // a machine may kill its own copy with its group: then it has no memory to read
        read.map_err(|error| self.check_intact().err().unwrap_or(error))
    }

    pub fn check_intact(&self) -> Result<()> {
        self.twin().map_or(Ok(()), Twin::check_intact)
    }
}
