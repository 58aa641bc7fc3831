//! The store's state in memory: opened packs, the location of page contents, and users of each.
//!
//! Nothing that is in use is ever collected. In use are
//!   an image    while any [`Image`](super::Image) of it lives, with its packs and its layer: live
//!               trees, parked templates and captures that are not yet recorded have one
//!   a pack      while its reader is held: captures hold every pack they found a page in
//! and, during a collection, everything that was in use at any time since it began (the journal).
//!
//! The number of open packs is bounded: each is a descriptor and a list of hashes, and every
//! checkpoint makes one. The least recently used ones are closed, and opened again on request.
//!
//! All of it is behind one lock, which is never held while reading or writing a file. Names are
//! added and removed under it, so that a name seen under it exists.

use super::Pack;
use stasis_image::model::Manifest;
use stasis_image::{Bases, ImageId, PackForm, PackRoot, PageHash, PageLocation, PageSet};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Maximum packs that are open but unused.
const MOST_OPEN: usize = 512;

#[derive(Default)]
pub struct KnownPacks {
    packs: HashMap<PackRoot, Open>,
    /// Closed packs. The index still has their pages.
    closed: HashSet<PackRoot>,
    /// Open packs before idle ones are searched for.
    close_at: usize,
    /// Goes on by one with each use of a pack.
    clock: Cell<u64>,
    /// Packs without a name, which only images that are being saved refer to. The index does not
    /// have their pages: nothing that gets its name before them may depend on them.
    unnamed: HashMap<PackRoot, Weak<Pack>>,
    /// Readers of files that were written anew since, perhaps still in use.
    superseded: Vec<(PackRoot, Weak<Pack>)>,
    index: PageIndex,
    /// Bases of the packs with differences, as looked up so far.
    deltas: HashMap<PackRoot, Arc<Bases>>,
    /// Parents of images that were read or written.
    parents: HashMap<ImageId, Option<ImageId>>,
    held: HashMap<ImageId, Vec<Weak<Manifest>>>,
    /// Entries of `held` before unused ones are searched for.
    prune_at: usize,
    journal: Option<HashMap<ImageId, Arc<Manifest>>>,
    /// Layers by their contents. All are this program's: opening a store removes older ones.
    pub layers: HashMap<String, PathBuf>,
}

struct Open {
    pack: Arc<Pack>,
    used: Cell<u64>,
}

/// The location of a page.
pub enum PackedPage {
    Open(Arc<Pack>, u64),
    /// In a pack that must be opened first, and may have dropped the page.
    Closed(PackRoot, u64),
}

/// Locations of pages by content. It may have outdated entries: callers check again.
#[derive(Default)]
pub struct PageIndex {
    order: Vec<PackRoot>,
    pages: PageSet,
}

impl PageIndex {
    /// Pages of a pack with differences are not found: sharing one would need its base.
    pub fn insert(&mut self, pack: &Pack) {
        if pack.form() == PackForm::Delta {
            return;
        }
        let number = self.order.len() as u32;
        self.order.push(pack.root());
        self.pages.insert_pack(number, pack.hashes(), pack.dead());
    }
}

impl KnownPacks {
    /// A pack that is open.
    pub fn pack(&self, root: PackRoot) -> Option<&Arc<Pack>> {
        let open = self.packs.get(&root)?;
        open.used.set(self.now());
        Some(&open.pack)
    }

    pub fn unnamed(&self, root: PackRoot) -> Option<Arc<Pack>> {
        self.unnamed.get(&root)?.upgrade()
    }

    pub fn add_unnamed(&mut self, pack: &Arc<Pack>) {
        self.unnamed.insert(pack.root(), Arc::downgrade(pack));
    }

    /// The pack has its name, or never gets one.
    pub fn remove_unnamed(&mut self, pack: &Arc<Pack>) {
        let is_own = |own: &Weak<Pack>| std::ptr::eq(own.as_ptr(), Arc::as_ptr(pack));
        if self.unnamed.get(&pack.root()).is_some_and(is_own) {
            self.unnamed.remove(&pack.root());
        }
    }

    /// Whether a pack existed at the last lookup.
    pub fn has_pack(&self, root: PackRoot) -> bool {
        self.packs.contains_key(&root) || self.closed.contains(&root)
    }

