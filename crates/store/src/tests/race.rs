//! Captures, readers and upkeep at the same time, again and again, without processes.

use super::*;
use stasis_image::PageHash;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Finds existing pages, writes missing ones, and has an image that must be complete while it
/// lives.
fn captures(bed: &Bed, thread: u64, over: &AtomicBool) -> u64 {
    let mut rounds = 0;
    while !over.load(Ordering::Relaxed) {
        // threads share some pages, and return to the same ones
        let first = (rounds % 7) * 40 + thread * 20;
        let image = capture(bed, first);
        let again = bed.store.read_image(image.id).expect("in use, so it is there");
        drop(image);
        for pack in &again.manifest.meta.packs {
            assert!(bed.store.pack(pack.root).is_ok(), "its packs are in use, too");
        }
        assert!(bed.is_whole(again.id));
        rounds += 1;
    }
    rounds
}

fn capture(bed: &Bed, first: u64) -> Image {
    let mut found: Vec<(Arc<Pack>, u64)> = Vec::new();
    let mut new = Vec::new();
    for number in first..first + 80 {
        match bed.store.find_page(&PageHash::of(&page(number))) {
            Some(place) => found.push(place),
            None => new.push(number),
        }
    }
    if !new.is_empty() {
        let count = new.len() as u64;
        let own = bed.pack(new);
        found.extend((0..count).map(|slot| (own.clone(), slot)));
    }
    let parts: Vec<_> = found.iter().map(|(pack, slot)| (&**pack, *slot..slot + 1)).collect();
    bed.image(&parts)
}

#[test]
fn nothing_in_use_is_touched() {
    let bed = Bed::new();
    let over = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_secs(2);
    let (rounds, removed) = std::thread::scope(|scope| {
        let threads = [0, 1, 2].map(|number| {
            let (bed, over) = (&bed, &over);
            scope.spawn(move || captures(bed, number, over))
        });
        let mut removed = 0;
        for turn in 0_usize.. {
            let collected = bed.store.collect(&HashSet::new()).expect("collect");
            removed += collected.packs + collected.partial_packs;
            let packs = names::StoreListing::list(&bed.store).expect("list").packs;
            if let Some((root, form)) = packs.get(turn % packs.len().max(1)) {
                let store = &bed.store;
                let other = [PackForm::Plain, PackForm::Cold][turn % 2];
                let reformed = match other {
                    PackForm::Plain => store.thaw(*root),
                    _ => store.compress(*root),
                };
                reformed.unwrap_or_else(|error| panic!("{form:?} to {other:?}: {error}"));
            }
            if Instant::now() > until {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        (threads.map(|thread| thread.join().expect("a thread")), removed)
    });
    println!("{rounds:?} captures, {removed} packs removed or shrunk");
    assert!(rounds.iter().all(|rounds| *rounds > 1) && removed > 1, "{rounds:?} {removed}");
    bed.store.collect(&HashSet::new()).expect("collect");
    let left = names::StoreListing::list(&bed.store).expect("list");
    assert!(left.images.is_empty() && left.packs.is_empty() && bed.tmp() == 0);
}
