//! What the store has in memory: opened packs, where page contents are, and who uses what.
//!
//! Nothing that is in use is ever collected. In use are
//!   an image    while any [`Image`](super::Image) of it lives, with its packs and its layer: live
//!               trees and parked templates have one, and so has who has yet to record a capture
//!   a pack      while anybody holds its reader: captures hold every pack they found a page in
//! and, during a collection, whatever was in use at any time since it began (the journal).
//!
//! Only so many packs are open at a time: each is a descriptor and a list of hashes, and every
//! checkpoint makes one. Those that nobody has used for longest are closed, and opened again when
//! they are asked for.
//!
//! All of it is behind one lock, which nobody holds while reading or writing a file. Names come and
//! go under it, so that what was seen under it is there.

use super::Pack;
use stasis_image::model::Manifest;
use stasis_image::{Bases, ImageId, PackForm, PackRoot, PageHash, PageLocation, PageSet};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Packs that are open though nobody uses them, at most.
const MOST_OPEN: usize = 512;

#[derive(Default)]
pub struct KnownPacks {
    packs: HashMap<PackRoot, Open>,
    /// Those that were closed. The index still knows their pages.
    closed: HashSet<PackRoot>,
    /// How many may be open before idle ones are looked for.
    close_at: usize,
    /// Goes on by one with each use of a pack.
    clock: Cell<u64>,
    /// Readers of files that were written anew since, perhaps still in use.
    superseded: Vec<(PackRoot, Weak<Pack>)>,
    index: PageIndex,
    /// Bases of the packs with differences, as far as they were looked up.
    deltas: HashMap<PackRoot, Arc<Bases>>,
    /// Parents of images that were read or written.
    parents: HashMap<ImageId, Option<ImageId>>,
    held: HashMap<ImageId, Vec<Weak<Manifest>>>,
    /// How many entries `held` may have before those of nobody are looked for.
    prune_at: usize,
    journal: Option<HashMap<ImageId, Arc<Manifest>>>,
    /// Layers by what they hold. All are this program's: opening a store removes older ones.
    pub layers: HashMap<String, PathBuf>,
}

struct Open {
    pack: Arc<Pack>,
    used: Cell<u64>,
}

/// Where a page is kept.
pub enum PackedPage {
    Open(Arc<Pack>, u64),
    /// In a pack that has to be opened first, and may have dropped the page.
    Closed(PackRoot, u64),
}

/// Where pages with a given content are. It may say more than there is: whoever asks looks again.
#[derive(Default)]
pub struct PageIndex {
    order: Vec<PackRoot>,
    pages: PageSet,
}

impl PageIndex {
    /// Pages of a pack with differences are not found: whoever shared one would need its base.
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

    /// Whether a pack was here when it was last looked for.
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

    /// Takes in a pack in place of an older form of it.
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

    /// Has a pack among the open ones; what was in its place.
    fn open(&mut self, pack: Arc<Pack>) -> Option<Arc<Pack>> {
        if self.packs.len() >= self.close_at.max(MOST_OPEN) {
            self.close_idle();
        }
        let root = pack.root();
        self.closed.remove(&root);
        let used = Cell::new(self.now());
        self.packs.insert(root, Open { pack, used }).map(|old| old.pack)
    }

    /// Closes packs that nobody has, those used last excepted.
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

    /// Where a page with this content is. The reader keeps the pack from being collected.
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

    /// Readers that somebody has of packs with differences.
    pub fn used_deltas(&self) -> Vec<Arc<Pack>> {
        let open = self.packs.values().map(|open| &open.pack);
        let open = open.filter(|pack| Arc::strong_count(pack) > 1).cloned();
        let older = self.superseded.iter().filter_map(|(_, pack)| pack.upgrade());
        open.chain(older).filter(|pack| pack.form() == PackForm::Delta).collect()
    }

    /// A pack whose file is gone.
    pub fn remove_pack(&mut self, root: PackRoot) {
        self.packs.remove(&root);
        self.closed.remove(&root);
        self.deltas.remove(&root);
    }

    pub fn bases(&self, root: PackRoot) -> Option<Arc<Bases>> {
        self.deltas.get(&root).cloned()
    }

    /// Notes what packs with differences lean on; there are no others.
    pub fn take_bases(&mut self, deltas: HashMap<PackRoot, Arc<Bases>>) {
        self.deltas = deltas;
    }

    /// Packs as they are, to make an index of them elsewhere.
    pub fn packs(&self) -> Vec<Arc<Pack>> {
        let mut packs: Vec<_> = self.packs.values().map(|open| open.pack.clone()).collect();
        packs.sort_unstable_by_key(|pack| pack.root());
        packs
    }

    /// Takes an index of `packs`; those opened meanwhile are added, and those closed are forgotten:
    /// an index of everything ever written would be in memory for ever.
    pub fn take_index(&mut self, mut index: PageIndex, packs: &[Arc<Pack>]) {
        for (root, open) in &self.packs {
            if packs.binary_search_by_key(root, |pack| pack.root()).is_err() {
                index.insert(&open.pack);
            }
        }
        self.closed.clear();
        self.index = index;
    }

    /// Lets go of opened packs; those in use are remembered as such.
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
