//! Images in a remote store, and back into an empty local one.

use super::*;
use crate::remote::{ObjectDirectory, ObjectGroup, ObjectName, ObjectStore};
use std::collections::HashSet;

pub(super) fn remote() -> (TempDir, ObjectDirectory) {
    let dir = TempDir::new().expect("make a directory");
    let remote = ObjectDirectory::open(dir.path()).expect("open");
    (dir, remote)
}

fn versions(remote: &ObjectDirectory, root: PackRoot) -> Vec<ObjectName> {
    let all = remote.list(ObjectGroup::Pack(root)).expect("list");
    all.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn an_image_comes_back_after_the_local_store_was_emptied() {
    let (_dir, remote) = remote();
    let bed = Bed::new();
    let packs = [bed.pack(0..300), bed.pack(300..400)];
    let roots = [packs[0].root(), packs[1].root()];
    let image = bed.image(&[(&packs[0], 10..200), (&packs[1], 0..100)]);
    bed.store.compress(roots[1]).expect("one of them is cold");
    let id = image.id;
    bed.store.push(&image, &remote).expect("push");
    drop((packs, image));
    bed.store.collect(&HashSet::new()).expect("empty the store");
    assert!(bed.store.hold(id).is_err() && !roots.iter().any(|root| bed.has_pack(*root)));
    let image = bed.store.fetch(id, &remote).expect("fetch");
    assert_eq!(image.id, id);
    assert!(bed.is_whole(id) && bed.tmp() == 0);
    let bed = bed.reopened();
    assert!(bed.is_whole(id));
    let mut read = vec![0; PAGE_SIZE];
    bed.store.pack(roots[0]).expect("a pack").read(42, &mut read).expect("read");
    assert_eq!(read, page(42));
    assert_eq!(bed.store.fetch(id, &remote).expect("from here").id, id);
}

/// A pack whose pages were dropped here is complete there, and vice versa.
#[test]
fn versions_of_a_pack_lie_beside_each_other() {
    let (_dir, remote) = remote();
    let bed = Bed::new();
    let pack = bed.pack(0..500);
    let root = pack.root();
    let (few, many) = (bed.image(&[(&pack, 0..50)]), bed.image(&[(&pack, 0..500)]));
    let other = Bed::new();
    let there = other.pack(0..500);
    let most = other.image(&[(&there, 0..500)]);
    drop((pack, many));
    bed.store.collect(&set([&few])).expect("collect");
    assert_eq!(bed.store.pack(root).expect("a pack").dead().len(), 450);
    bed.store.push(&few, &remote).expect("push");
    assert_eq!(versions(&remote, root).len(), 1);
    other.store.push(&most, &remote).expect("push the rest");
    assert_eq!(versions(&remote, root).len(), 2, "the first one lacks pages");
    other.store.push(&most, &remote).expect("push again");
    bed.store.push(&few, &remote).expect("push again");
    assert_eq!(versions(&remote, root).len(), 2, "what is there is not sent again");
    // the store that has few of the pages gets the others
    bed.store.fetch(most.id, &remote).expect("fetch");
    assert!(bed.is_whole(most.id) && bed.is_whole(few.id));
}

#[test]
fn missing_or_damaged_parts_are_refused_and_leave_nothing() {
    let (dir, remote) = remote();
    let bed = Bed::new();
    let pack = bed.pack(0..64);
    let root = pack.root();
    let image = bed.image(&[(&pack, 0..64)]);
    let local = Bed::new();
    let missing = local.store.fetch(image.id, &remote).expect_err("nothing was pushed");
    assert_eq!(missing.code(), "remote.missing");
    bed.store.push(&image, &remote).expect("push");
    let name = versions(&remote, root)[0];
    let path = dir.path().join(name.to_string());
    let sound = std::fs::read(&path).expect("read");
    let mut bytes = sound.clone();
    bytes[PAGE_SIZE + 5] ^= 1;
    std::fs::write(&path, &bytes).expect("damage a page");
    local.store.fetch(image.id, &remote).expect_err("a page is damaged");
    std::fs::write(&path, &sound[..sound.len() - 1]).expect("cut it");
    let cut = local.store.fetch(image.id, &remote).expect_err("it is cut");
    assert_eq!(cut.code(), "image.unfit");
    remote.delete(&name).expect("delete");
    remote.delete(&name).expect("deleted already");
    local.store.fetch(image.id, &remote).expect_err("a pack is missing");
    assert!(local.store.hold(image.id).is_err() && !local.has_pack(root) && local.tmp() == 0);
    std::fs::write(&path, &sound).expect("put it back");
    local.store.fetch(image.id, &remote).expect("fetch");
    assert!(local.is_whole(image.id));
}

#[test]
fn names_lead_nowhere_else() {
    let id = ImageId::of(b"an image");
    let name = ObjectName::Image(id);
    assert_eq!(name.to_string().parse(), Ok(name));
    let digest = PackRoot::of(b"a pack");
    let pack = format!("packs/{digest}/{digest}");
    assert_eq!(pack.parse::<ObjectName>().expect("a name").to_string(), pack);
    for text in ["", "images", "images/../x", "images/x", "packs/..", &format!("/images/{id}")] {
        assert!(text.parse::<ObjectName>().is_err(), "{text}");
    }
    assert!(format!("{pack}/x").parse::<ObjectName>().is_err());
}

#[test]
fn a_range_is_given_whole_or_not_at_all() {
    let (_dir, remote) = remote();
    let name = ObjectName::Image(ImageId::of(b"bytes"));
    assert_eq!(remote.size(&name).expect("look"), None);
    assert_eq!(remote.get(&name, 0..1).expect_err("not there").code(), "remote.missing");
    remote.put(&name, &mut &b"0123456789"[..], 10).expect("put");
    assert_eq!(remote.get(&name, 3..6).expect("get"), b"345");
    assert_eq!(remote.get(&name, 8..11).expect_err("too short").code(), "remote.short");
    let huge = remote.get(&name, 0..u64::MAX).expect_err("too short");
    assert_eq!(huge.code(), "remote.short");
    let short = ObjectName::Image(ImageId::of(b"short"));
    remote.put(&short, &mut &b"012"[..], 10).expect_err("the source ends too soon");
    assert_eq!(remote.list(ObjectGroup::Image).expect("list"), [(name, 10)]);
}
