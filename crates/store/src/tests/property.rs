//! Any order of events: kept and used data is complete, and all other data is removed.

use super::*;
use proptest::prelude::*;
use stasis_image::PageHash;
use std::ops::Range;

#[derive(Debug, Clone)]
enum Event {
    /// A capture: pages found where they are, the others in a new pack.
    Capture(Range<u64>),
    /// The record of an image is removed; its users keep it.
    Unrecord(usize),
    /// An image is no longer in use.
    Release(usize),
    Collect,
    /// A collection that began before the last captures were recorded.
    CollectLate(Range<u64>),
    Compress(usize),
    Thaw(usize),
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    let pages = || (0..400_u64, 1..200_u64).prop_map(|(start, len)| start..start + len);
    prop_oneof![
        4 => pages().prop_map(Event::Capture),
        2 => (0..20_usize).prop_map(Event::Unrecord),
        3 => (0..20_usize).prop_map(Event::Release),
        2 => Just(Event::Collect),
        1 => pages().prop_map(Event::CollectLate),
        1 => (0..20_usize).prop_map(Event::Compress),
        1 => (0..20_usize).prop_map(Event::Thaw),
        1 => Just(Event::Restart),
    ]
}

struct World {
    bed: Option<Bed>,
    recorded: Vec<ImageId>,
    used: Vec<Image>,
}

impl World {
    fn bed(&self) -> &Bed {
        self.bed.as_ref().expect("missing only inside a restart")
    }

    fn keep(&self) -> HashSet<ImageId> {
        self.recorded.iter().copied().collect()
    }

    fn capture(&mut self, pages: Range<u64>) {
        let bed = self.bed();
        let find = |number: &u64| bed.store.find_page(&PageHash::of(&page(*number)));
        let new: Vec<u64> = pages.clone().filter(|number| find(number).is_none()).collect();
        let own = (!new.is_empty()).then(|| bed.pack(new));
        let parts: Vec<(Arc<Pack>, u64)> =
            pages.map(|number| find(&number).expect("kept or written")).collect();
        let parts: Vec<_> = parts.iter().map(|(pack, slot)| (&**pack, *slot..slot + 1)).collect();
        let image = bed.image(&parts);
        drop(own);
        self.recorded.push(image.id);
        self.used.push(image);
    }

    fn pack_of(&self, index: usize) -> Option<PackRoot> {
        let found = names::StoreListing::list(&self.bed().store).expect("list");
        let count = found.packs.len().max(1);
        found.packs.get(index % count).map(|(root, _)| *root)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Capture(pages) => self.capture(pages),
            Event::Unrecord(index) if index < self.recorded.len() => {
                self.recorded.swap_remove(index);
            }
            Event::Release(index) if index < self.used.len() => {
                self.used.swap_remove(index);
            }
            Event::Collect => {
                self.bed().store.collect(&self.keep()).expect("collect");
                self.nothing_else_is_left();
            }
            Event::CollectLate(pages) => self.collect_late(pages),
            Event::Compress(index) => {
                self.pack_of(index).map(|root| self.bed().store.compress(root).expect("compress"));
            }
            Event::Thaw(index) => {
                self.pack_of(index).map(|root| self.bed().store.thaw(root).expect("thaw"));
            }
            Event::Restart => {
                self.used.clear();
                self.bed = self.bed.take().map(Bed::reopened);
            }
            Event::Unrecord(_) | Event::Release(_) => {}
        }
    }

    /// A capture ends, is recorded and released between the beginning of a collection and its
    /// sweep, while the collector has older records.
    fn collect_late(&mut self, pages: Range<u64>) {
        let bed = self.bed.take().expect("a bed");
        let collection = bed.store.begin_collection();
        let keep = self.keep();
        let late = {
            let find = |number: &u64| bed.store.find_page(&PageHash::of(&page(*number)));
            let found: Vec<_> = pages.clone().filter_map(|number| find(&number)).collect();
            let parts: Vec<_> =
                found.iter().map(|(pack, slot)| (&**pack, *slot..slot + 1)).collect();
            bed.image(&parts).id
        };
        collection.sweep(&keep).expect("collect");
        self.bed = Some(bed);
        self.recorded.push(late);
    }

    fn nothing_else_is_left(&self) {
        let found = names::StoreListing::list(&self.bed().store).expect("list");
        let used = self.used.iter().map(|image| image.id);
        let wanted: HashSet<ImageId> = used.chain(self.recorded.iter().copied()).collect();
        assert_eq!(found.images.into_iter().collect::<HashSet<_>>(), wanted);
        let packs = wanted.iter().flat_map(|id| {
            let image = self.bed().store.read_image(*id).expect("read");
            image.manifest.meta.packs.iter().map(|pack| pack.root).collect::<Vec<_>>()
        });
        let packs: HashSet<PackRoot> = packs.collect();
        let there: HashSet<PackRoot> = found.packs.iter().map(|(root, _)| *root).collect();
        assert_eq!(there, packs);
        assert_eq!(self.bed().tmp(), 0);
    }

    fn holds(&self) {
        let used = self.used.iter().map(|image| image.id);
        let keep: HashSet<ImageId> = used.chain(self.recorded.iter().copied()).collect();
        let go = |_| ControlFlow::Continue(());
        let checked = self.bed().store.check(&keep, Repair::Nothing, go).expect("check");
        assert!(checked.findings.is_empty(), "{}", checked.findings[0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn nothing_is_lost_and_nothing_is_left(events in prop::collection::vec(event(), 1..24)) {
        let mut world = World { bed: Some(Bed::new()), recorded: Vec::new(), used: Vec::new() };
        for event in events {
            world.happens(event);
            world.holds();
        }
    }
}
