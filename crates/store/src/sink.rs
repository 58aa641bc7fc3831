//! The sink of page contents during a capture: a new pack, unless they are stored already.
//!
//! The new image may name a slot only if something held keeps that slot until the image has its
//! name, because a collection may rewrite packs at any time:
//!
//!   inherit, refer   a slot that another image names   that image is held
//!   place            a slot found in some pack         a reader of the pack is held
//!   place            a slot of the new pack            its reader is held from its name on

use crate::error::{Error, ErrorContext, Result};
use crate::pack_file::PackFile;
use crate::save::{NewPack, TempPath, WrittenImage};
use crate::{Image, Pack, Store};
use stasis_image::model::{Manifest, PackRef, PageRun, push_run};
use stasis_image::{
    Arch, PAGE_SIZE, PackRoot, PackWriter, PageHash, PageLocation, PageSet, hash_pages,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Pages that went through a sink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Written.
    pub new: u64,
    /// Found in a parent or elsewhere.
    pub shared: u64,
    /// Of those, found in packs that are neither the parent's nor the image's own: other machines,
    /// perhaps of other accounts, have the same page.
    pub elsewhere: u64,
    /// Pages whose contents were compared: all of them, if writes were not tracked.
    pub read: u64,
}

pub struct Sink<'a> {
    store: &'a Store,
    /// Whether pages already kept in other packs may be referred to.
    shares: bool,
    /// Whether nothing stands still until the pages are written.
    may_wait: bool,
    parent: Option<Image>,
    /// The packs whose hashes were read, by their place in the parent.
    parent_packs: Vec<Option<Arc<Pack>>>,
    /// Packs the new image refers to; its own gets its root when it is finished.
    packs: Vec<PackRef>,
    held: PinnedSlots,
    index: HashMap<PackRoot, u32>,
    own: Option<Own>,
    /// Pages of the pack being written, which the store does not know yet.
    fresh: PageSet,
    /// The number in the new image of each pack of the parent that is used so far.
    inherited: Vec<Option<u32>>,
    counts: PageCounts,
}

/// Packs for a new image. Every slot that went through the sink stays until `held` is dropped.
pub struct FinishedPacks {
    pub packs: Vec<PackRef>,
    pub held: PinnedSlots,
}

/// Keeps the slots of an image that has no name yet.
#[derive(Default)]
pub struct PinnedSlots {
    /// Images whose runs the new one reuses.
    images: Vec<Image>,
    /// One reader per pack in which a page was found. A held reader keeps every page of its pack,
    /// also when the pack gets another form meanwhile.
    packs: HashMap<PackRoot, Arc<Pack>>,
}

impl PinnedSlots {
    fn image(&mut self, image: &Image) {
        if !self.images.iter().any(|own| Arc::ptr_eq(&own.manifest, &image.manifest)) {
            self.images.push(image.clone());
        }
    }

    fn pack(&mut self, pack: Arc<Pack>) {
        self.packs.entry(pack.root()).or_insert(pack);
    }
}

struct Own {
    path: PathBuf,
    writer: PackWriter<PackFile>,
    index: u32,
}

