//! Which page contents are already stored, and where.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use super::Slots;
use super::ends::MAX_PAGES;
use crate::PageHash;

/// A page in one of several packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageLocation {
    /// The number the caller has given to the pack.
    pub pack: u32,
    pub slot: u64,
}

/// A map from contents to location: 47 to 94 bytes for each page, by how full the table is.
#[derive(Debug, Clone, Default)]
pub struct PageSet {
    // The slot as u32, which `MAX_PAGES` allows: a u64 would make each entry 48 bytes.
    places: HashMap<PageHash, (u32, u32), BuildHasherDefault<FirstBytes>>,
}

const _: () = assert!(MAX_PAGES <= u32::MAX as u64);
const _: () = assert!(size_of::<(PageHash, (u32, u32))>() == 40);

impl PageSet {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(pages: usize) -> Self {
        Self { places: HashMap::with_capacity_and_hasher(pages, Default::default()) }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn get(&self, hash: &PageHash) -> Option<PageLocation> {
        self.places.get(hash).map(|&(pack, slot)| PageLocation { pack, slot: slot.into() })
    }

    /// Records the location of a page, unless these contents have one already; returns whether they
    /// were new.
    ///
    /// # Panics
    ///
    /// When the slot is past [`MAX_PAGES`], which no pack has.
    pub fn insert(&mut self, hash: PageHash, at: PageLocation) -> bool {
        assert!(at.slot < MAX_PAGES, "slot {} is past the largest pack", at.slot);
        match self.places.entry(hash) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert((at.pack, at.slot as u32));
                true
            }
        }
    }

    /// Records all pages of a pack, as [`PackReader::hashes`](super::PackReader::hashes) lists
    /// them, except those in `dead` slots.
    pub fn insert_pack(
        &mut self,
        pack: u32,
        hashes: impl ExactSizeIterator<Item = PageHash>,
        dead: &Slots,
    ) {
        self.places.reserve(hashes.len());
        for (slot, hash) in (0..).zip(hashes).filter(|(slot, _)| !dead.contains(*slot)) {
            self.insert(hash, PageLocation { pack, slot });
        }
    }
}

/// Uses the first bytes of a hash as its hash. They are uniform already; a program that searches
/// for pages that agree in them pays about a second for each, to slow a lookup by nanoseconds.
#[derive(Debug, Clone, Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn write(&mut self, hash: &[u8]) {
        let first = hash.first_chunk().expect("only page hashes are keys");
        self.0 = u64::from_le_bytes(*first);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_stays() {
        let mut set = PageSet::new();
        let hash = PageHash::of(b"page");
        let at = PageLocation { pack: 7, slot: 9 };
        assert!(set.insert(hash, at));
        assert!(!set.insert(hash, PageLocation { pack: 8, slot: 0 }));
        assert_eq!(set.get(&hash), Some(at));
        assert_eq!(set.get(&PageHash::of(b"other")), None);
    }

    #[test]
    fn a_pack_is_noted_by_slot() {
        let hashes: Vec<_> = (0..1000_u32).map(|n| PageHash::of(&n.to_le_bytes())).collect();
        let mut set = PageSet::with_capacity(hashes.len());
        let mut dead = Slots::new();
        dead.insert(7..9);
        set.insert_pack(3, hashes.iter().copied(), &dead);
        assert_eq!(set.len(), 998);
        for (slot, hash) in (0..).zip(&hashes) {
            let there = !dead.contains(slot);
            assert_eq!(set.get(hash), there.then_some(PageLocation { pack: 3, slot }));
        }
    }

    #[test]
    #[should_panic = "past the largest pack"]
    fn a_slot_no_pack_has() {
        let at = PageLocation { pack: 0, slot: MAX_PAGES };
        PageSet::new().insert(PageHash::of(b"page"), at);
    }
}
