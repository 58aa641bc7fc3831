//! A process as it was in the pause: what changed was copied then, if it was little; or a twin
//! holds all of it.

use super::copied::{Copied, Room};
use super::twin::Twin;
use super::{copied, pages, twin};
use crate::error::{Doing, Error, Result};
use crate::freeze::{Frozen, FrozenProcess};
use crate::tree::Tree;
use stasis_image::model::{Process, ProcessState};
use stasis_sandbox::cgroup;
use stasis_sys::pagemap::Region;

pub enum Still {
    Copied(Box<Copied>),
    Twin(Twin),
}

/// What copies and twins are made with.
pub struct Means<'a> {
    pub copies: Room,
    pub twins: &'a cgroup::Room<'a>,
}

/// Makes every live process stand still for good.
pub fn make_all(
    frozen: &Frozen,
    tree: &Tree,
    processes: &mut [Process],
    means: &mut Means,
) -> Result<Vec<Still>> {
    let live = frozen.processes.iter().zip(processes).filter(|(source, _)| source.live.is_some());
    live.map(|(source, process)| make(source, tree, process, means)).collect()
}

fn make(
    source: &FrozenProcess,
    tree: &Tree,
    process: &mut Process,
    means: &mut Means,
) -> Result<Still> {
    let ProcessState::Live(live) = &mut process.state else { return Err(Error::Gone) };
    let written = tree.take_changed(source.pid)?;
    // only of the root: any other process may end as soon as it runs again
    if let Some(written) = written.as_deref()
        && copied::may_be_small(written)
        && !tree.memo().twins_only
        && let Some(copied) = copied::copy(source, tree, written, live, &mut means.copies)?
    {
        return Ok(Still::Copied(Box::new(copied)));
    }
    let changed = match written {
        Some(written) => Some(with_untracked(&written, &pages::untracked(source.pid)?)),
        None => None,
    };
    means.twins.give();
    twin::make(source, tree, changed).map(Still::Twin)
}

/// Pages that are not registered with the tracker count as written.
pub fn with_untracked(written: &[Region], untracked: &[Region]) -> Vec<Region> {
    let mut changed = [written, untracked].concat();
    changed.sort_unstable_by_key(|region| region.start);
    changed
}

impl Still {
    /// In the machine's numbering.
    pub fn own_pid(&self) -> i32 {
        match self {
            Still::Copied(copied) => copied.own_pid,
            Still::Twin(twin) => twin.own_pid,
        }
    }

    pub fn twin(&self) -> Option<&Twin> {
        match self {
            Still::Twin(twin) => Some(twin),
            Still::Copied(_) => None,
        }
    }

    pub fn copied(&self) -> Option<&Copied> {
        match self {
            Still::Copied(copied) => Some(copied),
            Still::Twin(_) => None,
        }
    }

    /// Ranges written since the parent image, where known.
    pub fn changed(&self) -> Option<&[Region]> {
        match self {
            Still::Copied(copied) => Some(&copied.changed),
            Still::Twin(twin) => twin.changed.as_deref(),
        }
    }

    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let doing = || format!("read page {address:x} of process {}", self.own_pid());
        match self {
            Still::Copied(copied) => copied.read(address, bytes).doing(doing),
            Still::Twin(twin) => twin.memory.read(address, bytes).doing(doing),
        }
    }

    pub fn check_intact(&self) -> Result<()> {
        self.twin().map_or(Ok(()), Twin::check_intact)
    }
}
