//! Images between being written and being named.

use super::*;
use crate::save::WrittenImage;
use crate::sink::Sink;

/// An image with a page for each number, in a pack of its own, written and not named.
fn written(bed: &Bed, numbers: std::ops::Range<u64>) -> WrittenImage<'_> {
    let mut sink = Sink::new(&bed.store, None).expect("a sink");
    let mut runs = Vec::new();
    for number in numbers {
        sink.keep(number, &page(number), |_| None, &mut runs).expect("keep");
    }
    let mut manifest = manifest(&[], bed.store.number());
    manifest.memory = vec![ProcessPages { pid: 2, runs, guards: Vec::new() }];
    sink.write(manifest).expect("write")
}

fn pending(bed: &Bed) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(bed.dir.path().join("pending")).expect("list");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort_unstable();
    paths
}

fn reads(bed: &Bed, root: PackRoot, number: u64) -> bool {
    let mut bytes = page(number + 1);
    let read = bed.store.read_pages(root, 0, &mut bytes, false);
    read.is_ok() && bytes == page(number)
}

#[test]
fn a_written_image_can_be_read_and_nothing_else_depends_on_it() {
    let bed = Bed::new();
    let image = written(&bed, 0..3);
    let (id, root) = (image.image().id, image.image().manifest.meta.packs[0].root);
    assert!(reads(&bed, root, 0));
    assert!(bed.store.find_page(&PageHash::of(&page(0))).is_none(), "it may never get its name");
    assert!(bed.store.require_pack(root).is_err());
    assert!(bed.store.image(id).is_err());
    // another of the same page has its own
    let other = written(&bed, 0..1).save().expect("save");
    assert_ne!(other.manifest.meta.packs[0].root, root);
    let saved = image.save().expect("save");
    assert!(pending(&bed).is_empty() && bed.tmp() == 0);
    assert!(bed.is_whole(saved.id) && bed.is_whole(other.id));
    assert!(bed.store.find_page(&PageHash::of(&page(2))).is_some());
    drop((saved, other));
    let bed = bed.reopened();
    assert!(bed.is_whole(id));
}

#[test]
fn one_that_is_given_up_leaves_nothing() {
    let bed = Bed::new();
    let image = written(&bed, 0..3);
    let root = image.image().manifest.meta.packs[0].root;
    drop(image);
    assert!(pending(&bed).is_empty() && bed.tmp() == 0);
    assert!(bed.store.pack(root).is_err());
}

/// Killed after they were durable and before they were named, or before they were whole.
#[test]
fn what_is_whole_is_named_at_the_next_start_and_the_rest_goes() {
    let bed = Bed::new();
    let (whole, torn) = (written(&bed, 0..3), written(&bed, 5..9));
    let [whole_id, torn_id] = [&whole, &torn].map(|one| one.image().id);
    let [whole_root, torn_root] =
        [&whole, &torn].map(|one| one.image().manifest.meta.packs[0].root);
    for path in pending(&bed) {
        let name = path.to_string_lossy().into_owned();
        let is_torn =
            [torn_id.to_string(), torn_root.to_string()].iter().any(|own| name.contains(own));
        if is_torn {
            let file = File::options().write(true).open(&path).expect("open");
            file.set_len(file.metadata().expect("a length").len() - 100).expect("cut");
        }
    }
    std::fs::write(bed.dir.path().join("pending/stray"), "text").expect("write");
    // as a kill does: nothing is cleaned up
    std::mem::forget((whole, torn));
    let bed = bed.reopened();
    assert!(pending(&bed).is_empty());
    assert!(bed.is_whole(whole_id) && reads(&bed, whole_root, 0));
    assert!(bed.store.read_image(torn_id).is_err() && !bed.has_pack(torn_root));
    // no record names it
    bed.store.collect(&HashSet::new()).expect("collect");
    assert!(!bed.has_pack(whole_root));
}

/// A pack whose length is right and whose pages are not all there.
#[test]
fn a_pack_with_pages_that_never_reached_the_disk_is_not_named() {
    let bed = Bed::new();
    let image = written(&bed, 0..3);
    let root = image.image().manifest.meta.packs[0].root;
    let pack = pending(&bed).into_iter().find(|path| path.extension() == Some("pack".as_ref()));
    let pack = File::options().write(true).open(pack.expect("a pack")).expect("open");
    std::os::unix::fs::FileExt::write_all_at(&pack, &[0; PAGE_SIZE], 2 * PAGE_SIZE as u64)
        .expect("write");
    std::mem::forget(image);
    let bed = bed.reopened();
    assert!(!bed.has_pack(root) && pending(&bed).is_empty());
}
