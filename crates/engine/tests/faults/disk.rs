//! A disk that is full.

use crate::bench::{Bench, temp_dir};
use crate::{own, root};
use stasis_sys::{libc, mount, namespace};
use std::path::{Path, PathBuf};

/// A small file system, for this process and its children only.
struct SmallDisk(PathBuf);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = mount::unmount_detached(&self.0.to_string_lossy());
    }
}

fn small_disk(at: &Path, options: &str) -> SmallDisk {
    namespace::unshare(libc::CLONE_NEWNS).expect("a mount namespace of our own");
    mount::mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, None).expect("make it private");
    std::fs::create_dir(at).expect("make a directory");
    let path = at.to_str().expect("a plain path");
    mount::mount("tmpfs", path, "tmpfs", 0, Some(options)).expect("mount a tmpfs");
    SmallDisk(at.to_owned())
}

#[test]
fn a_full_disk_fails_the_capture_and_no_more() {
    own::process("disk::a_full_disk_fails_the_capture_and_no_more", || {
        let dir = temp_dir();
        let store = dir.path().join("store");
        let _disk = small_disk(&store, "size=8m");
        let bench = Bench::at(dir.path(), root::shared());
        let mut small = bench.launch("files_offsets");
        let good = bench.proves_capture(&mut small);

        // more than fits at all
        let mut large = bench.try_launch(&["big_memory", "12"]).expect("launch");
        for _ in 0..2 {
            let error = bench.engine.capture(&large.tree).expect_err("capture on a full disk");
            assert!(error.to_string().contains("No space left"), "{error}");
            assert_eq!(bench.unfinished(), [""; 0], "files left in tmp");
            large.check();
            large.step();
        }
        bench.restore(&good).expect("the last good image").check();

        // every margin: the disk fills up at another write each time
        std::fs::write(store.join("ballast"), vec![1; 7 << 20]).expect("fill the disk");
        let mut failures = 0;
        for left in (0..120).map(|step| (step * 8) << 10) {
            let size = (8 << 20) - used(&store) as i64 - left;
            let ballast = std::fs::File::create(store.join("ballast")).expect("the ballast");
            let fill = vec![1; size.max(0) as usize + 1];
            let _ = std::io::Write::write_all(&mut &ballast, &fill);
            small.step();
            match bench.engine.capture(&small.tree) {
                Ok(_) => break,
                Err(error) => {
                    failures += 1;
                    assert!(error.to_string().contains("No space left"), "{left}: {error}");
                    assert_eq!(bench.unfinished(), [""; 0], "{left}: files left in tmp");
                }
            }
            small.check();
        }
        assert!(failures > 0, "the disk was never full");

        std::fs::remove_file(store.join("ballast")).expect("free the disk");
        bench.proves_capture(&mut small);
        // nothing half-written has a name
        bench.forget();
        for name in crate::bench::names(&store.join("images")) {
            let id = name.strip_suffix(".img").and_then(|id| id.parse().ok()).expect("an id");
            bench.engine.store().read_image(id).expect("a whole image");
        }
    });
}

/// Bytes used on the file system that `path` is on.
fn used(path: &Path) -> u64 {
    fn sum(dir: &Path) -> u64 {
        let entries = std::fs::read_dir(dir).expect("list a directory").flatten();
        entries
            .filter(|entry| entry.file_name() != "ballast")
            .map(|entry| match entry.metadata() {
                Ok(meta) if meta.is_dir() => sum(&entry.path()),
                Ok(meta) => meta.len().next_multiple_of(4096),
                Err(_) => 0,
            })
            .sum()
    }
    sum(path)
}

#[test]
fn a_disk_too_full_for_files_fails_the_restore_cleanly() {
    own::process("disk::a_disk_too_full_for_files_fails_the_restore_cleanly", || {
        let dir = temp_dir();
        let store = dir.path().join("store");
        let _disk = small_disk(&store, "size=8m");
        let bench = Bench::at(dir.path(), root::shared());
        let mut source = bench.launch("files_offsets");
        let image = bench.engine.capture(&source.tree).expect("capture").image;
        let _ = std::fs::write(store.join("ballast"), vec![1; 8 << 20]);
        let error = bench.refused(&image);
        assert!(error.to_string().contains("No space left"), "{error}");
        assert_eq!(bench.unfinished(), [""; 0], "files left in tmp");
        source.check();
        std::fs::remove_file(store.join("ballast")).expect("free the disk");
        bench.restore(&image).expect("restore").check();
    });
}