    fn now(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// Takes in a pack that was opened, unless it is known already.
    pub fn remember(&mut self, pack: Arc<Pack>) -> Arc<Pack> {
        if let Some(already) = self.pack(pack.root()) {
            return already.clone();
        }
        if !self.closed.contains(&pack.root()) {
            self.index.insert(&pack);
        }
        self.open(pack.clone());
        pack
    }

    /// Adds a pack in place of an older form of it.
    pub fn supersede(&mut self, pack: Arc<Pack>) {
        self.superseded.retain(|(_, old)| old.strong_count() > 0);
        if let Some(old) = self.open(pack.clone()) {
            self.superseded.push((pack.root(), Arc::downgrade(&old)));
            if old.dead().is_within(pack.dead()) {
                return;
            }
        }
        self.index.insert(&pack);
    }

    /// Adds a pack to the open ones; returns the one it replaces.
    fn open(&mut self, pack: Arc<Pack>) -> Option<Arc<Pack>> {
        if self.packs.len() >= self.close_at.max(MOST_OPEN) {
            self.close_idle();
        }
        let root = pack.root();
        self.closed.remove(&root);
        let used = Cell::new(self.now());
        self.packs.insert(root, Open { pack, used }).map(|old| old.pack)
    }

    /// Closes unused packs, except the most recently used ones.
    fn close_idle(&mut self) {
        let is_idle = |open: &&Open| Arc::strong_count(&open.pack) == 1;
        let uses = self.packs.values().filter(is_idle).map(|open| open.used.get());
        let mut uses: Vec<u64> = uses.collect();
        uses.sort_unstable_by_key(|used| std::cmp::Reverse(*used));
        let Some(oldest) = uses.get(MOST_OPEN / 2).copied() else {
            self.close_at = self.packs.len() + MOST_OPEN / 2;
            return;
        };
        let closed = &mut self.closed;
        self.packs.retain(|root, open| {
            let stays = !is_idle(&&*open) || open.used.get() > oldest;
            if !stays {
                closed.insert(*root);
            }
            stays
        });
        self.close_at = self.packs.len() + MOST_OPEN / 2;
    }

    /// The location of a page with this content. The reader keeps the pack from being collected.
    pub fn find_page(&self, hash: &PageHash) -> Option<PackedPage> {
        let PageLocation { pack, slot } = self.index.pages.get(hash)?;
        let root = self.index.order.get(pack as usize)?;
        match self.pack(*root) {
            Some(pack) => {
                let whole = pack.form() != PackForm::Delta && !pack.dead().contains(slot);
                whole.then(|| PackedPage::Open(pack.clone(), slot))
            }
            None => self.closed.contains(root).then_some(PackedPage::Closed(*root, slot)),
        }
    }

    pub fn is_in_use(&self, root: PackRoot) -> bool {
        let held = self.packs.get(&root).is_some_and(|open| Arc::strong_count(&open.pack) > 1);
        let older = |(own, pack): &(PackRoot, Weak<Pack>)| *own == root && pack.strong_count() > 0;
        held || self.superseded.iter().any(older)
    }

    /// Readers in use, of packs with differences.
    pub fn used_deltas(&self) -> Vec<Arc<Pack>> {
        let open = self.packs.values().map(|open| &open.pack);
        let open = open.filter(|pack| Arc::strong_count(pack) > 1).cloned();
        let older = self.superseded.iter().filter_map(|(_, pack)| pack.upgrade());
        open.chain(older).filter(|pack| pack.form() == PackForm::Delta).collect()
    }

    /// A pack whose file was removed.
    pub fn remove_pack(&mut self, root: PackRoot) {
        self.packs.remove(&root);
        self.closed.remove(&root);
        self.deltas.remove(&root);
    }

    pub fn bases(&self, root: PackRoot) -> Option<Arc<Bases>> {
        self.deltas.get(&root).cloned()
    }

    /// Records the bases of packs with differences; there are no others.
    pub fn take_bases(&mut self, deltas: HashMap<PackRoot, Arc<Bases>>) {
        self.deltas = deltas;
    }

    /// Packs as they are, to make an index of them elsewhere.
    pub fn packs(&self) -> Vec<Arc<Pack>> {
        let mut packs: Vec<_> = self.packs.values().map(|open| open.pack.clone()).collect();
        packs.sort_unstable_by_key(|pack| pack.root());
        packs
    }

    /// Sets an index of `packs`; packs opened meanwhile are added, and closed ones dropped: an
    /// index of everything ever written would stay in memory for ever.
    pub fn take_index(&mut self, mut index: PageIndex, packs: &[Arc<Pack>]) {
        for (root, open) in &self.packs {
            if packs.binary_search_by_key(root, |pack| pack.root()).is_err() {
                index.insert(&open.pack);
            }
        }
        self.closed.clear();
        self.index = index;
    }

    /// Drops opened packs; those in use are remembered as such.
    pub fn forget_packs(&mut self) {
        let old = std::mem::take(&mut self.packs);
        let old = old.iter().map(|(root, open)| (*root, Arc::downgrade(&open.pack)));
        self.superseded.extend(old);
        self.closed.clear();
        self.index = PageIndex::default();
        self.parents.clear();
    }

    pub fn parent(&self, id: ImageId) -> Option<ImageId> {
        *self.parents.get(&id)?
    }

    /// Records an image that is about to be in use.
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

    /// From now on, everything that is or comes into use is recorded.
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

    /// The journal so far, while it continues.
    pub fn journal_so_far(&self) -> Vec<(ImageId, Arc<Manifest>)> {
        self.journal().map(|(id, manifest)| (*id, manifest.clone())).collect()
    }

    /// The contents of an image, if it is in use.
    pub fn living(&self, id: ImageId) -> Option<Arc<Manifest>> {
        self.held.get(&id)?.iter().find_map(Weak::upgrade)
    }
}
