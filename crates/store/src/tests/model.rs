//! The real capture sink against collections, in any order of their steps, by seed: every recorded
//! or held image has its file and every slot it names.
//!
//!   this thread   captures advance page by page, images are recorded, released and forgotten
//!   the other     a collection, or a pack that gets another form; it stops at each of its failure
//!                 points and goes on when this thread says so
//!
//! Only one of the two ever runs, so a seed repeats exactly.

use super::*;
use crate::{FinishedPacks, Sink};
use stasis_fault::{Fault, POINTS, arm};
use stasis_image::PageHash;
use std::collections::HashMap;
use std::sync::mpsc;

/// Different pages that captures draw from; few, so that they coincide.
const CONTENTS: u64 = 200;
/// Pages of one image, at most. A pack is rewritten when 64 of its pages go.
const LARGE: u64 = 100;

struct Seeded(fastrand::Rng);

impl Seeded {
    fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        self.0.choice(all)
    }
}

/// A page of a model image: its location and its contents.
type Expected = Vec<(u64, u64)>;

/// A capture on its way: before its packs are finished, and after.
struct Going<'a> {
    sink: Sink<'a>,
    parent: Option<(Image, Expected)>,
    runs: Vec<PageRun>,
    expected: Expected,
    wanted: u64,
}

struct World<'a> {
    bed: &'a Bed,
    seeded: Seeded,
    going: Vec<Going<'a>>,
    finished: Vec<(FinishedPacks, Vec<PageRun>, Expected)>,
    held: Vec<(Image, Expected)>,
    recorded: HashMap<ImageId, Expected>,
    captures: u64,
}

impl<'a> World<'a> {
    fn step(&mut self) {
        match self.seeded.below(12) {
            0 | 1 if self.going.len() < 3 => self.begin(),
            0..=5 => self.advance(),
            6 | 7 => self.name(),
            8 | 9 => self.release(),
            _ => self.forget(),
        }
    }

    fn begin(&mut self) {
        let parent = match self.seeded.one_in(4) {
            true => None,
            false => self.seeded.pick(&self.held).cloned(),
        };
        let image = parent.as_ref().map(|(image, _)| image);
        let sink = Sink::new(&self.bed.store, image).expect("the parent is held");
        // the first ones fill packs, later ones leave most of a pack unused
        let wanted = if parent.is_none() { LARGE } else { 2 + self.seeded.below(12) };
        self.going.push(Going { sink, parent, runs: Vec::new(), expected: Vec::new(), wanted });
    }

    fn advance(&mut self) {
        if self.going.is_empty() {
            return;
        }
        let at = self.seeded.below(self.going.len() as u64) as usize;
        let refer = self.seeded.one_in(6).then(|| self.seeded.pick(&self.held).cloned()).flatten();
        let going = &mut self.going[at];
        let steps = if self.seeded.one_in(3) { 3 } else { LARGE };
        for _ in 0..steps {
            let page = going.expected.last().map_or(0, |(page, _)| page + 1);
            if going.expected.len() as u64 >= going.wanted {
                break;
            }
            going.one(&mut self.seeded, page);
        }
        if let Some((other, expected)) = refer {
            going.refer(&other, &expected);
        }
        if going.expected.len() as u64 >= going.wanted {
            let Going { sink, runs, expected, .. } = self.going.swap_remove(at);
            let finished = sink.finish().expect("finish");
            self.finished.push((finished, runs, expected));
        }
    }

    /// A capture's image gets its name, and maybe a record, while it is held.
    fn name(&mut self) {
        let Some((finished, runs, expected)) = self.finished.pop() else { return };
        self.captures += 1;
        let mut manifest = manifest(&[], self.captures);
        manifest.memory[0].runs = runs;
        let FinishedPacks { packs, held } = finished;
        manifest.meta.packs = packs;
        let image = self.bed.store.write_image(manifest).expect("write");
        drop(held);
        if !self.seeded.one_in(4) {
            self.recorded.insert(image.id, expected.clone());
        }
        self.held.push((image, expected));
    }

    fn release(&mut self) {
        if self.held.len() > 1 {
            let at = self.seeded.below(self.held.len() as u64) as usize;
            self.held.swap_remove(at);
        }
    }

    fn forget(&mut self) {
        let mut ids: Vec<ImageId> = self.recorded.keys().copied().collect();
        ids.sort_unstable();
        if let Some(id) = self.seeded.pick(&ids) {
            self.recorded.remove(id);
        }
    }

