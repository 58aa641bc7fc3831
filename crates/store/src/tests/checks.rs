//! Flipped bits anywhere are found and named with the images they affect, and repaired where
//! another copy proves the contents.

use super::*;

fn go(_: CheckProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn flip(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[at as usize] ^= 0x10;
    std::fs::remove_file(path).and_then(|()| std::fs::write(path, bytes)).expect("write");
}

#[test]
fn damage_is_reported_with_the_affected_images() {
    let bed = Bed::new();
    let (a, b) = (bed.pack(0..100), bed.pack(100..200));
    let first = bed.image(&[(&a, 0..50)]);
    let second = bed.image(&[(&a, 40..100)]);
    let third = bed.image(&[(&b, 0..100)]);
    let keep = set([&first, &second, &third]);
    let path = bed.pack_file(a.root());
    for slot in [20, 45, 46, 99] {
        flip(&path, stasis_image::pack::page_offset(slot) + 17);
    }
    let checked = bed.store.check(&keep, Repair::Nothing, go).expect("check");
    assert!(checked.complete);
    assert_eq!((checked.images, checked.packs, checked.pages), (3, 2, 200));
    let told = checked.findings.iter().map(|finding| match &finding.damage {
        Damage::Pages { root, slots } => (*root, slots.clone(), finding.images.clone()),
        other => panic!("{other:?}"),
    });
    let mut both = vec![first.id, second.id];
    both.sort_unstable();
    let root = a.root();
    let expected =
        [(root, 20..21, vec![first.id]), (root, 45..47, both), (root, 99..100, vec![second.id])];
    assert!(told.eq(expected));
    let said = checked.findings[1].to_string();
    assert_eq!(said, format!("pages 45 to 46 of pack {root} are damaged; 2 images need it"));
    assert_eq!(
        bed.store.check(&set([&third]), Repair::Nothing, go).expect("check").findings.len(),
        0
    );
}

#[test]
fn every_file_is_covered() {
    let bed = Bed::new();
    let pack = bed.pack(0..70);
    let image = bed.image(&[(&pack, 0..70)]);
    let keep = set([&image]);
    let other = bed.pack(500..510);
    let unharmed = bed.image(&[(&other, 0..10)]);
    let codes = |path: &Path| -> HashSet<&'static str> {
        let whole = std::fs::read(path).expect("read");
        let step = whole.len() / 150 + 1;
        let codes = (0..whole.len()).step_by(step).map(|at| {
            flip(path, at as u64);
            let checked = bed.store.check(&keep, Repair::Nothing, go).expect("check");
            assert!(!checked.findings.is_empty(), "byte {at} of {}", path.display());
            let concerned = |finding: &DamageFinding| finding.images == [image.id];
            assert!(checked.findings.iter().all(concerned), "byte {at}");
            assert!(bed.is_whole(unharmed.id));
            std::fs::write(path, &whole).expect("write");
            checked.findings[0].code()
        });
        codes.collect()
    };
    assert_eq!(codes(&bed.store.image_path(image.id)), HashSet::from(["store.image"]));
    assert_eq!(codes(&bed.pack_file(pack.root())), HashSet::from(["store.pack", "store.pages"]));
    bed.store.compress(pack.root()).expect("compress");
    assert_eq!(codes(&bed.pack_file(pack.root())), HashSet::from(["store.pack", "store.pages"]));
    std::fs::remove_file(bed.pack_file(pack.root())).expect("remove");
    let checked = bed.store.check(&keep, Repair::Nothing, go).expect("check");
    assert_eq!(checked.findings[0].code(), "store.pack");
}

