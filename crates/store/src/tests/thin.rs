//! States stored as differences to their predecessors.

use super::remote::remote;
use super::*;
use stasis_fault::{Fault, arm};
use std::time::Duration;

/// A chain of states: each changes a byte of the pages before, as small instructions do, and has a
/// page that is new.
struct Chain {
    bed: Bed,
    images: Vec<ImageId>,
    own: Vec<PackRoot>,
}

const PAGES: u64 = 40;

/// Page `number` after `steps` changes.
fn changed(number: u64, steps: u64) -> Vec<u8> {
    let mut bytes = page(number);
    (0..steps).for_each(|step| bytes[(step * 31 + number) as usize % PAGE_SIZE] ^= 0xa5);
    bytes
}

impl Chain {
    fn of(steps: u64) -> Chain {
        let bed = Bed::new();
        let (mut images, mut own): (Vec<Image>, Vec<Arc<Pack>>) = (Vec::new(), Vec::new());
        for step in 0..=steps {
            let old = (0..PAGES).map(|number| changed(number, step));
            let new = (0..step).map(|number| changed(1000 + number, step - number - 1));
            let pack = bed.pack_of(old.chain(new));
            let mut manifest = manifest(&[(&pack, 0..PAGES + step)], step);
            // pages of the state before stay in place, so its packs are named as well
            if let (Some(parent), Some(before)) = (images.last(), own.last()) {
                manifest.meta.parent = Some(parent.id);
                let last = PackRef { root: before.root(), pages: before.pages() };
                manifest.meta.packs.push(last);
            }
            images.push(bed.store.write_image(manifest).expect("write an image"));
            own.push(pack);
        }
        let images = images.iter().map(|image| image.id).collect();
        let own = own.iter().map(|pack| pack.root()).collect();
        Chain { bed, images, own }
    }

    fn keep(&self) -> HashSet<ImageId> {
        self.images.iter().copied().collect()
    }

    fn thin(&self) -> u64 {
        let (hot, long) = (HashSet::new(), Duration::from_secs(60));
        self.bed.store.thin(&self.keep(), &hot, Duration::ZERO, long).expect("make states small")
    }

    fn form(&self, step: usize) -> PackForm {
        self.bed.store.open_pack(self.own[step]).expect("open").form()
    }

    /// Whether the pages of a state are unchanged.
    fn is_right(&self, step: usize) -> bool {
        let pack = self.bed.store.pack(self.own[step]).expect("open");
        let mut bytes = vec![0; PAGE_SIZE];
        (0..PAGES).all(|number| {
            pack.read(number, &mut bytes).is_ok() && bytes == changed(number, step as u64)
        })
    }
}

impl Bed {
    fn pack_of(&self, pages: impl Iterator<Item = Vec<u8>>) -> Arc<Pack> {
        let temp = self.store.temp_path("pack");
        let file = File::create(&temp).expect("make a file");
        let mut writer = PackWriter::new(io::BufWriter::new(file), Arch::X86_64).expect("write");
        for page in pages {
            writer.append(&page).expect("write");
        }
        let (file, summary) = writer.finish().expect("write");
        let file = file.into_inner().expect("write");
        self.store.adopt_pack(&temp, file, summary.root).expect("adopt a pack")
    }
}

#[test]
fn a_history_takes_a_fraction_and_reads_as_before() {
    let chain = Chain::of(12);
    let before = chain.bed.store.stats(&chain.keep()).expect("count").bytes;
    let freed = chain.thin();
    assert!(freed * 10 > before * 7, "{freed} of {before} bytes were freed");
    assert_eq!(chain.form(0), PackForm::Plain, "there is nothing before the first");
    assert!((1..=12).all(|step| chain.form(step) == PackForm::Delta));
    assert_eq!(chain.thin(), 0, "once is enough");
    let Chain { bed, images, own } = chain;
    let chain = Chain { bed: bed.reopened(), images, own };
    assert!((0..=12).all(|step| chain.is_right(step)));
    assert!(chain.images.iter().all(|id| chain.bed.is_whole(*id)));
    assert_eq!(chain.thin(), 0, "and stays enough");
    assert_eq!(chain.bed.tmp(), 0);
}

/// However long a history is, a difference depends on a page that is stored whole.
#[test]
fn differences_do_not_lean_on_differences() {
    let chain = Chain::of(20);
    chain.thin();
    for root in &chain.own[1..] {
        let pack = chain.bed.store.pack(*root).expect("open");
        assert!(pack.bases().iter().count() >= PAGES as usize);
        for (_, base) in pack.bases().iter() {
            let other = chain.bed.store.pack(base.root).expect("open");
            other.read_whole(base.slot, &mut [0; PAGE_SIZE]).expect("stored whole");
        }
    }
}

