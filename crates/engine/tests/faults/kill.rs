//! The engine is killed at each named step.

use crate::bench::{Bench, names, temp_dir};
use crate::points::points;
use crate::{own, root};
use stasis_engine::ImageId;
use stasis_engine::fault::{Fault, arm};
use std::path::Path;
use std::time::Duration;

const CAPTURE: &str = "kill::capture";
const RESTORE: &str = "kill::restore";

#[test]
fn capture() {
    if own::is("victim") {
        return victim();
    }
    own::process(CAPTURE, || points(true).for_each(|point| survive(CAPTURE, "capture", point)));
}

#[test]
fn restore() {
    if own::is("victim") {
        return victim();
    }
    own::process(RESTORE, || {
        let clone = ["clone.staged", "clone.ordered"];
        for point in points(false).filter(|point| *point != "park.cloned") {
            survive(RESTORE, "restore", point);
        }
        for point in clone.into_iter().chain(["park.cloned"]) {
            survive(RESTORE, "park", point);
        }
    });
}

/// A twin has the source's registers and descriptors. If it ran after its engine exited, its output
/// would appear twice.
#[test]
fn a_twin_never_speaks() {
    const NAME: &str = "kill::a_twin_never_speaks";
    if own::is("victim") {
        return counting_victim();
    }
    own::process(NAME, || {
        for point in ["capture.twins", "capture.thawed", "capture.pages", "image.written"] {
            let dir = temp_dir();
            let path = dir.path().to_str().expect("a plain path");
            let victim = own::start(NAME, "victim", &[("VICTIM_DIR", path), ("POINT", point)]);
            let status = own::wait(victim, own::PATIENCE);
            assert!(own::was_killed(status), "{point}: the victim was to be killed: {status}");
            assert_eq!(own::left_behind(), [""; 0], "{point}");
            let said = std::fs::read_to_string(dir.path().join("said")).expect("what was said");
            let numbers: Vec<u64> = said.lines().filter_map(|line| line.parse().ok()).collect();
            assert!(numbers.len() > 10, "{point}: nothing was said");
            let twice = numbers.windows(2).find(|pair| pair[0] >= pair[1]);
            assert_eq!(twice, None, "{point}: said by two");
        }
    });
}

fn counting_victim() {
    let variable = |name: &str| std::env::var(name).expect("set by the test");
    let dir = variable("VICTIM_DIR");
    let bench = Bench::at(Path::new(&dir), root::shared());
    let path = Path::new(&dir).join("said");
    let said = std::fs::File::create(&path).expect("a file for its words");
    let source = bench.try_launch_with(&["counter"], said.into()).expect("launch");
    // its waiter kills it in the end
    while std::fs::read_to_string(&path).expect("its words").lines().count() < 20 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _guard = arm(&variable("POINT"), Fault::Kill);
    drop(bench.engine.capture(&source.tree));
    panic!("the point was not passed");
}

/// Lets a victim die at a point, and sees what is left.
fn survive(test: &str, what: &str, point: &str) {
    eprintln!("{what} {point}");
    let dir = temp_dir();
    let path = dir.path().to_str().expect("a plain path");
    let mounts = own::mounts();
    let victim =
        own::start(test, "victim", &[("VICTIM_DIR", path), ("VICTIM", what), ("POINT", point)]);
    let status = own::wait(victim, own::PATIENCE);
    assert!(own::was_killed(status), "{point}: the victim was to be killed: {status}");
    let left = own::left_behind();
    assert_eq!(left, [""; 0], "{point}: processes left behind");
    assert_eq!(own::mounts(), mounts, "{point}: mounts left behind");

    let bench = Bench::at(dir.path(), root::shared());
    assert_eq!(bench.unfinished(), [""; 0], "{point}: a new engine tidies up");
    let good = std::fs::read_to_string(dir.path().join("good")).expect("the victim's notes");
    let (good, digest) = good.split_once(' ').expect("an image and a digest");
    let images = images(&bench.store());
    assert!(images.iter().any(|id| id.to_string() == good), "{point}: the good image is gone");
    for id in images {
        let image = bench.engine.store().read_image(id);
        let image = image.unwrap_or_else(|error| panic!("{point}: an image is damaged: {error}"));
        let mut program = bench.restore(&image).expect("restore");
        program.check();
        if id.to_string() == good {
            assert_eq!(program.ask("digest"), digest, "{point}: the last good image differs");
        }
    }
    drop(bench);
    assert_eq!(own::left_behind(), [""; 0], "{point}: after an orderly end");
}

fn images(store: &Path) -> Vec<ImageId> {
    let parse = |name: &String| name.strip_suffix(".img")?.parse().ok();
    let names = names(&store.join("images"));
    names.iter().map(|name| parse(name).unwrap_or_else(|| panic!("an image {name}"))).collect()
}

/// Makes one good image, then dies at the point.
fn victim() {
    let variable = |name: &str| std::env::var(name).expect("set by survive()");
    let dir = variable("VICTIM_DIR");
    let bench = Bench::at(Path::new(&dir), root::shared());
    let mut source = bench.launch("files_offsets");
    let image = bench.proves_capture(&mut source);
    let note = format!("{} {}", image.id, source.ask("digest"));
    std::fs::write(Path::new(&dir).join("good"), note).expect("leave a note");
    source.step();
    let _guard = arm(&variable("POINT"), Fault::Kill);
    match variable("VICTIM").as_str() {
        "capture" => drop(bench.engine.capture(&source.tree)),
        "restore" => drop(bench.restore(&image)),
        _ => drop(bench.engine.park(&image)),
    }
    panic!("the point was not passed");
}