    /// A collection, or a rewrite of a pack, between whose steps other things happen.
    fn upkeep(&mut self) {
        let bed = self.bed;
        let packs = names::StoreListing::list(&bed.store).expect("list").packs;
        let reform = self.seeded.one_in(4).then(|| self.seeded.pick(&packs).copied()).flatten();
        let (stopped, stops) = mpsc::channel::<Option<mpsc::Sender<HashSet<ImageId>>>>();
        let (go, goes) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let collector = scope.spawn(move || {
                let goes = Arc::new(Mutex::new(goes));
                let stop = |stopped: mpsc::Sender<_>| {
                    let goes = goes.clone();
                    Fault::Call(Arc::new(move || {
                        stopped.send(None).expect("the model waits");
                        goes.lock().recv().expect("the model goes on");
                    }))
                };
                let upkeep =
                    |name: &&str| name.starts_with("collect.") || name.starts_with("rewrite.");
                let points = POINTS.into_iter().filter(upkeep);
                let guards: Vec<_> = points
                    .flat_map(|name| (0..6).map(move |_| name))
                    .map(|name| arm(name, stop(stopped.clone())))
                    .collect();
                match reform {
                    Some((root, PackForm::Plain)) => drop(bed.store.compress(root)),
                    Some((root, _)) => drop(bed.store.thaw(root)),
                    None => {
                        let collection = bed.store.begin_collection();
                        // the records are read now, by the thread that has them
                        let (answer, records) = mpsc::channel();
                        stopped.send(Some(answer)).expect("the model waits");
                        let keep = records.recv().expect("the records");
                        collection.sweep(&keep).expect("collect");
                    }
                }
                drop(guards);
            });
            for stop in stops {
                for _ in 0..self.seeded.below(4) {
                    self.step();
                }
                match stop {
                    Some(answer) => {
                        let keep = self.recorded.keys().copied().collect();
                        answer.send(keep).expect("the collector waits");
                    }
                    None => go.send(()).expect("the collector waits"),
                }
            }
            collector.join().expect("no failure");
        });
        self.check();
    }

    /// The invariant, read from the files themselves.
    fn check(&self) {
        let held = self.held.iter().map(|(image, expected)| (image.id, expected));
        let all = held.chain(self.recorded.iter().map(|(id, expected)| (*id, expected)));
        let mut packs: HashMap<PackRoot, Pack> = HashMap::new();
        for (id, expected) in all {
            let manifest = self.bed.store.read_manifest(id).expect("it has its file");
            let runs = &manifest.memory[0].runs;
            for (page, number) in expected {
                let run = run_at(runs, *page).expect("every page has a run");
                let root = manifest.meta.packs[run.pack as usize].root;
                let pack = packs.entry(root).or_insert_with(|| {
                    self.bed
                        .store
                        .open_pack(root)
                        .unwrap_or_else(|error| panic!("image {id} needs pack {root}: {error}"))
                });
                let dead = pack.dead().contains(run.slot);
                assert!(!dead, "image {id}: page {page} was dropped (slot {} of {root})", run.slot);
                assert_eq!(pack.hash(run.slot), Some(PageHash::of(&page_of(*number))));
            }
        }
    }
}

impl Going<'_> {
    /// One more page: reused from the parent, equal to one there, or any other.
    fn one(&mut self, seeded: &mut Seeded, page: u64) {
        let before = self.parent.as_ref().and_then(|(image, expected)| {
            let number = expected.iter().find(|(at, _)| *at == page)?.1;
            Some((run_at(&image.manifest.memory[0].runs, page)?, number))
        });
        let (number, same_place) = match (before, seeded.below(4)) {
            (Some((run, number)), 0 | 1) => {
                self.sink.inherit(run, &mut self.runs);
                self.expected.push((page, number));
                return;
            }
            (Some((run, number)), 2) => (number, Some(run)),
            _ => (seeded.below(CONTENTS), None),
        };
        let same_place = |_| same_place;
        let kept = self.sink.keep(page, &page_of(number), same_place, &mut self.runs);
        kept.expect("keep a page");
        self.expected.push((page, number));
    }

    /// All pages of another image, after the existing ones.
    fn refer(&mut self, other: &Image, expected: &Expected) {
        let first = self.expected.last().map_or(0, |(page, _)| page + 1);
        let mut runs = other.manifest.memory[0].runs.clone();
        self.sink.refer(other, &mut runs);
        self.runs.extend(runs.into_iter().map(|run| PageRun { page: run.page + first, ..run }));
        self.expected.extend(expected.iter().map(|(page, number)| (page + first, *number)));
    }
}

fn run_at(runs: &[PageRun], page: u64) -> Option<PageRun> {
    let run =
        runs.iter().find(|run| (run.page..run.page + u64::from(run.count)).contains(&page))?;
    Some(PageRun { page, count: 1, pack: run.pack, slot: run.slot + (page - run.page) })
}

fn page_of(number: u64) -> Vec<u8> {
    super::page(number)
}

fn run_seed(seed: u64) {
    let bed = Bed::in_memory();
    let mut world = World {
        bed: &bed,
        seeded: Seeded(fastrand::Rng::with_seed(seed)),
        going: Vec::new(),
        finished: Vec::new(),
        held: Vec::new(),
        recorded: HashMap::new(),
        captures: 0,
    };
    for _ in 0..8 {
        for _ in 0..12 {
            world.step();
        }
        world.upkeep();
    }
    let World { going, finished, held, recorded, .. } = world;
    drop((going, finished, held));
    bed.store.collect(&recorded.keys().copied().collect()).expect("collect");
    assert_eq!(bed.tmp(), 0, "nothing is left in tmp");
}

#[test]
fn recorded_and_held_images_have_all_their_slots() {
    let first = std::env::var("STASIS_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = match (first, std::env::var_os("STASIS_SOAK")) {
        (Some(_), _) => 1,
        (None, Some(_)) => 20_000,
        (None, None) => 200,
    };
    let first = first.unwrap_or(0_u64);
    for seed in first..first + count {
        let ran = std::panic::catch_unwind(|| run_seed(seed));
        assert!(ran.is_ok(), "seed {seed}: STASIS_SEED={seed} repeats it");
    }
}
