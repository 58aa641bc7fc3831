//! What the store has in memory: opened packs, where page contents are, and who uses what.
//!
//! Nothing that is in use is ever collected. In use are
//!   an image    while any [`Image`](super::Image) of it lives, with its packs and its layer: live
//!               trees and parked templates have one, and so has who has yet to record a capture
//!   a pack      while anybody holds its reader: captures hold every pack they found a page in
//! and, during a collection, whatever was in use at any time since it began (the journal).
//!
//! All of it is behind one lock, which nobody holds while reading or writing a file. Names come and
//! go under it, so that what was seen under it is there.

use super::Pack;
use stasis_image::model::Manifest;
use stasis_image::{ImageId, PackRoot, PageHash, PageLocation, PageSet};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

#[derive(Default)]
pub struct Known {
    packs: HashMap<PackRoot, Arc<Pack>>,
    /// Readers of files that were written anew since, perhaps still in use.
    superseded: Vec<(PackRoot, Weak<Pack>)>,
    index: Index,
    /// Parents of images that were read or written.
    parents: HashMap<ImageId, Option<ImageId>>,
    held: HashMap<ImageId, Vec<Weak<Manifest>>>,
    /// How many entries `held` may have before those of nobody are looked for.
    prune_at: usize,
    journal: Option<HashMap<ImageId, Arc<Manifest>>>,
    /// Layers by what they hold. All are this program's: opening a store removes older ones.
    pub layers: HashMap<String, PathBuf>,
}

/// Where pages with a given content are. It may say more than there is: whoever asks looks again.
#[derive(Default)]
pub struct Index {
    order: Vec<PackRoot>,
    pages: PageSet,
}

impl Index {
    pub fn insert(&mut self, pack: &Pack) {
        let number = self.order.len() as u32;
        self.order.push(pack.root());
        self.pages.insert_pack(number, pack.hashes(), pack.dead());
    }
}

impl Known {
    pub fn pack(&self, root: PackRoot) -> Option<&Arc<Pack>> {
        self.packs.get(&root)
    }

    /// Takes in a pack that was opened, unless it is known already.
    pub fn remember(&mut self, pack: Arc<Pack>) -> Arc<Pack> {
        if let Some(already) = self.packs.get(&pack.root()) {
            return already.clone();
        }
        self.index.insert(&pack);
        self.packs.insert(pack.root(), pack.clone());
        pack
    }

    /// Takes in a pack in place of an older form of it.
    pub fn supersede(&mut self, pack: Arc<Pack>) {
        let root = pack.root();
        self.superseded.retain(|(_, old)| old.strong_count() > 0);
        if let Some(old) = self.packs.insert(root, pack.clone()) {
            self.superseded.push((root, Arc::downgrade(&old)));
            if old.dead().is_within(pack.dead()) {
                return;
            }
        }
        self.index.insert(&pack);
    }

    /// Where a page with this content is. The reader keeps the pack from being collected.
    pub fn find_page(&self, hash: &PageHash) -> Option<(Arc<Pack>, u64)> {
        let PageLocation { pack, slot } = self.index.pages.get(hash)?;
        let pack = self.packs.get(self.index.order.get(pack as usize)?)?;
        (!pack.dead().contains(slot)).then(|| (pack.clone(), slot))
    }

    pub fn is_in_use(&self, root: PackRoot) -> bool {
        let held = self.packs.get(&root).is_some_and(|pack| Arc::strong_count(pack) > 1);
        let older = |(own, pack): &(PackRoot, Weak<Pack>)| *own == root && pack.strong_count() > 0;
        held || self.superseded.iter().any(older)
    }

    /// A pack whose file is gone.
    pub fn remove_pack(&mut self, root: PackRoot) {
        self.packs.remove(&root);
    }

    /// Packs as they are, to make an index of them elsewhere.
    pub fn packs(&self) -> Vec<Arc<Pack>> {
        let mut packs: Vec<_> = self.packs.values().cloned().collect();
        packs.sort_unstable_by_key(|pack| pack.root());
        packs
    }

    /// Takes an index of `packs`; those opened meanwhile are added.
    pub fn take_index(&mut self, mut index: Index, packs: &[Arc<Pack>]) {
        for (root, pack) in &self.packs {
            if packs.binary_search_by_key(root, |pack| pack.root()).is_err() {
                index.insert(pack);
            }
        }
        self.index = index;
    }

    /// Lets go of opened packs; those in use are remembered as such.
    pub fn forget_packs(&mut self) {
        let old = std::mem::take(&mut self.packs);
        self.superseded.extend(old.iter().map(|(root, pack)| (*root, Arc::downgrade(pack))));
        self.index = Index::default();
        self.parents.clear();
    }

    pub fn parent(&self, id: ImageId) -> Option<ImageId> {
        *self.parents.get(&id)?
    }

    /// Notes an image that somebody is about to have.
    pub fn hold(&mut self, id: ImageId, manifest: &Arc<Manifest>) {
        if self.held.len() >= self.prune_at {
            self.prune();
        }
        self.parents.insert(id, manifest.meta.parent);
        let copies = self.held.entry(id).or_default();
        if !copies.iter().any(|copy| std::ptr::eq(copy.as_ptr(), Arc::as_ptr(manifest))) {
            copies.push(Arc::downgrade(manifest));
        }
        if let Some(journal) = &mut self.journal {
            journal.insert(id, manifest.clone());
        }
    }

    fn prune(&mut self) {
        self.held.retain(|_, copies| {
            copies.retain(|copy| copy.strong_count() > 0);
            !copies.is_empty()
        });
        self.prune_at = self.held.len() * 2 + 64;
    }

    /// From now on, whatever is or comes into use is noted.
    pub fn begin_journal(&mut self) {
        self.prune();
        let living = |(id, copies): (&ImageId, &Vec<Weak<Manifest>>)| {
            Some((*id, copies.iter().find_map(Weak::upgrade)?))
        };
        self.journal = Some(self.held.iter().filter_map(living).collect());
    }

    pub fn end_journal(&mut self) {
        self.journal = None;
    }

    pub fn journal(&self) -> impl Iterator<Item = (&ImageId, &Arc<Manifest>)> {
        self.journal.iter().flatten()
    }

    /// The journal so far, to look at while it goes on.
    pub fn journal_so_far(&self) -> Vec<(ImageId, Arc<Manifest>)> {
        self.journal().map(|(id, manifest)| (*id, manifest.clone())).collect()
    }

    /// What an image says, if somebody has it.
    pub fn living(&self, id: ImageId) -> Option<Arc<Manifest>> {
        self.held.get(&id)?.iter().find_map(Weak::upgrade)
    }
}
