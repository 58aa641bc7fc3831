//! The store is tidied while machines live, and while the engine dies.

use crate::bench::{Bench, names, temp_dir};
use crate::{own, root};
use stasis_engine::fault::{Fault, POINTS, arm};
use stasis_engine::{Error, Image, ImageId, PackRoot, Repair};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KILLED: &str = "upkeep::killed_half_way";
/// How long much is done at the same time.
const WHILE: Duration = Duration::from_secs(4);

fn packs(bench: &Bench) -> Vec<PackRoot> {
    let name = |name: String| name.split_once('.')?.0.parse().ok();
    names(&bench.store().join("packs")).into_iter().filter_map(name).collect()
}

fn is_whole(bench: &Bench, id: ImageId) -> bool {
    let go = |_| ControlFlow::Continue(());
    let checked = bench.engine.store().check(&HashSet::from([id]), Repair::Nothing, go);
    checked.expect("check").findings.is_empty()
}

#[test]
fn killed_half_way() {
    if own::is("victim") {
        return victim();
    }
    own::process(KILLED, || {
        for point in POINTS.into_iter().filter(|name| name.starts_with("collect.")) {
            survive("collect", point);
        }
        for point in ["rewrite.written", "rewrite.named"] {
            survive("compress", point);
            survive("thaw", point);
        }
    });
}

fn survive(what: &str, point: &str) {
    eprintln!("{what} {point}");
    let dir = temp_dir();
    let path = dir.path().to_str().expect("a plain path");
    let environment = [("VICTIM_DIR", path), ("VICTIM", what), ("POINT", point)];
    let status = own::wait(own::start(KILLED, "victim", &environment), own::PATIENCE);
    assert!(own::was_killed(status), "{what} {point}: the victim was to be killed: {status}");
    assert_eq!(own::left_behind(), [""; 0], "{what} {point}");

    let bench = Bench::at(dir.path(), root::shared());
    assert_eq!(bench.unfinished(), [""; 0], "{what} {point}: a new engine tidies up");
    let good = std::fs::read_to_string(dir.path().join("good")).expect("the victim's notes");
    let (good, digest) = good.split_once(' ').expect("an image and a digest");
    let good: ImageId = good.parse().expect("an image");
    for round in ["at once", "after another collection"] {
        let image = bench.engine.store().read_image(good).expect("the good image");
        let mut program = bench.restore(&image).expect("restore");
        assert_eq!(program.ask("digest"), digest, "{what} {point}: {round}");
        assert!(is_whole(&bench, good), "{what} {point}: {round}");
        drop((image, program));
        let keep = || Ok::<_, Error>(HashSet::from([good]));
        bench.engine.collect(keep).expect("collect again");
        assert_eq!(names(&bench.store().join("images")).len(), 1, "{what} {point}: {round}");
        let mut roots = packs(&bench);
        roots.dedup();
        assert_eq!(roots.len(), packs(&bench).len(), "{what} {point}: one form each");
    }
}

/// Makes an image to keep and others to remove, then dies at the point.
fn victim() {
    let variable = |name: &str| std::env::var(name).expect("set by survive()");
    let dir = variable("VICTIM_DIR");
    let bench = Bench::at(Path::new(&dir), root::shared());
    let mut source = bench.launch("files_offsets");
    drop(bench.proves_capture(&mut source));
    source.step();
    let image = bench.proves_capture(&mut source);
    let note = format!("{} {}", image.id, source.ask("digest"));
    std::fs::write(Path::new(&dir).join("good"), note).expect("leave a note");
    let id = image.id;
    let root = image.manifest.meta.packs[0].root;
    source.step();
    drop(bench.engine.capture(&source.tree).expect("capture"));
    drop((source, image));
    if variable("VICTIM") == "thaw" {
        bench.engine.store().compress(root).expect("compress");
    }
    let _guard = arm(&variable("POINT"), Fault::Kill);
    match variable("VICTIM").as_str() {
        "collect" => drop(bench.engine.collect(|| Ok::<_, Error>(HashSet::from([id])))),
        "compress" => drop(bench.engine.store().compress(root)),
        _ => drop(bench.engine.store().thaw(root)),
    }
    panic!("the point was not passed");
}