impl<'a> Sink<'a> {
    pub fn new(store: &'a Store, parent: Option<&Image>) -> Result<Sink<'a>> {
        for pack in parent.iter().flat_map(|image| &image.manifest.meta.packs) {
            store.require_pack(pack.root)?;
        }
        let mut sink = Sink::alone(store);
        sink.shares = true;
        sink.parent = parent.cloned();
        parent.into_iter().for_each(|parent| sink.held.image(parent));
        Ok(sink)
    }

    /// A sink whose image refers to no pack but its own.
    pub fn alone(store: &'a Store) -> Sink<'a> {
        Sink {
            store,
            shares: false,
            may_wait: false,
            parent: None,
            parent_packs: Vec::new(),
            packs: Vec::new(),
            held: PinnedSlots::default(),
            index: HashMap::new(),
            own: None,
            fresh: PageSet::new(),
            inherited: Vec::new(),
            counts: PageCounts::default(),
        }
    }

    /// From now on, pages may wait for the disk.
    pub fn may_wait(&mut self) {
        self.may_wait = true;
        if let Some(own) = &mut self.own {
            own.writer.out().may_wait();
        }
    }

    pub fn parent(&self) -> Option<&Image> {
        self.parent.as_ref()
    }

    pub fn counts(&self) -> PageCounts {
        self.counts
    }

    /// Content hash of a page that a run of the parent refers to.
    fn parent_hash(&mut self, run: &PageRun) -> Option<PageHash> {
        let place = run.pack as usize;
        if let Some(Some(pack)) = self.parent_packs.get(place) {
            return pack.hash(run.slot);
        }
        let pack = self.store.pack(self.parent_pack(run)?.root).ok()?;
        let hash = pack.hash(run.slot);
        self.parent_packs.resize(self.parent_packs.len().max(place + 1), None);
        self.parent_packs[place] = Some(pack);
        hash
    }

    /// The pack that a run of the parent refers to.
    fn parent_pack(&self, run: &PageRun) -> Option<PackRef> {
        let parent = self.parent.as_ref()?;
        parent.manifest.meta.packs.get(run.pack as usize).copied()
    }

    /// Reuses a run of the parent.
    pub fn inherit(&mut self, run: PageRun, runs: &mut Vec<PageRun>) {
        self.counts.shared += u64::from(run.count);
        push_run(runs, self.inherited(run));
    }

    /// A run of the parent as one of the new image.
    pub fn inherited(&mut self, run: PageRun) -> PageRun {
        let place = run.pack as usize;
        if let Some(Some(pack)) = self.inherited.get(place) {
            return PageRun { pack: *pack, ..run };
        }
        let pack = self.parent_pack(&run).expect("a run of the parent is in one of its packs");
        let pack = self.pack_index(pack);
        self.inherited.resize(self.inherited.len().max(place + 1), None);
        self.inherited[place] = Some(pack);
        PageRun { pack, ..run }
    }

    /// Turns runs of another image into runs of the new one.
    pub fn refer(&mut self, other: &Image, runs: &mut [PageRun]) {
        self.held.image(other);
        for run in runs {
            run.pack = self.pack_index(other.manifest.meta.packs[run.pack as usize]);
            self.counts.shared += u64::from(run.count);
        }
    }

    fn pack_index(&mut self, pack: PackRef) -> u32 {
        if let Some(index) = self.index.get(&pack.root) {
            return *index;
        }
        let index = self.packs.len() as u32;
        self.packs.push(pack);
        self.index.insert(pack.root, index);
        index
    }

    /// Stores pages (a whole number of them) from `page` on. `same_place` returns the parent's run
    /// of one page at that address, if any.
    pub fn keep(
        &mut self,
        page: u64,
        bytes: &[u8],
        same_place: impl Fn(u64) -> Option<PageRun>,
        runs: &mut Vec<PageRun>,
    ) -> Result<()> {
        let pages: Vec<_> = bytes.as_chunks::<PAGE_SIZE>().0.iter().collect();
        let hashes: Vec<_> = hash_pages(&pages).into_iter().map(Some).collect();
        self.keep_hashed(page, bytes, &hashes, same_place, runs)
    }

    /// The same for pages whose hashes are known; those without one are left out.
    pub fn keep_hashed(
        &mut self,
        page: u64,
        bytes: &[u8],
        hashes: &[Option<PageHash>],
        same_place: impl Fn(u64) -> Option<PageRun>,
        runs: &mut Vec<PageRun>,
    ) -> Result<()> {
        let contents = bytes.chunks_exact(PAGE_SIZE).zip(hashes);
        for (page, (content, hash)) in (page..).zip(contents) {
            let Some(hash) = *hash else { continue };
            self.counts.read += 1;
            if let Some(run) = same_place(page).filter(|run| self.parent_hash(run) == Some(hash)) {
                self.inherit(run, runs);
                continue;
            }
            let (pack, slot) = self.place(hash, content)?;
            push_run(runs, PageRun { page, count: 1, pack, slot });
        }
        Ok(())
    }

    /// Finds or writes one page: pack index and slot.
    fn place(&mut self, hash: PageHash, content: &[u8]) -> Result<(u32, u64)> {
        if let (Some(known), Some(own)) = (self.fresh.get(&hash), &self.own) {
            self.counts.shared += 1;
            return Ok((own.index, known.slot));
        }
        if let Some((pack, slot)) = self.store.find_page(&hash).filter(|_| self.shares) {
            self.counts.shared += 1;
            self.counts.elsewhere += 1;
            let index = self.pack_index(PackRef { root: pack.root(), pages: pack.pages() });
            self.held.pack(pack);
            return Ok((index, slot));
        }
        if self.own.is_none() {
            self.own = Some(self.start_pack()?);
        }
        let Some(own) = self.own.as_mut() else { unreachable!("made just above") };
        let slot = own
            .writer
            .append_hashed(content, &[hash])
            .map_err(|source| Error::Pack { root: "(new)".into(), source })?;
        let index = own.index;
        self.fresh.insert(hash, PageLocation { pack: index, slot });
        self.counts.new += 1;
        Ok((index, slot))
    }

    fn start_pack(&mut self) -> Result<Own> {
        let path = self.store.temp_path("pack");
        let mut file = PackFile::create(&path).doing(|| format!("make {}", path.display()))?;
        if self.may_wait {
            file.may_wait();
        }
        let writer = PackWriter::new(file, Arch::X86_64)
            .map_err(|source| Error::Pack { root: "(new)".into(), source })?;
        let index = self.packs.len() as u32;
        // the root is known only when the last page is in
        let unknown = PackRoot::of(&[]);
        self.packs.push(PackRef { root: unknown, pages: 0 });
        Ok(Own { path, writer, index })
    }

    /// Makes the new pack durable; returns every pack the image refers to.
    pub fn finish(mut self) -> Result<FinishedPacks> {
        self.seal()?;
        let packs = std::mem::take(&mut self.packs);
        Ok(FinishedPacks { packs, held: std::mem::take(&mut self.held) })
    }

    /// Writes the new pack to its end, and the image. Both are made durable together, which takes
    /// fewer syncs than one after the other. `manifest` lacks its packs.
    pub fn write(mut self, mut manifest: Manifest) -> Result<WrittenImage<'a>> {
        let own = self.written()?;
        manifest.meta.packs = std::mem::take(&mut self.packs);
        self.store.write_with(own, manifest, std::mem::take(&mut self.held))
    }

    /// Makes the data written so far durable, and every pack known by its root. Later data goes to
    /// another pack.
    pub fn seal(&mut self) -> Result<&[PackRef]> {
        if let Some(new) = self.written()? {
            // the index of the store has these pages from now on
            self.fresh = PageSet::new();
            let pack = self.store.adopt_new(new)?;
            self.held.pack(pack);
        }
        Ok(&self.packs)
    }

    /// The new pack with its end, in a file that is not synced, and its root where it belongs.
    fn written(&mut self) -> Result<Option<NewPack>> {
        let Some(own) = self.own.take() else { return Ok(None) };
        let path = TempPath(own.path);
        let finished = own.writer.finish();
        let (file, summary) =
            finished.map_err(|source| Error::Pack { root: "(new)".into(), source })?;
        let file = file.into_file();
        self.packs[own.index as usize] = PackRef { root: summary.root, pages: summary.pages };
        self.index.entry(summary.root).or_insert(own.index);
        Ok(Some(NewPack { path, file, root: summary.root }))
    }
}

impl Drop for Sink<'_> {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            let _ = std::fs::remove_file(&own.path);
        }
    }
}
