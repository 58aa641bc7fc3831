//! Removed and kept data, and the result of an interruption.

use super::*;
use stasis_fault::{Fault, POINTS, arm};
use stasis_image::PageHash;

#[test]
fn unneeded_data_is_removed_and_the_rest_stays() {
    let bed = Bed::new();
    let (shared, old) = (bed.pack(0..10), bed.pack(10..20));
    let kept = bed.image(&[(&shared, 0..10)]);
    let gone = bed.image(&[(&shared, 0..5), (&old, 0..10)]).id;
    let roots = (shared.root(), old.root());
    drop((shared, old));
    let collected = bed.store.collect(&set([&kept])).expect("collect");
    assert_eq!((collected.images, collected.packs), (1, 1));
    assert!(collected.bytes > 10 * PAGE_SIZE as u64, "{collected:?}");
    assert!(bed.store.read_image(gone).is_err() && !bed.has_pack(roots.1));
    assert!(bed.is_whole(kept.id) && bed.has_pack(roots.0));
    assert_eq!(bed.store.collect(&set([&kept])).expect("collect"), Collected::default());
    assert_eq!(bed.tmp(), 0);
}

#[test]
fn used_data_stays_until_released() {
    let bed = Bed::new();
    let pack = bed.pack(0..10);
    let root = pack.root();
    let image = bed.image(&[(&pack, 0..10)]);
    drop(pack);
    let copy = image.clone();
    drop(image);
    let nothing = HashSet::new();
    assert_eq!(bed.store.collect(&nothing).expect("collect").images, 0, "a copy lives");
    assert!(bed.is_whole(copy.id));
    drop(copy);
    let collected = bed.store.collect(&nothing).expect("collect");
    assert_eq!((collected.images, collected.packs), (1, 1));
    assert!(!bed.has_pack(root));
}

#[test]
fn a_pack_in_which_a_page_was_found_stays() {
    let bed = Bed::new();
    let pack = bed.pack(0..10);
    let root = pack.root();
    drop(pack);
    let (found, slot) = bed.store.find_page(&PageHash::of(&page(7))).expect("it is there");
    assert_eq!((found.root(), slot), (root, 7));
    let nothing = HashSet::new();
    assert_eq!(bed.store.collect(&nothing).expect("collect").packs, 0);
    // the same when its file got another form meanwhile, or it was forgotten
    bed.store.compress(root).expect("compress");
    assert_eq!(bed.store.collect(&nothing).expect("collect").packs, 0);
    bed.store.forget();
    assert_eq!(bed.store.collect(&nothing).expect("collect").packs, 0);
    drop(found);
    assert_eq!(bed.store.collect(&nothing).expect("collect").packs, 1);
    assert!(bed.store.find_page(&PageHash::of(&page(7))).is_none(), "and is found no more");
}

#[test]
fn images_recorded_during_a_collection_stay() {
    let bed = Bed::new();
    let old = bed.pack(0..10);
    drop(bed.image(&[(&old, 0..1)]));
    let collection = bed.store.begin_collection();
    let new = bed.pack(20..30);
    // finished, recorded and released while the collector works with older records
    let image = bed.image(&[(&old, 0..10), (&new, 0..10)]).id;
    drop((old, new));
    let collected = collection.sweep(&HashSet::new()).expect("collect");
    assert_eq!((collected.images, collected.packs), (1, 0));
    assert!(bed.is_whole(image));
}