/// Restores that read compressed packs, packs with dropped pages, and layers made again.
#[test]
fn every_form_restores() {
    own::process("upkeep::every_form_restores", || {
        let bench = Bench::start();
        let mut source = bench.launch("files_offsets");
        let first = bench.proves_capture(&mut source);
        source.step();
        let second = bench.proves_capture(&mut source);
        let digest = source.ask("digest");
        let keep = HashSet::from([second.id]);
        drop((source, first, second));
        let restores = |what: &str| {
            bench.forget();
            let image = bench.engine.store().read_image(*keep.iter().next().expect("one"));
            let image = image.expect("read");
            let mut program = bench.restore(&image).expect(what);
            program.check();
            assert_eq!(program.ask("digest"), digest, "{what}");
            bench.engine.park(&image).expect(what);
            bench.restore(&image).expect(what).check();
        };
        restores("as captured");
        let collected = bench.engine.collect(|| Ok::<_, Error>(keep.clone())).expect("collect");
        assert_eq!(collected.images, 1, "{collected:?}");
        restores("after a collection");
        for root in packs(&bench) {
            bench.engine.store().compress(root).expect("compress");
        }
        restores("compressed");
        for root in packs(&bench) {
            bench.engine.store().thaw(root).expect("thaw");
        }
        restores("thawed");
        // everything goes, layers too; sandboxes prepared around them are not used again
        bench.forget();
        let collected = bench.engine.collect(|| Ok::<_, Error>(HashSet::new())).expect("collect");
        assert_eq!((collected.images, names(&bench.store().join("packs")).len()), (1, 0));
        assert!(!collected.layers.is_empty() && names(&bench.store().join("layers")).is_empty());
    });
}

/// Actions of a service's machines, with the records a service would have.
struct Service {
    bench: Bench,
    records: Mutex<Vec<ImageId>>,
    over: AtomicBool,
    restores: AtomicU64,
}

impl Service {
    /// Captures again and again; each is recorded, and older records go.
    fn captures(&self, program: &str) {
        let mut source = self.bench.launch(program);
        let mut own: Vec<ImageId> = Vec::new();
        loop {
            source.step();
            let captured = self.bench.engine.capture(&source.tree).expect("capture");
            self.records.lock().expect("records").push(captured.image.id);
            own.push(captured.image.id);
            if own.len() > 3 {
                let old = own.remove(0);
                self.records.lock().expect("records").retain(|id| *id != old);
            }
            source.check();
            if self.over.load(Ordering::Relaxed) {
                break;
            }
        }
        let last = self.read(own[own.len() - 1]).expect("recorded");
        let mut copy = self.bench.restore(&last).expect("restore");
        assert_eq!(copy.ask("digest"), source.ask("digest"), "{program}");
    }

    /// An image that is recorded; `None` when its record went meanwhile.
    fn read(&self, id: ImageId) -> Option<Image> {
        let read = self.bench.engine.store().read_image(id);
        let recorded = self.records.lock().expect("records").contains(&id);
        read.map_err(|error| assert!(!recorded, "a recorded image: {error}")).ok()
    }

    fn restores(&self) {
        for turn in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let records = self.records.lock().expect("records").clone();
            let Some(id) = records.get(turn % records.len().max(1)) else { continue };
            let Some(image) = self.read(*id) else { continue };
            let mut program = self.bench.restore(&image).expect("restore what is recorded");
            program.check();
            self.restores.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// For a while at least, and until enough has happened.
    fn collects(&self) -> u64 {
        let (until, patience) = (Instant::now() + WHILE, Instant::now() + own::PATIENCE);
        let (mut removed, mut turn) = (0, 0);
        let enough = |removed| removed > 3 && self.restores.load(Ordering::Relaxed) > 3;
        while Instant::now() < until || (!enough(removed) && Instant::now() < patience) {
            let keep = || -> Result<HashSet<ImageId>, Error> {
                Ok(self.records.lock().expect("records").iter().copied().collect())
            };
            removed += self.bench.engine.collect(keep).expect("collect").images;
            let roots = packs(&self.bench);
            let store = self.bench.engine.store();
            let root = roots[turn % roots.len()];
            turn += 1;
            // a pack may have been collected since it was listed, but then only by this thread
            let reformed = if turn % 3 == 0 { store.thaw(root) } else { store.compress(root) };
            reformed.expect("another form");
        }
        self.over.store(true, Ordering::Relaxed);
        removed
    }
}

#[test]
fn captures_restores_and_collections_at_the_same_time() {
    own::process("upkeep::captures_restores_and_collections_at_the_same_time", || {
        let service = Service {
            bench: Bench::start(),
            records: Mutex::default(),
            over: AtomicBool::new(false),
            restores: AtomicU64::new(0),
        };
        // a first pack, so that there is one to choose
        let mut first = service.bench.launch("children");
        let first = service.bench.proves_capture(&mut first);
        service.records.lock().expect("records").push(first.id);
        let removed = std::thread::scope(|scope| {
            scope.spawn(|| service.captures("files_offsets"));
            scope.spawn(|| service.captures("children"));
            scope.spawn(|| service.restores());
            service.collects()
        });
        let restores = service.restores.load(Ordering::Relaxed);
        eprintln!("{removed} images collected, {restores} restores");
        assert!(removed > 3 && restores > 3, "{removed} collected, {restores} restores");
        let records = service.records.lock().expect("records").clone();
        assert!(records.iter().all(|id| is_whole(&service.bench, *id)));
        assert_eq!(service.bench.unfinished(), [""; 0]);
    });
}
