//! A process as it was in the pause: what changed was copied then, if it was little; or a twin
//! holds all of it.

use super::copied::{Copied, Outline, Pages, Room, Seen};
use super::twin::Twin;
use super::{copied, pages, twin};
use crate::error::{Doing, Error, Result};
use crate::freeze::{Frozen, FrozenProcess};
use crate::plan;
use crate::tree::Tree;
use stasis_sandbox::cgroup;
use stasis_sys::pagemap::Region;
use std::sync::mpsc::Sender;

pub enum Still {
    Copied(Box<Copied>),
    Twin(Twin),
}

/// What copies and twins are made with.
pub struct Means<'a> {
    pub copies: Room,
    pub twins: &'a cgroup::Room<'a>,
    /// Whether this pause has room for twins: what an earlier one was given may be used up.
    pub room: bool,
}

/// What the root's memory shows from outside: what was written since the last image, and, if that
/// may be little enough to copy, where everything is.
pub struct Look {
    pid: i32,
    written: Option<Vec<Region>>,
    seen: Option<Seen>,
}

/// What a thread of its own sees while another reads state and mappings: together they are most of
/// a pause.
pub struct Glance {
    written: Option<Vec<Region>>,
    pages: Option<Pages>,
}

impl Glance {
    /// Looks at what was written and, if that is little, says so to the other and looks at pages.
    pub fn at(tree: &Tree, tell: &Sender<()>) -> Result<Glance> {
        let written = tree.take_changed(tree.root)?;
        let small = written.as_deref().is_some_and(copied::may_be_small);
        let last = tree.last_image().filter(|_| small && !tree.memo().twins_only);
        let Some(last) = last else { return Ok(Glance { written, pages: None }) };
        let _ = tell.send(());
        let live = plan::root_of(&last.manifest)?.live().ok_or(Error::Gone)?;
        Ok(Glance { written, pages: Some(Pages::of(tree.root, live)?) })
    }

    pub fn with(self, tree: &Tree, outline: Option<Outline>) -> Result<Look> {
        let (pid, seen) = (tree.root, self.pages.zip(outline));
        let seen = seen.map(|(pages, outline)| outline.with(pid, pages)).transpose()?;
        Ok(Look { pid, written: self.written, seen })
    }
}

/// Makes every live process stand still for good.
pub fn make_all(frozen: &Frozen, tree: &Tree, look: Look, means: &mut Means) -> Result<Vec<Still>> {
    let live = frozen.processes.iter().filter(|source| source.live.is_some());
    let mut look = Some(look);
    live.map(|source| {
        let look = look.take_if(|look| look.pid == source.pid);
        make(source, tree, look, means)
    })
    .collect()
}

/// Only the root is looked at and copied: any other process may end as soon as it runs again.
fn make(
    source: &FrozenProcess,
    tree: &Tree,
    look: Option<Look>,
    means: &mut Means,
) -> Result<Still> {
    let (written, seen) = look.map_or((None, None), |look| (look.written, look.seen));
    if let (Some(written), Some(seen)) = (&written, seen)
        && let Some(copied) = copied::copy(source, tree, written, seen, &mut means.copies)?
    {
        return Ok(Still::Copied(Box::new(copied)));
    }
    let changed = match written {
        Some(written) => Some(with_untracked(&written, &pages::untracked(source.pid)?)),
        None => None,
    };
    if !std::mem::replace(&mut means.room, true) {
        means.twins.give();
    }
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