/// Later states were converted first: their bases stay whole when their own turn comes.
#[test]
fn base_pages_stay_whole() {
    let chain = Chain::of(3);
    let last = HashSet::from([chain.images[3]]);
    let long = Duration::from_secs(60);
    chain.bed.store.thin(&last, &HashSet::new(), Duration::ZERO, long).expect("the last");
    assert_eq!(chain.form(3), PackForm::Delta);
    chain.thin();
    assert!((0..=3).all(|step| chain.is_right(step)));
    assert!(chain.images.iter().all(|id| chain.bed.is_whole(*id)));
}

#[test]
fn a_collection_keeps_the_bases_of_differences() {
    let chain = Chain::of(6);
    chain.thin();
    // the first state is removed, but nothing that the remaining one depends on
    let one = HashSet::from([chain.images[2]]);
    let collected = chain.bed.store.collect(&one).expect("collect");
    assert_eq!(collected.images, 6);
    assert!(chain.bed.has_pack(chain.own[0]) && !chain.bed.has_pack(chain.own[3]));
    assert!(chain.bed.is_whole(chain.images[2]) && chain.is_right(2));
    chain.bed.store.collect(&HashSet::new()).expect("collect all");
    assert!(chain.own.iter().all(|root| !chain.bed.has_pack(*root)));
}

#[test]
fn damage_to_a_base_is_named_and_harms_no_other_state() {
    let chain = Chain::of(3);
    chain.thin();
    let path = chain.bed.pack_file(chain.own[0]);
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[stasis_image::pack::page_offset(5) as usize] ^= 1;
    std::fs::write(&path, bytes).expect("write");
    let Chain { bed, images, own } = chain;
    let chain = Chain { bed: bed.reopened(), images, own };
    let report = |id: &ImageId| {
        let store = &chain.bed.store;
        let keep = HashSet::from([*id]);
        store.check(&keep, Repair::Nothing, |_| ControlFlow::Continue(())).expect("check").findings
    };
    for (id, root) in chain.images.iter().zip(&chain.own) {
        let found = report(id);
        assert!(found.iter().any(|one| {
            let own = matches!(&one.damage, Damage::Pages { root: at, slots }
                if at == root && *slots == (5..6));
            own && one.images == [*id]
        }));
        let mut bytes = vec![0; PAGE_SIZE];
        let pack = chain.bed.store.pack(*root).expect("open");
        let others = (0..PAGES).filter(|slot| *slot != 5);
        assert!(others.into_iter().all(|slot| pack.read(slot, &mut bytes).is_ok()));
    }
}

/// A copy elsewhere needs nothing that is only here.
#[test]
fn exported_packs_are_complete() {
    let chain = Chain::of(3);
    chain.thin();
    let image = chain.bed.store.hold(chain.images[3]).expect("the last");
    let (_dir, remote) = remote();
    chain.bed.store.push(&image, &remote).expect("push");
    let there = Bed::new();
    there.store.fetch(image.id, &remote).expect("fetch");
    assert!(there.is_whole(image.id));
    // a file that needs pages from here is refused
    let path = chain.bed.pack_file(chain.own[3]);
    let bytes = std::fs::read(path).expect("read");
    for other in [there, Bed::new()] {
        let taken = other.store.import_pack(chain.own[3], bytes.len() as u64, &mut &bytes[..]);
        assert_eq!(taken.expect_err("it needs others").code(), "image.unfit");
        assert_eq!(other.tmp(), 0);
    }
}

/// Pages that were found and not recorded yet must not become differences.
#[test]
fn packs_in_use_are_not_converted() {
    let chain = Chain::of(1);
    let reader = chain.bed.store.pack(chain.own[1]).expect("open");
    chain.thin();
    assert_eq!(chain.form(1), PackForm::Plain);
    drop(reader);
    chain.thin();
    assert_eq!(chain.form(1), PackForm::Delta);
    let hash = PageHash::of(&changed(3, 1));
    assert!(chain.bed.store.find_page(&hash).is_none(), "a difference is not shared");
}

#[test]
fn failing_anywhere_loses_nothing() {
    for point in ["image.written", "rewrite.written", "rewrite.named"] {
        let chain = Chain::of(3);
        let guard = arm(point, Fault::Error);
        let (hot, long) = (HashSet::new(), Duration::from_secs(60));
        let done = chain.bed.store.thin(&chain.keep(), &hot, Duration::ZERO, long);
        assert_eq!(guard.fired(), done.is_err(), "{point}");
        drop(guard);
        assert_eq!(chain.bed.tmp(), 0, "{point}: files left in tmp");
        assert!((0..=3).all(|step| chain.is_right(step)), "{point}");
        // as if killed there
        let Chain { bed, images, own } = chain;
        let chain = Chain { bed: bed.reopened(), images, own };
        chain.thin();
        chain.bed.store.collect(&chain.keep()).expect("collect");
        let packs = std::fs::read_dir(chain.bed.dir.path().join("packs")).expect("list").count();
        assert_eq!(packs, 4, "{point}: one file for each pack");
        assert!((0..=3).all(|step| chain.is_right(step)), "{point}");
        assert!(chain.images.iter().all(|id| chain.bed.is_whole(*id)), "{point}");
    }
}
