//! Packs in their forms, and their sizes.

use super::*;
use stasis_image::PageHash;

#[test]
fn a_cold_pack_is_smaller_and_as_good() {
    let bed = Bed::new();
    let pack = bed.pack(0..500);
    let root = pack.root();
    let image = bed.image(&[(&pack, 0..500)]);
    let old_path = bed.pack_file(root);
    let reformed = bed.store.compress(root).expect("compress");
    assert!(reformed.after < reformed.before * 6 / 10, "{reformed:?}");
    assert!(!old_path.exists() && bed.tmp() == 0);
    assert_eq!(bed.store.compress(root).expect("again").before, reformed.after);
    let mut bytes = vec![0; PAGE_SIZE];
    pack.read(3, &mut bytes).expect("an open reader reads on");
    let bed = bed.reopened();
    assert!(bed.is_whole(image.id));
    let cold = bed.store.pack(root).expect("open");
    assert_eq!(cold.form(), PackForm::Cold);
    assert!(bed.store.find_page(&PageHash::of(&page(9))).is_some());
    let thawed = bed.store.thaw(root).expect("thaw");
    assert_eq!(thawed.after, reformed.before);
    assert_eq!(bed.store.pack(root).expect("open").form(), PackForm::Plain);
    assert!(bed.is_whole(image.id));
    assert!(!bed.store.pack_path(root, PackForm::Cold).exists());
}

#[test]
fn cold_packs_shrink_too() {
    let bed = Bed::new();
    let pack = bed.pack(0..500);
    let root = pack.root();
    let image = bed.image(&[(&pack, 100..150)]);
    drop(pack);
    bed.store.compress(root).expect("compress");
    let collected = bed.store.collect(&set([&image])).expect("collect");
    assert_eq!(collected.dropped_pages, 450);
    assert_eq!(bed.store.pack(root).expect("open").form(), PackForm::Cold);
    assert!(bed.is_whole(image.id));
    bed.store.thaw(root).expect("thaw");
    assert!(bed.is_whole(image.id));
    assert_eq!(bed.store.pack(root).expect("open").dead().len(), 450);
}

#[test]
fn of_both_forms_one_goes() {
    let bed = Bed::new();
    let pack = bed.pack(0..100);
    let root = pack.root();
    let image = bed.image(&[(&pack, 0..100)]);
    drop(pack);
    let plain = std::fs::read(bed.pack_file(root)).expect("read");
    bed.store.compress(root).expect("compress");
    // as if killed before the plain form went
    std::fs::write(bed.store.pack_path(root, PackForm::Plain), plain).expect("write");
    let bed = bed.reopened();
    let collected = bed.store.collect(&set([&image])).expect("collect");
    assert_eq!(collected.packs, 0, "the pack is still there");
    assert!(!bed.store.pack_path(root, PackForm::Cold).exists());
    assert!(bed.is_whole(image.id));
}

#[test]
fn damage_keeps_a_pack_as_it_is() {
    let bed = Bed::new();
    let pack = bed.pack(0..100);
    let root = pack.root();
    drop(pack);
    let path = bed.pack_file(root);
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[50 * PAGE_SIZE] ^= 1;
    std::fs::write(&path, &bytes).expect("write");
    assert_eq!(bed.store.compress(root).expect_err("damaged").code(), "pack.page");
    assert!(std::fs::read(&path).expect("read") == bytes && bed.tmp() == 0);
}

#[test]
fn space_is_counted_and_divided() {
    let bed = Bed::new();
    let (base, own) = (bed.pack(0..100), bed.pack(100..200));
    let a = bed.image(&[(&base, 0..100)]);
    let b = bed.image(&[(&base, 0..60), (&own, 0..50)]);
    let pages = |count: u64| count * PAGE_SIZE as u64;
    let groups = [("a".to_owned(), vec![a.id]), ("b".to_owned(), vec![b.id, b.id])];
    let usage = bed.store.usage(&groups).expect("usage");
    let (a_use, b_use) = (usage[0].1, usage[1].1);
    // headers and indexes are a little more
    let about = |bytes: u64, count: u64| {
        assert!((pages(count)..pages(count) * 11 / 10 + 20_000).contains(&bytes), "{bytes} {count}")
    };
    assert_eq!(bed.store.packs_of(&set([&a])).expect("packs"), HashSet::from([base.root()]));
    about(a_use.shared, 60);
    about(b_use.shared, 60);
    about(a_use.own, 40);
    about(b_use.own, 50);
    let stats = bed.store.stats(&set([&a, &b])).expect("stats");
    assert_eq!((stats.images, stats.packs, stats.cold_packs), (2, 2, 0));
    assert_eq!((stats.live_pages, stats.dead_pages), (150, 50));
    assert_eq!(stats.shared_bytes, pages(60));
    bed.store.compress(base.root()).expect("compress");
    let stats = bed.store.stats(&set([&a, &b])).expect("stats");
    assert_eq!(stats.cold_packs, 1);
    assert!(stats.compressed_bytes > pages(40), "{stats:?}");
}
