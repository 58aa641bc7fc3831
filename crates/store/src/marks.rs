//! References of images: pure bookkeeping over manifests.

use super::layer_name;
use super::thin::DeltaPacks;
use stasis_image::model::{FileEntryKind, Manifest, PageRun};
use stasis_image::{ImageId, OriginId, PackRoot, Slots};
use std::collections::{HashMap, HashSet};

/// Everything that some images need.
#[derive(Default)]
pub struct ReachableSet {
    pub images: HashSet<ImageId>,
    pub packs: HashMap<PackRoot, Slots>,
    /// Number of pages of the packs, according to the images.
    pub pages: HashMap<PackRoot, u64>,
    pub layers: HashSet<String>,
    pub origins: HashSet<OriginId>,
}

impl ReachableSet {
    /// Adds an image's references. Idempotent.
    pub fn add(&mut self, id: ImageId, manifest: &Manifest) {
        self.add_with(id, manifest, &DeltaPacks::default());
    }

    /// Adds an image's references, and the bases they depend on.
    pub fn add_with(&mut self, id: ImageId, manifest: &Manifest, deltas: &DeltaPacks) {
        if !self.images.insert(id) {
            return;
        }
        // by number first: there are thousands of runs, and few packs
        let packs = &manifest.meta.packs;
        let mut used = vec![Slots::new(); packs.len()];
        for run in runs(manifest) {
            if let Some(slots) = used.get_mut(run.pack as usize) {
                slots.insert(run.slot..run.slot.saturating_add(run.count.into()));
            }
        }
        // a pack that is named is kept, even if no page of it is used
        for (pack, slots) in packs.iter().zip(used) {
            deltas.mark(pack.root, &slots, &mut self.packs);
            self.packs.entry(pack.root).or_default().unite(&slots);
            self.pages.insert(pack.root, pack.pages);
        }
        self.origins.extend(manifest.files.held.iter().map(|held| held.origin));
        if !manifest.files.entries.is_empty() {
            self.layers.insert(layer_name(&manifest.files, &manifest.meta.packs));
        }
    }

    pub fn unite(&mut self, other: ReachableSet) {
        self.images.extend(other.images);
        self.layers.extend(other.layers);
        self.origins.extend(other.origins);
        self.pages.extend(other.pages);
        for (root, slots) in other.packs {
            self.packs.entry(root).or_default().unite(&slots);
        }
    }
}

/// Every run of a manifest, of any kind.
pub fn runs(manifest: &Manifest) -> impl Iterator<Item = &PageRun> {
    let memory = manifest.memory.iter().flat_map(|memory| &memory.runs);
    let segments = manifest.segments.iter().flat_map(|segment| &segment.runs);
    let files = manifest.files.entries.iter().filter_map(|entry| match &entry.kind {
        FileEntryKind::Regular { runs, .. } => Some(runs),
        _ => None,
    });
    memory.chain(segments).chain(files.flatten())
}