#[test]
fn doubt_removes_nothing() {
    let bed = Bed::new();
    let pack = bed.pack(0..10);
    let (kept, gone) = (bed.image(&[(&pack, 0..5)]), bed.image(&[(&pack, 5..9)]).id);
    let keep = set([&kept]);
    let path = bed.store.image_path(kept.id);
    drop((kept, pack));
    let mut bytes = std::fs::read(&path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("write");
    let error = bed.store.collect(&keep).expect_err("a kept image is damaged");
    assert_eq!(error.code(), "store.keep");
    let name = keep.iter().next().expect("one").to_string();
    assert!(error.to_string().contains(&name), "{error}");
    assert!(bed.is_whole(gone));
}

#[test]
fn mostly_dead_packs_shrink_and_their_pages_are_not_found() {
    let bed = Bed::new();
    let pack = bed.pack(0..1000);
    let root = pack.root();
    let kept = bed.image(&[(&pack, 990..1000)]);
    drop(pack);
    let before = names::disk_bytes(&bed.pack_file(root));
    let collected = bed.store.collect(&set([&kept])).expect("collect");
    assert_eq!((collected.partial_packs, collected.dropped_pages), (1, 990));
    let after = names::disk_bytes(&bed.pack_file(root));
    assert!(after < before / 10 && collected.bytes == before - after, "{before} to {after}");
    for bed in [bed].map(|bed| {
        assert!(bed.store.find_page(&PageHash::of(&page(3))).is_none());
        assert!(bed.store.find_page(&PageHash::of(&page(995))).is_some());
        bed.reopened()
    }) {
        assert!(bed.is_whole(kept.id));
        bed.store.pack(root).expect("open");
        assert!(bed.store.find_page(&PageHash::of(&page(3))).is_none(), "after a restart");
        assert!(bed.store.find_page(&PageHash::of(&page(995))).is_some());
        // the same pack is written again, with all of its pages
        drop(bed.pack(0..1000));
        assert!(bed.store.find_page(&PageHash::of(&page(3))).is_some());
        let whole = bed.store.pack(root).expect("open");
        let image = bed.image(&[(&whole, 0..1000)]);
        assert!(bed.is_whole(image.id));
    }
}

#[test]
fn a_pack_in_use_does_not_shrink() {
    let bed = Bed::new();
    let pack = bed.pack(0..1000);
    let kept = bed.image(&[(&pack, 990..1000)]);
    assert_eq!(bed.store.collect(&set([&kept])).expect("collect").partial_packs, 0);
    let image = bed.image(&[(&pack, 0..1000)]);
    assert!(bed.is_whole(image.id));
}

#[test]
fn layers_go_with_their_image_and_come_back_elsewhere() {
    let bed = Bed::new();
    let mut manifest = manifest(&[], 1);
    manifest.files.entries.push(entry("d", 0o755, FileEntryKind::Directory));
    let image = bed.store.write_image(manifest).expect("write");
    let lay_out = |image: &Image| crate::layers::materialize(&bed.store, image).expect("lay out");
    let layer = lay_out(&image).expect("files");
    assert_eq!(lay_out(&image), Some(layer.clone()));
    assert!(bed.store.collect(&HashSet::new()).expect("collect").layers.is_empty(), "in use");
    let id = image.id;
    drop(image);
    let keep = HashSet::from([id]);
    assert!(bed.store.collect(&keep).expect("collect").layers.is_empty(), "kept");
    let again = bed.store.read_image(id).expect("read");
    assert_eq!(lay_out(&again), Some(layer.clone()));
    drop(again);
    let collected = bed.store.collect(&HashSet::new()).expect("collect");
    assert_eq!(collected.layers, std::slice::from_ref(&layer));
    assert!(!layer.exists());
}

#[test]
fn failing_anywhere_harms_nothing() {
    let upkeep = |name: &&str| name.starts_with("collect.") || name.starts_with("rewrite.");
    for point in POINTS.into_iter().filter(upkeep) {
        let bed = Bed::new();
        let (a, b) = (bed.pack(0..200), bed.pack(200..210));
        let kept = bed.image(&[(&a, 0..10)]);
        drop(bed.image(&[(&a, 0..100), (&b, 0..10)]));
        drop((a, b));
        let guard = arm(point, Fault::Error);
        let error = bed.store.collect(&set([&kept])).expect_err(point);
        assert!(guard.fired() && error.to_string().contains("injected"), "{point}: {error}");
        drop(guard);
        assert!(bed.is_whole(kept.id), "{point}");
        assert_eq!(bed.tmp(), 0, "{point}: files left in tmp");
        bed.store.collect(&set([&kept])).expect("collect again");
        assert!(bed.is_whole(kept.id), "{point}");
        let stats = bed.store.stats(&set([&kept])).expect("count");
        assert_eq!((stats.images, stats.packs, stats.dead_pages), (1, 1, 0), "{point}");
    }
}

#[test]
fn one_program_at_a_time() {
    let bed = Bed::new();
    let error = Store::open(bed.dir.path(), any).err().expect("it is in use");
    assert_eq!(error.code(), "store.busy");
    bed.reopened();
}
