//! Reads everything that images need, and names the damage.
//!
//!   images ─► which slots of which packs ─► pages, verified, a piece at a time ─► layers
//!
//! A check continues after damage, can be stopped between pieces, and holds a bit per page and a
//! piece of 1 MiB. It bypasses the page cache, which would hide damage on the disk. Data that a
//! collection removes meanwhile is not damage.
//!
//! Only provable cases are repaired: a page whose contents exist elsewhere under the same hash is
//! restored, and a layer on disk that differs from its image is recreated when needed.

mod layer;
mod repair;
mod report;

pub use report::{CheckReport, Damage, DamageFinding};

use super::marks::{ReachableSet, runs};
use super::names::StoreListing;
use super::{Pack, Store, layer_name};
use crate::error::{Error, Result};
use stasis_image::model::Manifest;
use stasis_image::{ImageId, PAGE_SIZE, PackRoot, Slots};
use std::collections::{BTreeMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::os::fd::AsFd;

/// Pages read at a time.
const PIECE: u64 = 256;

/// The action of a check on damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    Nothing,
    /// Replace damaged pages by intact copies from other packs.
    FromCopies,
}

/// The progress of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    pub done_bytes: u64,
    pub total_bytes: u64,
}

impl Store {
    /// Checks everything the images in `keep` need. `progress` is called after every piece and
    /// decides whether to continue.
    pub fn check(
        &self,
        keep: &HashSet<ImageId>,
        repair: Repair,
        progress: impl FnMut(CheckProgress) -> ControlFlow<()>,
    ) -> Result<CheckReport> {
        let mut check = Check {
            store: self,
            repair,
            progress,
            users: BTreeMap::new(),
            layers: BTreeMap::new(),
            at: CheckProgress { done_bytes: 0, total_bytes: 0 },
            checked: CheckReport::default(),
        };
        let strays = StoreListing::list(self)?.strays;
        strays.into_iter().for_each(|path| check.found(Damage::Stray { path }, vec![], false));
        let marks = check.images(keep);
        check.checked.complete = check.contents(&marks).is_continue();
        Ok(check.checked)
    }
}

struct Check<'a, P> {
    store: &'a Store,
    repair: Repair,
    progress: P,
    /// Which images use a pack, and a layer.
    users: BTreeMap<PackRoot, Vec<ImageId>>,
    layers: BTreeMap<String, Vec<ImageId>>,
    at: CheckProgress,
    checked: CheckReport,
}

