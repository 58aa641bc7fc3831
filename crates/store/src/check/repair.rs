//! Repairs damaged pages from intact copies in other packs.

use super::damaged_in;
use crate::error::Result;
use crate::names::StoreListing;
use crate::{Pack, Store};
use stasis_image::{PAGE_SIZE, PageHash, Slots};
use std::collections::HashMap;

/// The most pages repaired in a pack at a time, for their contents are held in memory.
const MOST: u64 = 4096;
const PIECE: u64 = 256;

/// Repairs the damaged pages of a pack that another pack holds. Returns the repaired ones.
pub fn repair(store: &Store, pack: &Pack, damaged: &Slots) -> Result<Slots> {
    let contents = find(store, pack, damaged)?;
    if contents.is_empty() {
        return Ok(Slots::new());
    }
    let mut repaired = Slots::new();
    contents.keys().for_each(|slot| repaired.insert(*slot..slot + 1));
    // unneeded pages may be damaged, too: the pack is written with the rest of them
    let mut lost = Slots::new();
    for range in pack.dead().others(pack.pages()).ranges(PIECE) {
        damaged_in(pack, &range, &mut lost);
    }
    let done = store.mend_pack(pack, &contents, &lost)?;
    Ok(if done { repaired } else { Slots::new() })
}

/// Contents of damaged slots, from any page with the same hash.
fn find(store: &Store, pack: &Pack, damaged: &Slots) -> Result<HashMap<u64, Vec<u8>>> {
    let mut wanted: HashMap<PageHash, Vec<u64>> = HashMap::new();
    for slot in damaged.ranges(1).take(MOST as usize).map(|range| range.start) {
        if let Some(hash) = pack.hash(slot).filter(|_| !pack.dead().contains(slot)) {
            wanted.entry(hash).or_default().push(slot);
        }
    }
    let mut contents = HashMap::new();
    for (root, _) in StoreListing::list(store)?.packs {
        if wanted.is_empty() {
            break;
        }
        let Ok(other) = store.open_pack(root) else { continue };
        take_from(&other, &mut wanted, &mut contents);
    }
    Ok(contents)
}

fn take_from(
    other: &Pack,
    wanted: &mut HashMap<PageHash, Vec<u64>>,
    contents: &mut HashMap<u64, Vec<u8>>,
) {
    for (slot, hash) in (0..).zip(other.hashes()) {
        let mut page = vec![0; PAGE_SIZE];
        if !wanted.contains_key(&hash) || other.read(slot, &mut page).is_err() {
            continue;
        }
        for slot in wanted.remove(&hash).into_iter().flatten() {
            contents.insert(slot, page.clone());
        }
    }
}
