//! The number of packs open at a time.

use super::*;

/// More than may be open.
const MANY: u64 = 600;

fn open(bed: &Bed) -> usize {
    bed.store.known().packs().len()
}

#[test]
fn unused_packs_are_closed_and_reopened() {
    let bed = Bed::new();
    let held = bed.pack([MANY]);
    let roots: Vec<PackRoot> = (0..MANY).map(|number| bed.pack([number]).root()).collect();
    assert!(open(&bed) < 520, "{} packs are open", open(&bed));
    assert!(bed.store.known().pack(held.root()).is_some(), "one in use stays");
    assert!(bed.store.known().pack(roots[0]).is_none(), "the oldest is closed");
    for (root, number) in roots.iter().zip(0..) {
        let (pack, slot) = bed.store.find_page(&PageHash::of(&page(number))).expect("it is kept");
        let mut bytes = page(MANY);
        pack.read(slot, &mut bytes).expect("read");
        assert_eq!((pack.root(), bytes), (*root, page(number)));
    }
    assert!(open(&bed) < 520, "{} packs are open", open(&bed));
}

#[test]
fn a_page_of_a_closed_pack_that_is_gone_is_not_found() {
    let bed = Bed::new();
    let lost = bed.pack([MANY]).root();
    (0..MANY).for_each(|number| drop(bed.pack([number])));
    std::fs::remove_file(bed.pack_file(lost)).expect("remove");
    assert!(bed.store.find_page(&PageHash::of(&page(MANY))).is_none());
    assert!(bed.store.pack(lost).is_err());
}

#[test]
fn many_in_use_are_all_open() {
    let bed = Bed::new();
    let held: Vec<Arc<Pack>> = (0..MANY).map(|number| bed.pack([number])).collect();
    assert_eq!(open(&bed), held.len());
    drop(held);
    (MANY..MANY + 300).for_each(|number| drop(bed.pack([number])));
    assert!(open(&bed) < 600, "{} packs are open", open(&bed));
}
