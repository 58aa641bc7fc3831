//! Files that are torn, altered, exchanged or gone: refused by name, never restored.

use crate::bench::{Bench, temp_dir};
use crate::{own, root};
use stasis_engine::{Image, ImageId};
use stasis_image::PAGE_SIZE;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// An image whose files are altered, and read by one new engine after another.
struct Damaged {
    dir: TempDir,
    image: Image,
}

impl Damaged {
    fn start(program: &[&str]) -> Damaged {
        let dir = temp_dir();
        let bench = Bench::at(dir.path(), root::shared());
        let source = bench.try_launch(program).expect("launch");
        let image = bench.engine.capture(&source.tree).expect("capture").image;
        Damaged { dir, image }
    }

    fn bench(&self) -> Bench {
        Bench::at(self.dir.path(), root::shared())
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn image_path(&self) -> PathBuf {
        self.store().join(format!("images/{}.img", self.image.id))
    }

    fn pack_path(&self) -> PathBuf {
        let root = self.image.manifest.meta.packs[0].root;
        self.store().join(format!("packs/{root}.pack"))
    }

    /// Reads and restores, from disk alone; the error's code and text.
    fn refusal(&self) -> Option<(&'static str, String)> {
        let bench = self.bench();
        let read = bench.engine.store().read_image(self.image.id);
        let restored = read.map_err(Into::into).and_then(|image| bench.restore(&image));
        assert_eq!(bench.unfinished(), [""; 0], "files left in tmp");
        match restored {
            Ok(mut program) => {
                program.check();
                None
            }
            Err(error) => Some((error.code(), error.to_string())),
        }
    }

    fn must_refuse(&self, kind: &str, what: &str) -> (&'static str, String) {
        let (code, text) = self.refusal().unwrap_or_else(|| panic!("restored after: {what}"));
        assert!(code.starts_with(kind), "{what}: [{code}] {text}");
        (code, text)
    }
}

/// Alters a file, runs `then`, and puts the file back.
fn altered(path: &Path, alter: impl FnOnce(&mut Vec<u8>), then: impl FnOnce()) {
    let whole = fs::read(path).expect("read a file");
    let mut bytes = whole.clone();
    alter(&mut bytes);
    // another inode: what has the old one open keeps it
    fs::remove_file(path).and_then(|()| fs::write(path, bytes)).expect("alter a file");
    then();
    fs::write(path, whole).expect("put a file back");
}

#[test]
fn a_torn_file_is_refused_at_any_length() {
    own::process("damage::a_torn_file_is_refused_at_any_length", || {
        let test = Damaged::start(&["files_offsets"]);
        for (path, kind) in [(test.image_path(), "image."), (test.pack_path(), "pack.")] {
            let len = fs::metadata(&path).expect("look at a file").len() as usize;
            let page = PAGE_SIZE;
            for cut in
                [0, 1, 100, page, page + 1, len / 2, len / 2 / page * page, len - 80, len - 1]
            {
                let what = format!("{kind} of {len} bytes cut to {cut}");
                let tear = |bytes: &mut Vec<u8>| bytes.truncate(cut);
                altered(&path, tear, || drop(test.must_refuse(kind, &what)));
            }
            let longer = |bytes: &mut Vec<u8>| bytes.extend([0; 7]);
            altered(&path, longer, || drop(test.must_refuse(kind, "bytes after its end")));
        }
        assert_eq!(test.refusal(), None, "whole again");
    });
}

#[test]
fn an_altered_byte_is_found_wherever_it_is() {
    own::process("damage::an_altered_byte_is_found_wherever_it_is", || {
        let test = Damaged::start(&["files_offsets"]);
        for (path, kind) in [(test.image_path(), "image."), (test.pack_path(), "pack.")] {
            let len = fs::metadata(&path).expect("look at a file").len() as usize;
            for part in 0..24 {
                // spread over the file, ends included, and not always the same bit
                let at = (len - 1) * part / 23;
                let what = format!("byte {at} of {len} of {kind}");
                let flip = |bytes: &mut Vec<u8>| bytes[at] ^= 1 << (part % 8);
                altered(&path, flip, || drop(test.must_refuse(kind, &what)));
            }
        }
        assert_eq!(test.refusal(), None, "whole again");
    });
}

#[test]
fn a_damaged_page_is_named() {
    own::process("damage::a_damaged_page_is_named", || {
        let test = Damaged::start(&["threads_futex"]);
        let pack = test.image.manifest.meta.packs[0];
        for slot in [0, pack.pages / 2, pack.pages - 1] {
            let at = (slot as usize + 1) * PAGE_SIZE + 5;
            altered(
                &test.pack_path(),
                |bytes| bytes[at] ^= 4,
                || {
                    let (code, text) = test.must_refuse("pack.page", "a damaged page");
                    assert_eq!(code, "pack.page");
                    assert!(text.contains(&pack.root.to_string()), "{text}");
                    assert!(text.contains(&format!("page {slot} ")), "{text}");
                    // parking reads the same pages
                    let error = test.bench().engine.park(&test.image).expect_err("park");
                    assert_eq!(error.code(), "pack.page", "{error}");
                },
            );
        }
        // a template made before holds its own copy; without it the damage shows
        let bench = test.bench();
        bench.engine.park(&test.image).expect("park");
        bench.restore(&test.image).expect("restore").check(); // lays the files out
        altered(
            &test.pack_path(),
            |bytes| bytes.iter_mut().skip(PAGE_SIZE).for_each(|b| *b ^= 4),
            || {
                bench.engine.store().forget();
                bench.restore(&test.image).expect("restore from the template").check();
                assert!(bench.engine.evict(test.image.id));
                assert_eq!(bench.refused(&test.image).code(), "pack.torn");
            },
        );
    });
}

#[test]
fn a_damaged_page_of_memory_filled_on_demand_ends_the_tree() {
    own::process("damage::a_damaged_page_of_memory_filled_on_demand_ends_the_tree", || {
        let test = Damaged::start(&["big_memory", "48"]);
        let pack = test.image.manifest.meta.packs[0];
        let at = (pack.pages as usize - 40) * PAGE_SIZE + 5;
        altered(
            &test.pack_path(),
            |bytes| bytes[at] ^= 4,
            || {
                let bench = test.bench();
                let image = bench.engine.store().read_image(test.image.id).expect("read");
                let mut program = match bench.restore(&image) {
                    Ok(program) => program,
                    // found before the first instruction is as good
                    Err(error) => return assert_eq!(error.code(), "pack.page", "{error}"),
                };
                let error = bench.engine.capture(&program.tree).expect_err("capture");
                assert_eq!(error.code(), "pack.page", "{error}");
                assert!(error.to_string().contains(&pack.root.to_string()), "{error}");
                let end = Instant::now() + own::PATIENCE;
                while program.tree.is_alive() {
                    assert!(Instant::now() < end, "a tree without its memory lives on");
                    std::thread::sleep(Duration::from_millis(5));
                }
                assert!(program.try_hear().is_err(), "it said something");
                let again = bench.engine.capture(&program.tree).expect_err("capture");
                eprintln!("then: {again}");
            },
        );
        assert_eq!(test.refusal(), None, "whole again");
    });
}

#[test]
fn exchanged_and_missing_files_are_refused() {
    own::process("damage::exchanged_and_missing_files_are_refused", || {
        let test = Damaged::start(&["files_offsets"]);
        let bench = test.bench();
        let other = bench.launch("children");
        let other = bench.engine.capture(&other.tree).expect("capture").image;
        drop(bench);
        let other_path = test.store().join(format!("images/{}.img", other.id));
        let swap = |path: &Path| fs::read(path).expect("read a file");
        let image = swap(&other_path);
        altered(
            &test.image_path(),
            |bytes| *bytes = image,
            || {
                assert_eq!(test.must_refuse("image.", "another image").0, "image.renamed");
            },
        );
        let own = test.image.manifest.meta.packs[0].root;
        let mut roots = other.manifest.meta.packs.iter().map(|pack| pack.root);
        let root = roots.find(|root| *root != own).expect("a pack of its own");
        let pack = swap(&test.store().join(format!("packs/{root}.pack")));
        altered(
            &test.pack_path(),
            |bytes| *bytes = pack,
            || {
                assert_eq!(test.must_refuse("pack.", "another pack").0, "pack.root");
            },
        );
        for path in [test.pack_path(), test.image_path()] {
            let aside = path.with_extension("aside");
            fs::rename(&path, &aside).expect("take a file away");
            let (_, text) = test.must_refuse("engine.io", "a missing file");
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            assert!(text.contains(name), "{text}");
            fs::rename(&aside, &path).expect("put a file back");
        }
        let nobody = test.bench().engine.store().read_image(ImageId([7; 32]));
        assert!(nobody.is_err_and(|error| error.code() == "engine.io"));
        assert_eq!(test.refusal(), None, "whole again");
    });
}

#[test]
fn a_changed_or_missing_library_is_refused_by_name() {
    own::process("damage::a_changed_or_missing_library_is_refused_by_name", || {
        let dir = temp_dir();
        let machine = dir.path().join("root");
        root::copy(&machine);
        let bench = Bench::at(dir.path(), &machine);
        let source = bench.launch("library");
        let image = bench.engine.capture(&source.tree).expect("capture").image;
        bench.restore(&image).expect("restore").check();
        let library = machine.join("lib/libown.so");
        let aside = machine.join("lib/aside");

        fs::rename(&library, &aside).expect("take the library away");
        refused_by_name(&bench, &image, "is missing");
        // the same contents at another time, another length at the same time
        fs::copy(&aside, &library).expect("copy the library");
        refused_by_name(&bench, &image, "has changed");
        let time = fs::metadata(&aside).and_then(|meta| meta.modified()).expect("its time");
        let file = fs::File::options().append(true).open(&library).expect("open the library");
        std::io::Write::write_all(&mut &file, &[0]).expect("lengthen the library");
        file.set_modified(time).expect("set its time");
        refused_by_name(&bench, &image, "has changed");

        fs::rename(&aside, &library).expect("put the library back");
        bench.restore(&image).expect("restore").check();
        bench.engine.park(&image).expect("park");
        // a template has the old library open; its clones run on that
        fs::rename(&library, &aside).expect("take the library away");
        bench.restore(&image).expect("restore from the template").check();
        bench.engine.evict_all();
        refused_by_name(&bench, &image, "is missing");
    });
}

fn refused_by_name(bench: &Bench, image: &Image, what: &str) {
    let park = bench.engine.park(image).expect_err("park");
    for error in [bench.refused(image), park] {
        assert_eq!(error.code(), "image.unfit", "{error}");
        assert!(error.to_string().contains(&format!("/lib/libown.so {what}")), "{error}");
    }
}
