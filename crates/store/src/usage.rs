//! Disk use by image, page by page.
//!
//! A pack is shared between images, so its space is divided: each page counts for the images that
//! refer to it. Unreferenced pages are dead; a collection drops them when they are most of a pack.

use super::Store;
use super::marks::ReachableSet;
use super::names::{StoreListing, disk_bytes};
use crate::error::Result;
use stasis_api::StoreStats;
use stasis_image::{ImageId, PAGE_SIZE, PackForm, PackRoot, Slots};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Disk use of a group of images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// Space that would be freed if only this group were removed.
    pub own: u64,
    /// Space that other groups need, too.
    pub shared: u64,
}

impl Store {
    /// Disk use of each group, its own and shared with other groups, in the given order.
    pub fn usage(&self, groups: &[(String, Vec<ImageId>)]) -> Result<Vec<(String, StoreUsage)>> {
        let marks = groups.iter().map(|(_, images)| self.marks(images));
        let marks = marks.collect::<Result<Vec<ReachableSet>>>()?;
        let shared = Shared::of(&marks);
        let weights = self.weights(shared.packs.keys())?;
        let names = groups.iter().map(|(name, _)| name.clone());
        Ok(names.zip(marks.iter().map(|marks| self.divide(marks, &shared, &weights))).collect())
    }

    /// Packs that these images need. Packs that recently used images do not need may be compressed.
    pub fn packs_of(&self, images: &HashSet<ImageId>) -> Result<HashSet<PackRoot>> {
        Ok(self.marks(images)?.packs.into_keys().collect())
    }

    fn marks<'a>(&self, images: impl IntoIterator<Item = &'a ImageId>) -> Result<ReachableSet> {
        let deltas = self.delta_packs()?;
        let mut marks = ReachableSet::default();
        for id in images {
            marks.add_with(*id, &*self.manifest(*id)?, &deltas);
        }
        Ok(marks)
    }

    fn divide(
        &self,
        marks: &ReachableSet,
        shared: &Shared,
        weights: &HashMap<PackRoot, Weight>,
    ) -> StoreUsage {
        let mut usage = StoreUsage::default();
        for id in &marks.images {
            let bytes = disk_bytes(&self.image_path(*id));
            let of = if shared.images.contains(id) { &mut usage.shared } else { &mut usage.own };
            *of += bytes;
        }
        for (root, slots) in &marks.packs {
            let Some(weight) = weights.get(root) else { continue };
            let common = shared.packs.get(root).map_or(0, |many| slots.common(many).len());
            usage.shared += weight.of(common);
            usage.own += weight.of(slots.len() - common);
        }
        usage
    }

    fn weights<'a>(
        &self,
        roots: impl Iterator<Item = &'a PackRoot>,
    ) -> Result<HashMap<PackRoot, Weight>> {
        let weight = |root: &PackRoot| {
            let open = self.known().pack(*root).cloned();
            let pack = open.map_or_else(|| self.open_pack(*root).map(Arc::new), Ok)?;
            let bytes = disk_bytes(&self.pack_path(*root, pack.form()));
            Ok((*root, Weight { bytes, pages: pack.pages() - pack.dead().len() }))
        };
        roots.map(weight).collect()
    }

    /// Counts everything there is, dead or live as seen from the images in `keep`.
    pub fn stats(&self, keep: &HashSet<ImageId>) -> Result<StoreStats> {
        let mut stats = StoreStats::default();
        let mut marks = ReachableSet::default();
        let mut references = 0;
        let deltas = self.delta_packs()?;
        for id in keep {
            let mut own = ReachableSet::default();
            own.add_with(*id, &*self.manifest(*id)?, &deltas);
            references += own.packs.values().map(Slots::len).sum::<u64>();
            marks.unite(own);
        }
        let found = StoreListing::list(self)?;
        stats.images = found.images.len() as u64;
        stats.bytes = found.images.iter().map(|id| disk_bytes(&self.image_path(*id))).sum();
        for (root, form) in &found.packs {
            self.count_pack(*root, *form, marks.packs.get(root), &mut stats);
        }
        let layers: Vec<_> = self.known().layers.values().cloned().collect();
        stats.layers = layers.len() as u64;
        stats.layer_bytes = layers.iter().map(|path| disk_bytes(path)).sum();
        stats.bytes += stats.layer_bytes;
        stats.shared_bytes = references.saturating_sub(stats.live_pages) * PAGE_SIZE as u64;
        Ok(stats)
    }

    fn count_pack(
        &self,
        root: PackRoot,
        form: PackForm,
        live: Option<&Slots>,
        stats: &mut StoreStats,
    ) {
        let bytes = disk_bytes(&self.pack_path(root, form));
        stats.packs += 1;
        stats.bytes += bytes;
        let Ok(pack) = self.open_pack(root) else {
            stats.unreadable_packs += 1;
            return;
        };
        let held = pack.pages() - pack.dead().len();
        let live = live.map_or(0, Slots::len).min(held);
        stats.live_pages += live;
        stats.dead_pages += held - live;
        stats.dropped_pages += pack.dead().len();
        if form != PackForm::Plain {
            stats.cold_packs += 1;
            stats.compressed_bytes += (held * PAGE_SIZE as u64).saturating_sub(bytes);
        }
    }
}

