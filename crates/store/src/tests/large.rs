//! Packs that are so large that the disk gets them directly.

use super::*;
use crate::sink::Sink;
use crate::{FinishedPacks, Result};
use stasis_fault as fault;
use std::ops::Range;

/// More than is written through the page cache: 70 MiB.
const PAGES: u64 = 18_000;

fn keep(sink: &mut Sink, pages: Range<u64>) -> Result<Vec<PageRun>> {
    let mut runs = Vec::new();
    for first in pages.clone().step_by(100) {
        let contents: Vec<u8> = (first..pages.end.min(first + 100)).flat_map(page).collect();
        sink.keep(first, &contents, |_| None, &mut runs)?;
    }
    Ok(runs)
}

#[test]
fn every_page_of_a_large_pack_is_on_disk() {
    let bed = Bed::new();
    let mut sink = Sink::new(&bed.store, None).expect("a sink");
    // what is read in a pause comes before
    keep(&mut sink, 0..1000).expect("keep");
    sink.may_wait();
    let runs = keep(&mut sink, 1000..PAGES).expect("keep");
    assert_eq!(runs, [PageRun { page: 1000, count: PAGES as u32 - 1000, pack: 0, slot: 1000 }]);
    let FinishedPacks { packs, held } = sink.finish().expect("finish");
    let pack = bed.store.pack(packs[0].root).expect("it is there");
    assert_eq!(pack.pages(), PAGES);
    let image = bed.image(&[(&pack, 0..PAGES)]);
    drop((pack, held));
    // past the page cache
    assert!(bed.is_whole(image.id));
    let bed = bed.reopened();
    assert!(bed.is_whole(image.id));
}

#[test]
fn a_full_disk_leaves_nothing_of_a_large_pack() {
    let bed = Bed::new();
    let mut sink = Sink::new(&bed.store, None).expect("a sink");
    sink.may_wait();
    keep(&mut sink, 0..PAGES - 200).expect("keep");
    let armed = fault::arm("pack.write", fault::Fault::Enospc);
    let kept = keep(&mut sink, PAGES - 200..PAGES + 3000);
    let finished = kept.and_then(|_| sink.finish().map(drop));
    assert!(armed.fired());
    let told = finished.expect_err("the disk is full").to_string();
    assert!(told.contains("No space left"), "{told}");
    assert_eq!(bed.tmp(), 0);
    let packs = std::fs::read_dir(bed.dir.path().join("packs")).expect("list packs");
    assert_eq!(packs.count(), 0);
}
