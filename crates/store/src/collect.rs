//! Garbage collection: removes data that no kept image needs and that is not in use.
//!
//!   begin ─► the caller asks its records ─► mark ─► sweep images, packs, layers ─► drop dead pages
//!     └─ from here on, whatever is in use is noted and stays
//!
//! Captures and restores continue meanwhile. Names are removed under the lock of [`KnownPacks`], a
//! few at a time, into a directory below tmp; contents are deleted afterwards, and running restores
//! keep their open files. Images are removed before the packs they refer to. After a kill at any
//! point there is less garbage than before, and the next collection finds the rest.
//!
//! A base page is needed by the images of its differences. No pack gets differences during a
//! collection, so all dependencies are known from its beginning.
//!
//! If an image that should be kept cannot be read, the collection stops: its needs are unknown, so
//! nothing is removed.

use super::forms::is_worth_dropping;
use super::known::{KnownPacks, PageIndex};
use super::marks::ReachableSet;
use super::names::{StoreListing, bytes_inside};
use super::thin::DeltaPacks;
use super::{Store, names};
use crate::error::{Error, ErrorContext, Result};
use parking_lot::MutexGuard;
use stasis_fault as fault;
use stasis_image::{ImageId, PackForm, PackRoot};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Names that go while others wait.
const BATCH: usize = 64;

/// The result of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    pub images: u64,
    pub packs: u64,
    /// Packs rewritten without unneeded pages, and the number of those pages.
    pub partial_packs: u64,
    pub dropped_pages: u64,
    /// Directories of layers, already moved away.
    pub layers: Vec<PathBuf>,
    /// Space on the disk that was freed.
    pub bytes: u64,
}

/// A collection that has begun. Records are read after this point: an image that is not among them
/// is unreferenced, unless it is in use.
pub struct Collection<'a> {
    store: &'a Store,
    _turn: MutexGuard<'a, ()>,
}

impl Drop for Collection<'_> {
    fn drop(&mut self) {
        self.store.known().end_journal();
    }
}

impl Store {
    /// Begins a collection; waits until none is under way. A caller that records an image holds
    /// it, as an [`Image`](super::Image), until the record is durable.
    pub fn begin_collection(&self) -> Collection<'_> {
        let turn = self.turn();
        self.known().begin_journal();
        Collection { store: self, _turn: turn }
    }

    /// Collects when nothing can have been recorded since `keep` was read.
    pub fn collect(&self, keep: &HashSet<ImageId>) -> Result<Collected> {
        self.begin_collection().sweep(keep)
    }

    /// Rebuilds the index of page contents, without removed packs.
    fn reindex(&self) {
        let packs = self.known().packs();
        let mut index = PageIndex::default();
        packs.iter().for_each(|pack| index.insert(pack));
        self.known().take_index(index, &packs);
    }
}

impl Collection<'_> {
    /// Removes everything except the needs of the images in `keep`, and data in use.
    pub fn sweep(self, keep: &HashSet<ImageId>) -> Result<Collected> {
        let found = StoreListing::list(self.store)?;
        let deltas = self.store.delta_packs()?;
        let mut marks = ReachableSet::default();
        for id in keep {
            let manifest = self
                .store
                .manifest(*id)
                .map_err(|error| Error::Keep { id: id.to_string(), source: Box::new(error) })?;
            marks.add_with(*id, &manifest, &deltas);
        }
        // most of the data in use, so that little is left to mark while others wait
        let used = self.store.known().journal_so_far();
        used.iter().for_each(|(id, manifest)| marks.add_with(*id, manifest, &deltas));
        fault::point("collect.marked")?;
        let trash = self.store.temp_path("trash");
        std::fs::create_dir(&trash).doing(|| format!("make {}", trash.display()))?;
        let collected = Collected::default();
        let mut sweep = Sweep { store: self.store, trash, marks, deltas, collected };
        let swept = sweep.names(&found);
        sweep.collected.bytes += bytes_inside(&sweep.trash);
        let emptied = stasis_sys::trees::remove(&sweep.trash);
        swept?;
        emptied.doing(|| format!("remove {}", sweep.trash.display()))?;
        fault::point("collect.removed")?;
        if sweep.collected.packs > 0 {
            self.store.reindex();
        }
        sweep.dead_pages(&found)?;
        Ok(sweep.collected)
    }
}

struct Sweep<'a> {
    store: &'a Store,
    trash: PathBuf,
    marks: ReachableSet,
    deltas: DeltaPacks,
    collected: Collected,
}

