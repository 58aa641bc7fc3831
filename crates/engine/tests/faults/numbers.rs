//! Inode numbers of open files: the inode that has the number must outlive the tree, the engine and
//! the layer it was made in, and nothing fails when it does not.

use crate::bench::{Bench, names, temp_dir};
use crate::{own, root};
use stasis_engine::fault::{Fault, arm};
use stasis_engine::{Error, ImageId};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

const KILLED: &str = "numbers::killed_before_the_directory_was_removed";

fn keepers(bench: &Bench) -> PathBuf {
    bench.store().join("keepers")
}

fn collect(bench: &Bench, keep: &[ImageId]) {
    let keep: HashSet<ImageId> = keep.iter().copied().collect();
    bench.engine.collect(|| Ok::<_, Error>(keep)).expect("collect");
}

#[test]
fn killed_before_the_directory_was_removed() {
    if own::is("victim") {
        return victim();
    }
    own::process(KILLED, || {
        for point in ["image.synced", "capture.held", "capture.frozen"] {
            let dir = temp_dir();
            let path = dir.path().to_str().expect("a plain path");
            let victim = own::start(KILLED, "victim", &[("VICTIM_DIR", path), ("POINT", point)]);
            let status = own::wait(victim, own::PATIENCE);
            assert!(own::was_killed(status), "{point}: the victim was to be killed: {status}");
            assert_eq!(own::left_behind(), [""; 0], "{point}");

            let bench = Bench::at(dir.path(), root::shared());
            let noted = names(&keepers(&bench)).into_iter().filter(|name| name.ends_with(".at"));
            assert_eq!(noted.count(), 0, "{point}: a new engine takes them in");
            let images = names(&bench.store().join("images"));
            assert!(!images.is_empty(), "{point}: an image");
            for name in images {
                let id = name.trim_end_matches(".img").parse().expect("an image");
                let image = bench.engine.store().read_image(id).expect("read the image");
                bench.restore(&image).expect("restore").check();
            }
        }
    });
}

/// Captures twice, and dies during the second.
fn victim() {
    let variable = |name: &str| std::env::var(name).expect("set by the test");
    let bench = Bench::at(Path::new(&variable("VICTIM_DIR")), root::shared());
    let mut source = bench.launch("inode_numbers");
    bench.proves_capture(&mut source);
    source.step();
    let _guard = arm(&variable("POINT"), Fault::Kill);
    drop(bench.engine.capture(&source.tree));
    panic!("the point was not passed");
}

/// The inode is one of a layer, because the file was opened after a restore.
#[test]
fn a_layer_goes_and_the_number_stays() {
    own::process("numbers::a_layer_goes_and_the_number_stays", || {
        let bench = Bench::start();
        let mut source = bench.launch("inode_numbers");
        source.step();
        let closed = bench.proves_capture(&mut source);
        drop(source);
        let mut copy = bench.restore(&closed).expect("restore");
        copy.step();
        let opened = bench.proves_capture(&mut copy);
        drop(closed);
        let before = names(&bench.store().join("layers")).len();
        drop(copy);
        collect(&bench, &[opened.id]);
        assert!(names(&bench.store().join("layers")).len() < before, "a layer was to go");
        bench.restore(&opened).expect("restore").check();
        let id = opened.id;
        drop(opened);
        collect(&bench, &[id]);
        let image = bench.engine.store().read_image(id).expect("read the image");
        bench.restore(&image).expect("restore").check();
        drop(image);
        collect(&bench, &[]);
        assert_eq!(names(&keepers(&bench)), [""; 0], "nobody needs them any more");
    });
}

#[test]
fn without_the_inode_the_number_is_new_and_all_else_is_as_it_was() {
    own::process("numbers::without_the_inode_the_number_is_new_and_all_else_is_as_it_was", || {
        let bench = Bench::start();
        let mut source = bench.launch("inode_numbers");
        let image = bench.proves_capture(&mut source);
        let digest = source.ask("digest");
        drop(source);
        let kept = names(&keepers(&bench));
        assert!(!kept.is_empty(), "the source's directory is gone");
        for name in kept {
            std::fs::remove_file(keepers(&bench).join(name)).expect("remove");
        }
        let mut copy = bench.restore(&image).expect("restore");
        let answer = copy.ask("check");
        assert!(answer.starts_with("fail number of"), "{answer}");
        assert_eq!(copy.ask("digest"), digest);
        // and the number it got instead is kept like any
        let image = bench.engine.capture(&copy.tree).expect("capture").image;
        drop(copy);
        let mut copy = bench.restore(&image).expect("restore");
        assert_eq!(copy.ask("check"), answer);
    });
}
