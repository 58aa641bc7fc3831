//! Compaction of old states: the changes of a state are stored as differences to the state before.
//!
//!   image ─► its parent's image ─► the same page there ─► difference, compressed
//!        └─► the image's own file, compressed
//!
//! An instruction changes a few bytes in each of a hundred pages, and its capture writes those
//! pages whole, because that is fast. Later, when no client waits, they are stored as differences.
//! The base of a difference is always a page that is stored whole: if the parent's page is a
//! difference itself, its base is used. So reading a page needs at most one other, however long a
//! history is, and damage to a page harms only the pages that depend on it.
//!
//! Replacing and removing files takes the store's lock for changes, so no base is removed while a
//! difference to it is being written. After a kill there is the plain file, the new one, or both.

use super::names::{StoreListing, disk_bytes};
use super::{Pack, Store};
use crate::error::{Error, ErrorContext, Result};
use stasis_fault as fault;
use stasis_image::model::{Manifest, PackRef, PageRun};
use stasis_image::{BasePage, Bases, ImageId, PAGE_SIZE, PackForm, PackRoot, Slots, pack_image};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Larger packs are not of small instructions, and would hold others up.
const MOST_PAGES: u64 = 1 << 14;
/// A difference in more bytes than this is not worth a second page to be read.
const MOST_BYTES: usize = PAGE_SIZE / 4;

/// Bases of the packs with differences.
#[derive(Default)]
pub struct DeltaPacks {
    packs: HashMap<PackRoot, Arc<Bases>>,
    /// Pages that others are differences to.
    used: HashMap<PackRoot, Slots>,
}

impl DeltaPacks {
    /// Adds the bases of these slots of a pack to `marks`.
    pub fn mark(&self, root: PackRoot, slots: &Slots, marks: &mut HashMap<PackRoot, Slots>) {
        let Some(bases) = self.packs.get(&root) else { return };
        for slot in slots.ranges(u64::MAX).flatten() {
            if let Some(base) = bases.get(slot) {
                marks.entry(base.root).or_default().insert(base.slot..base.slot + 1);
            }
        }
    }

    fn add(&mut self, root: PackRoot, bases: Arc<Bases>) {
        for (_, base) in bases.iter() {
            self.used.entry(base.root).or_default().insert(base.slot..base.slot + 1);
        }
        self.packs.insert(root, bases);
    }

    fn is_base(&self, root: PackRoot, slot: u64) -> bool {
        self.used.get(&root).is_some_and(|slots| slots.contains(slot))
    }
}

impl Store {
    /// All current dependencies on bases. A pack that cannot be opened has no readable base.
    pub(crate) fn delta_packs(&self) -> Result<DeltaPacks> {
        let mut deltas = DeltaPacks::default();
        for (root, form) in StoreListing::list(self)?.packs {
            if form != PackForm::Delta {
                continue;
            }
            let known = self.known().bases(root);
            let opened = || self.open_pack(root).ok().map(|pack| Arc::new(pack.bases().clone()));
            let Some(bases) = known.or_else(opened) else { continue };
            deltas.add(root, bases);
        }
        self.known().take_bases(deltas.packs.clone());
        Ok(deltas)
    }

    /// Compacts states written longer ago than `age`, except those of `hot`, for as long as
    /// `patience` lasts; returns the freed space. Each image is examined once.
    pub fn thin(
        &self,
        keep: &HashSet<ImageId>,
        hot: &HashSet<ImageId>,
        age: Duration,
        patience: Duration,
    ) -> Result<u64> {
        let start = std::time::Instant::now();
        self.thinned.lock().retain(|id| keep.contains(id));
        let mut waiting: Vec<(SystemTime, ImageId)> = {
            let thinned = self.thinned.lock();
            let new = keep.iter().filter(|id| !thinned.contains(id) && !hot.contains(id));
            new.filter_map(|id| Some((self.written(*id)?, *id))).collect()
        };
        let now = SystemTime::now();
        waiting.retain(|(at, _)| now.duration_since(*at).is_ok_and(|passed| passed >= age));
        // parents first: a child's base is then stored whole, or known not to be
        waiting.sort_unstable();
        if waiting.is_empty() {
            return Ok(0);
        }
        let _turn = self.turn();
        let mut deltas = self.delta_packs()?;
        let mut freed = 0;
        for (_, id) in waiting {
            if start.elapsed() >= patience {
                break;
            }
            freed += self.thin_image(id, &mut deltas)?;
        }
        Ok(freed)
    }

    fn written(&self, id: ImageId) -> Option<SystemTime> {
        self.image_path(id).metadata().and_then(|about| about.modified()).ok()
    }

    fn thin_image(&self, id: ImageId, deltas: &mut DeltaPacks) -> Result<u64> {
        // a state that was removed meanwhile, or is damaged, is not reported here
        let Ok(manifest) = self.manifest(id) else { return Ok(0) };
        let mut freed = self.compress_image(id)?;
        let parent = manifest.meta.parent.and_then(|parent| self.manifest(parent).ok());
        let mut done = true;
        if let Some(parent) = parent {
            for pack in own_packs(&manifest, &parent) {
                match self.thin_pack(&manifest, &parent, pack, deltas)? {
                    Some(bytes) => freed += bytes,
                    None => done = false,
                }
            }
        }
        if done {
            self.thinned.lock().insert(id);
        }
        Ok(freed)
    }