impl Sweep<'_> {
    fn names(&mut self, found: &StoreListing) -> Result<()> {
        for batch in found.images.chunks(BATCH) {
            self.images(batch)?;
        }
        self.store.sync_dir("images")?;
        fault::point("collect.images")?;
        for batch in found.packs.chunks(BATCH) {
            self.packs(batch)?;
        }
        fault::point("collect.packs")?;
        self.layers()?;
        fault::point("collect.layers")?;
        self.keepers()
    }

    fn images(&mut self, batch: &[ImageId]) -> Result<()> {
        let known = self.store.known();
        catch_up(&mut self.marks, &self.deltas, &known);
        for id in batch.iter().filter(|id| !self.marks.images.contains(id)) {
            discard(&self.store.image_path(*id), &self.trash, &names::of_image(*id))?;
            self.collected.images += 1;
        }
        Ok(())
    }

    fn packs(&mut self, batch: &[(PackRoot, PackForm)]) -> Result<()> {
        let mut known = self.store.known();
        catch_up(&mut self.marks, &self.deltas, &known);
        for (root, form) in batch {
            let kept = self.marks.packs.contains_key(root) || known.is_in_use(*root);
            // two forms exist only if one was about to replace the other
            let there = |form| self.store.pack_path(*root, form).exists();
            let twice = match form {
                PackForm::Plain => false,
                PackForm::Cold => there(PackForm::Plain),
                PackForm::Delta => there(PackForm::Plain) || there(PackForm::Cold),
            };
            if kept && !twice {
                continue;
            }
            let path = self.store.pack_path(*root, *form);
            discard(&path, &self.trash, &names::of_pack(*root, *form))?;
            if !kept {
                known.remove_pack(*root);
                self.collected.packs += 1;
            }
        }
        Ok(())
    }

    fn layers(&mut self) -> Result<()> {
        let mut known = self.store.known();
        catch_up(&mut self.marks, &self.deltas, &known);
        let old = |name: &&String| !self.marks.layers.contains(*name);
        let old: Vec<String> = known.layers.keys().filter(old).cloned().collect();
        for name in old {
            let Some(path) = known.layers.get(&name).cloned() else { continue };
            self.store.keepers.release(&path);
            discard(&path, &self.trash, &name)?;
            known.layers.remove(&name);
            self.collected.layers.push(path);
        }
        Ok(())
    }

    fn keepers(&mut self) -> Result<()> {
        // under the lock: no image comes into use meanwhile
        let known = self.store.known();
        catch_up(&mut self.marks, &self.deltas, &known);
        self.store.keepers.sweep(&self.marks.origins)
    }

    /// Rewrites packs that consist mostly of unneeded pages.
    fn dead_pages(&mut self, found: &StoreListing) -> Result<()> {
        for (root, _) in &found.packs {
            let Some(live) = self.marks.packs.get(root) else { continue };
            // most packs are mostly live, and need not be opened to know it
            if self.marks.pages.get(root).is_some_and(|pages| live.len() * 2 >= *pages) {
                continue;
            }
            let live = live.clone();
            // a check reports packs that cannot be read
            let Ok(pack) = self.store.open_pack(*root) else { continue };
            // differences take little space, needed or not
            if pack.form() == PackForm::Delta {
                continue;
            }
            let drop = live.others(pack.pages());
            if !is_worth_dropping(&pack, &drop) {
                continue;
            }
            let (marks, deltas) = (&mut self.marks, &self.deltas);
            let allow = |known: &KnownPacks| {
                catch_up(marks, deltas, known);
                !known.is_in_use(*root) && marks.packs.get(root) == Some(&live)
            };
            let dropped = drop.len() - drop.common(pack.dead()).len();
            if let Some(freed) = self.store.drop_pages(&pack, &drop, allow)? {
                self.collected.partial_packs += 1;
                self.collected.dropped_pages += dropped;
                self.collected.bytes += freed;
            }
        }
        Ok(())
    }
}

/// Adds data that came into use since.
fn catch_up(marks: &mut ReachableSet, deltas: &DeltaPacks, known: &KnownPacks) {
    known.journal().for_each(|(id, manifest)| marks.add_with(*id, manifest, deltas));
    for pack in known.used_deltas() {
        for (_, base) in pack.bases().iter() {
            marks.packs.entry(base.root).or_default().insert(base.slot..base.slot + 1);
        }
    }
}

/// Removes a name. A missing one is not an error.
fn discard(path: &Path, trash: &Path, name: &str) -> Result<()> {
    match std::fs::rename(path, trash.join(name)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).doing(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