impl<P: FnMut(CheckProgress) -> ControlFlow<()>> Check<'_, P> {
    fn found(&mut self, damage: Damage, images: Vec<ImageId>, repaired: bool) {
        self.checked.findings.push(DamageFinding { damage, images, repaired });
    }

    /// Reads every image file; returns their combined needs.
    fn images(&mut self, keep: &HashSet<ImageId>) -> ReachableSet {
        let mut marks = ReachableSet::default();
        let mut keep: Vec<ImageId> = keep.iter().copied().collect();
        keep.sort_unstable();
        for id in keep {
            match self.store.read_manifest(id) {
                Ok(manifest) => {
                    self.note_users(id, &manifest);
                    marks.add(id, &manifest);
                    self.checked.images += 1;
                }
                Err(error) => self.found(Damage::Image { id, error }, vec![id], false),
            }
        }
        let pages: u64 = marks.packs.values().map(Slots::len).sum();
        self.at.total_bytes = pages * PAGE_SIZE as u64;
        marks
    }

    fn note_users(&mut self, id: ImageId, manifest: &Manifest) {
        for pack in &manifest.meta.packs {
            self.users.entry(pack.root).or_default().push(id);
        }
        if !manifest.files.entries.is_empty() {
            let name = layer_name(&manifest.files, &manifest.meta.packs);
            self.layers.entry(name).or_default().push(id);
        }
    }

    fn contents(&mut self, marks: &ReachableSet) -> ControlFlow<()> {
        for root in self.users.keys().copied().collect::<Vec<_>>() {
            let Some(live) = marks.packs.get(&root) else { continue };
            self.pack(root, live)?;
        }
        for (name, users) in std::mem::take(&mut self.layers) {
            self.layer(&name, users);
            self.go_on(0)?;
        }
        ControlFlow::Continue(())
    }

    fn go_on(&mut self, pages: u64) -> ControlFlow<()> {
        self.checked.pages += pages;
        self.at.done_bytes += pages * PAGE_SIZE as u64;
        (self.progress)(self.at)
    }

    fn pack(&mut self, root: PackRoot, live: &Slots) -> ControlFlow<()> {
        // a separate reader: an open one may have a file without a name
        let pack = match self.store.open_pack(root) {
            Ok(pack) => pack,
            Err(error) => {
                let images = self.still_there(root, |_| true);
                if !images.is_empty() {
                    self.found(Damage::Pack { root, error }, images, false);
                }
                return self.go_on(live.len());
            }
        };
        self.checked.packs += 1;
        let _ = stasis_sys::memory::drop_cache(pack.source().as_fd());
        let mut damaged = Slots::new();
        for range in live.ranges(PIECE) {
            damaged_in(&pack, &range, &mut damaged);
            self.go_on(range.end - range.start)?;
        }
        if !damaged.is_empty() {
            self.damaged_pages(&pack, &damaged);
        }
        ControlFlow::Continue(())
    }

    fn damaged_pages(&mut self, pack: &Pack, damaged: &Slots) {
        let root = pack.root();
        let repaired = match self.repair {
            Repair::FromCopies => repair::repair(self.store, pack, damaged).unwrap_or_default(),
            Repair::Nothing => Slots::new(),
        };
        for slots in damaged.ranges(u64::MAX) {
            let touches = |manifest: &Manifest| needs(manifest, root, &slots);
            let images = self.still_there(root, touches);
            if images.is_empty() {
                continue;
            }
            let whole = slots.clone().all(|slot| repaired.contains(slot));
            self.found(Damage::Pages { root, slots }, images, whole);
        }
    }

    /// Images that use a pack in a certain way, and were not collected meanwhile.
    fn still_there(&self, root: PackRoot, uses: impl Fn(&Manifest) -> bool) -> Vec<ImageId> {
        let users = self.users.get(&root).into_iter().flatten().copied();
        let there = |id: &ImageId| {
            let manifest = self.store.read_manifest(*id);
            match manifest {
                Ok(manifest) => uses(&manifest),
                Err(error) => !is_missing(&error),
            }
        };
        users.filter(there).collect()
    }

    fn layer(&mut self, name: &str, users: Vec<ImageId>) {
        let Some(path) = self.store.layer(name) else { return };
        let Some(manifest) = users.iter().find_map(|id| self.store.read_manifest(*id).ok()) else {
            return;
        };
        self.checked.layers += 1;
        let Some(what) = layer::difference(self.store, &manifest, &path) else { return };
        if self.store.layer(name).as_ref() != Some(&path) {
            return; // collected meanwhile
        }
        let forget = self.repair == Repair::FromCopies;
        if forget {
            self.store.known().layers.remove(name);
        }
        self.found(Damage::Layer { path, what }, users, forget);
    }
}

/// Slots of a range that cannot be read, added to `damaged`.
fn damaged_in(pack: &Pack, range: &Range<u64>, damaged: &mut Slots) {
    let mut buf = vec![0; (range.end - range.start) as usize * PAGE_SIZE];
    if pack.read(range.start, &mut buf).is_ok() {
        return;
    }
    for slot in range.clone() {
        if pack.read(slot, &mut buf[..PAGE_SIZE]).is_err() {
            damaged.insert(slot..slot + 1);
        }
    }
}

fn needs(manifest: &Manifest, root: PackRoot, slots: &Range<u64>) -> bool {
    runs(manifest).any(|run| {
        let pack = manifest.meta.packs.get(run.pack as usize);
        pack.is_some_and(|pack| pack.root == root)
            && run.slot < slots.end
            && run.slot + u64::from(run.count) > slots.start
    })
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