    /// Compresses the file of an image; the space freed.
    fn compress_image(&self, id: ImageId) -> Result<u64> {
        let path = self.image_path(id);
        let bytes = self.image_bytes(id)?;
        let before = disk_bytes(&path);
        let packed = match stasis_image::unpack_image(&bytes) {
            // it is compressed already
            Ok(image) if image.len() != bytes.len() => return Ok(0),
            Ok(_) => pack_image(&bytes),
            Err(source) => return Err(Error::Image { id: id.to_string(), source }),
        };
        if packed.len() >= bytes.len() {
            return Ok(0);
        }
        let written = self.written(id);
        let temp = self.temp_path("image");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&temp)?;
            file.write_all(&packed)?;
            written.map_or(Ok(()), |at| file.set_modified(at))?;
            file.sync_data()?;
            fault::point("image.written").map_err(std::io::Error::other)?;
            std::fs::rename(&temp, &path)
        };
        write().doing(|| format!("compress {}", path.display())).inspect_err(|_| {
            let _ = std::fs::remove_file(&temp);
        })?;
        self.sync_dir("images")?;
        Ok(before.saturating_sub(disk_bytes(&path)))
    }

    /// Stores a pack as differences where that pays; the space freed, `None` while it is in use.
    fn thin_pack(
        &self,
        manifest: &Manifest,
        parent: &Manifest,
        own: PackRef,
        deltas: &mut DeltaPacks,
    ) -> Result<Option<u64>> {
        if own.pages > MOST_PAGES {
            return Ok(Some(0));
        }
        let Ok(pack) = self.open_pack(own.root) else { return Ok(Some(0)) };
        if pack.form() != PackForm::Plain {
            return Ok(Some(0));
        }
        if self.known().is_in_use(own.root) {
            return Ok(None);
        }
        let mut bases = vec![None; pack.pages() as usize];
        for (slot, at) in same_places(manifest, parent, own.root) {
            if let Some(place) = bases.get_mut(slot as usize).filter(|place| place.is_none()) {
                *place = self.base_of(&pack, slot, at, deltas);
            }
        }
        let based = bases.iter().flatten().count() as u64;
        if based * 2 < pack.pages() - pack.dead().len() || based == 0 {
            return Ok(Some(0));
        }
        let bases = Bases::of(bases);
        match self.store_delta(&pack, &bases) {
            Ok(None) => Ok(None),
            Ok(Some(stored)) => {
                deltas.add(own.root, Arc::new(bases));
                Ok(Some(stored.before.saturating_sub(stored.after)))
            }
            // damage is for a check to tell; the pack stays as it is
            Err(Error::Pack { .. }) => Ok(Some(0)),
            Err(error) => Err(error),
        }
    }

    /// The base for storing a slot as a difference, if there is a good one.
    fn base_of(
        &self,
        pack: &Pack,
        slot: u64,
        at: BasePage,
        deltas: &DeltaPacks,
    ) -> Option<BasePage> {
        // bases of others stay whole, and so do unneeded pages
        if deltas.is_base(pack.root(), slot) || pack.dead().contains(slot) {
            return None;
        }
        let whole = deltas.packs.get(&at.root).and_then(|bases| bases.get(at.slot)).unwrap_or(at);
        if whole.root == pack.root() {
            return None;
        }
        let (mut page, mut base) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
        pack.read(slot, &mut page).ok()?;
        self.pack(whole.root).ok()?.read_whole(whole.slot, &mut base).ok()?;
        let differ = page.iter().zip(&base).filter(|(one, other)| one != other).count();
        (differ <= MOST_BYTES).then_some(whole)
    }
}

/// Packs of an image that its parent lacks: those its capture wrote.
fn own_packs(manifest: &Manifest, parent: &Manifest) -> Vec<PackRef> {
    let inherited: HashSet<PackRoot> = parent.meta.packs.iter().map(|pack| pack.root).collect();
    let own = manifest.meta.packs.iter().filter(|pack| !inherited.contains(&pack.root));
    own.copied().collect()
}

/// For slots of a pack that hold memory, the pages that the parent has at the same address.
fn same_places(
    manifest: &Manifest,
    parent: &Manifest,
    root: PackRoot,
) -> impl Iterator<Item = (u64, BasePage)> {
    let place = manifest.meta.packs.iter().position(|pack| pack.root == root);
    let mut found = Vec::new();
    for memory in &manifest.memory {
        let Some(before) = parent.memory.iter().find(|one| one.pid == memory.pid) else { continue };
        for run in memory.runs.iter().filter(|run| Some(run.pack as usize) == place) {
            for index in 0..u64::from(run.count) {
                let at = page_at(&before.runs, run.page + index);
                let base = at.and_then(|(pack, slot)| {
                    let pack = parent.meta.packs.get(pack as usize)?;
                    Some(BasePage { root: pack.root, slot })
                });
                found.extend(base.map(|base| (run.slot + index, base)));
            }
        }
    }
    found.into_iter()
}

/// Pack and slot of a page, by sorted runs.
fn page_at(runs: &[PageRun], page: u64) -> Option<(u32, u64)> {
    let run = runs.get(runs.partition_point(|run| run.end() <= page))?;
    (run.page <= page).then(|| (run.pack, run.slot + (page - run.page)))
}
