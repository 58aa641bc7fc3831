//! A process as it was in the pause: what changed was copied then, if it was little; or a twin
//! holds all of it.

use super::copied::{Copied, Outline, Room, Seen};
use super::pages::Own;
use super::twin::Twin;
use super::{copied, pages, twin};
use crate::error::{Doing, Error, Result};
use crate::freeze::{Frozen, FrozenProcess};
use crate::plan;
use crate::tree::Tree;
use stasis_image::model::{Process, ProcessState};
use stasis_sandbox::cgroup;
use stasis_sys::PAGE;
use stasis_sys::pagemap::Region;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

pub enum Still {
    Copied(Box<Copied>),
    Twin(Twin),
}

/// What copies and twins are made with.
pub struct Means<'a> {
    pub copies: Room,
    pub twins: &'a cgroup::Room<'a>,
}

/// What the root's memory shows from outside: what was written since the last image, and, if that
/// may be little enough to copy, where everything is. Looked at in a thread of its own while the
/// other reads state, and then helps with the second half of the pages: together they are most of
/// a pause.
pub struct Look {
    pid: i32,
    written: Option<Vec<Region>>,
    seen: Option<Seen>,
}

/// What the one thread sees: what was written, and where everything is below the middle.
pub type Below = (Option<Vec<Region>>, Option<(Arc<Outline>, Own)>);

/// Looks at what was written, at the mappings, which it tells the other thread of, and at the pages
/// below `middle`.
pub fn look_below(tree: &Tree, middle: u64, tell: &Sender<Arc<Outline>>) -> Result<Below> {
    let written = tree.take_changed(tree.root)?;
    let small = written.as_deref().is_some_and(copied::may_be_small) && !tree.memo().twins_only;
    let Some(outline) = small.then(|| Outline::of(tree.root)).flatten().map(Arc::new) else {
        return Ok((written, None));
    };
    let _ = tell.send(outline.clone());
    let pages = outline.pages((pages::ALL.0, middle))?;
    Ok((written, Some((outline, pages))))
}

/// Looks at the pages above `middle`, once the mappings are told.
pub fn look_above(middle: u64, told: &Receiver<Arc<Outline>>) -> Result<Option<Own>> {
    let outline = told.recv().ok();
    outline.map(|outline| outline.pages((middle, pages::ALL.1))).transpose()
}

impl Look {
    pub fn join(tree: &Tree, (written, below): Below, above: Option<Own>) -> Look {
        let seen = below.zip(above).and_then(|((outline, below), above)| {
            Some(Arc::into_inner(outline)?.with(below.and(above)))
        });
        Look { pid: tree.root, written, seen }
    }
}

/// An address with about as many of the root's pages below as above, going by the last image.
pub fn middle(tree: &Tree) -> u64 {
    let Some(image) = tree.last_image() else { return pages::ALL.1 };
    let root = plan::root_of(&image.manifest).map_or(0, |root| root.pid);
    let runs = image.manifest.runs_of(root);
    let half = runs.iter().map(|run| u64::from(run.count)).sum::<u64>() / 2;
    let mut below = 0;
    let run = runs.iter().find(|run| {
        below += u64::from(run.count);
        below >= half
    });
    run.map_or(pages::ALL.1, |run| run.end() * PAGE)
}

/// Makes every live process stand still for good.
pub fn make_all(
    frozen: &Frozen,
    tree: &Tree,
    processes: &mut [Process],
    look: Look,
    means: &mut Means,
) -> Result<Vec<Still>> {
    let live = frozen.processes.iter().zip(processes).filter(|(source, _)| source.live.is_some());
    let mut look = Some(look);
    live.map(|(source, process)| {
        let look = look.take_if(|look| look.pid == source.pid);
        make(source, tree, process, look, means)
    })
    .collect()
}

/// Only the root is looked at and copied: any other process may end as soon as it runs again.
fn make(
    source: &FrozenProcess,
    tree: &Tree,
    process: &mut Process,
    look: Option<Look>,
    means: &mut Means,
) -> Result<Still> {
    let ProcessState::Live(live) = &mut process.state else { return Err(Error::Gone) };
    let (written, seen) = look.map_or((None, None), |look| (look.written, look.seen));
    if let (Some(written), Some(seen)) = (&written, seen)
        && let Some(copied) = copied::copy(source, tree, written, seen, live, &mut means.copies)?
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