/// The space of a pack, for the pages it has.
struct Weight {
    bytes: u64,
    pages: u64,
}

impl Weight {
    fn of(&self, pages: u64) -> u64 {
        let share = u128::from(self.bytes) * u128::from(pages) / u128::from(self.pages.max(1));
        share as u64
    }
}

/// Pages that more than one group needs. Every pack is in it, if only with no page.
#[derive(Default)]
struct Shared {
    images: HashSet<ImageId>,
    packs: HashMap<PackRoot, Slots>,
}

impl Shared {
    fn of(groups: &[ReachableSet]) -> Shared {
        let (mut seen, mut shared) = (ReachableSet::default(), Shared::default());
        for group in groups {
            for id in group.images.iter().filter(|id| !seen.images.insert(**id)) {
                shared.images.insert(*id);
            }
            for (root, slots) in &group.packs {
                let before = seen.packs.entry(*root).or_default();
                shared.packs.entry(*root).or_default().unite(&before.common(slots));
                before.unite(slots);
            }
        }
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(images: &[&[u8]], packs: &[(&[u8], std::ops::Range<u64>)]) -> ReachableSet {
        let mut marks = ReachableSet::default();
        marks.images.extend(images.iter().map(|name| ImageId::of(name)));
        for (name, slots) in packs {
            marks.packs.entry(PackRoot::of(name)).or_default().insert(slots.clone());
        }
        marks
    }

    #[test]
    fn shared_is_what_two_groups_need() {
        let groups = [
            group(&[b"a", b"b"], &[(b"p", 0..10), (b"q", 0..5)]),
            group(&[b"b"], &[(b"p", 8..20)]),
            group(&[b"c"], &[(b"p", 9..12), (b"r", 0..1)]),
        ];
        let shared = Shared::of(&groups);
        assert_eq!(shared.images, HashSet::from([ImageId::of(b"b")]));
        let of = |name: &[u8]| -> Vec<u64> {
            shared.packs[&PackRoot::of(name)].ranges(100).flatten().collect()
        };
        assert_eq!(of(b"p"), [8, 9, 10, 11]);
        assert_eq!((of(b"q").len(), of(b"r").len()), (0, 0));
    }

    #[test]
    fn space_is_divided_by_pages() {
        assert_eq!(Weight { bytes: 1000, pages: 10 }.of(3), 300);
        assert_eq!(Weight { bytes: u64::MAX, pages: 4 }.of(4), u64::MAX);
        assert_eq!(Weight { bytes: 0, pages: 0 }.of(0), 0);
    }
}