#[test]
fn a_page_known_from_elsewhere_is_put_back() {
    for form in [PackForm::Plain, PackForm::Cold] {
        let bed = Bed::new();
        // pages 40..60 are in both
        let (a, b) = (bed.pack(0..60), bed.pack(40..100));
        let image = bed.image(&[(&a, 40..60)]);
        let path = bed.pack_file(a.root());
        flip(&path, stasis_image::pack::page_offset(50));
        // and one that is not needed
        flip(&path, stasis_image::pack::page_offset(3));
        if form == PackForm::Cold {
            // a damaged pack stays plain; the other may be cold
            bed.store.compress(b.root()).expect("compress");
        }
        let checked = bed.store.check(&set([&image]), Repair::FromCopies, go).expect("check");
        assert_eq!(checked.findings.len(), 1);
        assert!(checked.findings[0].repaired, "{}", checked.findings[0]);
        assert!(bed.is_whole(image.id));
        let mut bytes = vec![0; PAGE_SIZE];
        let pack = bed.store.pack(a.root()).expect("open");
        pack.read(50, &mut bytes).expect("the store uses what was repaired");
        assert_eq!(pack.read(3, &mut bytes).expect_err("lost").code(), "pack.page");
    }
}

#[test]
fn a_damaged_frame_is_put_back() {
    let bed = Bed::new();
    let (a, b) = (bed.pack(0..40), bed.pack(0..50));
    let image = bed.image(&[(&a, 0..40)]);
    bed.store.compress(a.root()).expect("compress");
    drop(b);
    flip(&bed.pack_file(a.root()), 100);
    let told = bed.store.check(&set([&image]), Repair::Nothing, go).expect("check");
    assert!(matches!(&told.findings[0].damage, Damage::Pages { slots, .. } if *slots == (0..32)));
    let checked = bed.store.check(&set([&image]), Repair::FromCopies, go).expect("check");
    assert!(checked.findings.iter().all(|finding| finding.repaired));
    assert!(bed.is_whole(image.id));
    assert_eq!(bed.store.pack(a.root()).expect("open").form(), PackForm::Cold);
}

#[test]
fn a_check_can_be_stopped() {
    let bed = Bed::new();
    let pack = bed.pack(0..1000);
    let image = bed.image(&[(&pack, 0..1000)]);
    let mut seen = Vec::new();
    let stop = |progress: CheckProgress| {
        seen.push(progress);
        if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let checked = bed.store.check(&set([&image]), Repair::Nothing, stop).expect("check");
    assert!(!checked.complete && checked.pages == 512, "{checked:?}");
    let bytes = |pages: u64| pages * PAGE_SIZE as u64;
    assert_eq!(seen[1], CheckProgress { done_bytes: bytes(512), total_bytes: bytes(1000) });
}

#[test]
fn stray_files_are_reported() {
    let bed = Bed::new();
    std::fs::write(bed.dir.path().join("packs/notes.txt"), "mine").expect("write");
    let checked = bed.store.check(&HashSet::new(), Repair::Nothing, go).expect("check");
    assert_eq!(checked.findings[0].code(), "store.stray");
    bed.store.collect(&HashSet::new()).expect("collect");
    assert!(bed.dir.path().join("packs/notes.txt").exists(), "not ours to remove");
}

#[test]
fn an_altered_layer_is_reported_and_recreated() {
    let bed = Bed::new();
    let pack = bed.pack(0..3);
    let mut manifest = manifest(&[(&pack, 0..0)], 1);
    manifest.memory.clear();
    let runs = vec![PageRun { page: 0, count: 3, pack: 0, slot: 0 }];
    // the last page is padded with zeros, which half of every page is here
    let kind = FileEntryKind::Regular { size: 3 * PAGE_SIZE as u64 - 2000, runs };
    manifest.files.entries.push(entry("file", 0o644, kind));
    let image = bed.store.write_image(manifest).expect("write");
    let layer = crate::layers::materialize(&bed.store, &image).expect("lay out").expect("files");
    let check = |repair| bed.store.check(&set([&image]), repair, go).expect("check");
    assert!(check(Repair::Nothing).findings.is_empty());
    assert_eq!(check(Repair::Nothing).layers, 1);
    flip(&layer.join("file"), 5000);
    assert_eq!(check(Repair::Nothing).findings[0].code(), "store.layer");
    let repaired = check(Repair::FromCopies);
    assert!(repaired.findings[0].repaired);
    let again = crate::layers::materialize(&bed.store, &image).expect("lay out").expect("files");
    assert!(again != layer && check(Repair::Nothing).findings.is_empty());
}
