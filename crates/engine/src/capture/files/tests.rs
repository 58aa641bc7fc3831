//! The reader against an attacker who changes the files it reads.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const CANARY: &[u8] = b"the host's secret";
const NAMES: usize = 8;

/// More under `STASIS_SOAK=1`.
fn rounds() -> usize {
    if std::env::var_os("STASIS_SOAK").is_some() { 200_000 } else { 3000 }
}

/// Reads a directory, and hands contents over.
fn read_all(upper: &Path, mut see: impl FnMut(&[u8])) -> Result<FileTree> {
    let mut reader = Reader::prepare(upper)?;
    reader.begin();
    reader.collect(|_, bytes, _| {
        see(bytes);
        Ok(())
    })
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        // in memory: disks take a millisecond for each directory that goes
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let place = Place { dir };
        std::fs::create_dir_all(place.host()).expect("made");
        std::fs::create_dir_all(place.upper()).expect("made");
        std::fs::write(place.host().join("inside"), CANARY).expect("written");
        place
    }

    fn host(&self) -> std::path::PathBuf {
        self.dir.path().join("host")
    }

    fn upper(&self) -> std::path::PathBuf {
        self.dir.path().join("upper")
    }

    /// Creates a file of one kind in place of an existing name.
    fn swap(&self, number: usize, kind: usize) {
        let name = self.upper().join(format!("name-{}", number % NAMES));
        let new = self.dir.path().join("new");
        let made = match kind % 6 {
            0 | 1 => std::fs::write(&new, b"own"),
            2 => symlink(self.host().join("inside"), &new),
            3 => symlink(self.host(), &new),
            4 => sysfiles::make_node(&new, libc::S_IFIFO | 0o600, 0, 0),
            _ => {
                std::fs::create_dir(&new).and_then(|()| std::fs::write(new.join("inside"), b"own"))
            }
        };
        made.expect("made");
        if std::fs::rename(&new, &name).is_err() {
            // a directory and something else: one goes before the other comes
            let _ = stasis_sys::trees::remove(&name);
            std::fs::rename(&new, &name).expect("renamed");
        }
    }
}

#[test]
fn swapped_files_never_leak_host_data_or_block() {
    let place = Place::new();
    let over = AtomicBool::new(false);
    let start = Instant::now();
    let (mut whole, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let racer = scope.spawn(|| {
            let mut state: usize = 1;
            while !over.load(Ordering::Relaxed) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                place.swap(state >> 33, state >> 40);
            }
        });
        for _ in 0..rounds() {
            let see = |bytes: &[u8]| assert!(!bytes.starts_with(CANARY), "the host's file");
            match read_all(&place.upper(), see) {
                Ok(_) => whole += 1,
                Err(_) => refused += 1,
            }
            assert!(!racer.is_finished(), "the racer failed");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(whole > 0 && refused > 0, "no race: {whole} whole, {refused} refused");
    assert!(start.elapsed() < PATIENCE * 10, "something blocked");
}

#[test]
fn what_comes_into_an_empty_directory_is_read() {
    let place = Place::new();
    let read = |mut reader: Reader| {
        reader.begin();
        let mut seen = Vec::new();
        let tree = reader.collect(|_, bytes, _| {
            seen.extend_from_slice(bytes);
            Ok(())
        });
        (tree.expect("read").entries.len(), seen)
    };
    let prepare = || Reader::prepare(&place.upper()).expect("prepared");
    assert!(matches!(prepare(), Reader::Empty(_)));
    assert_eq!(read(prepare()), (0, Vec::new()));
    let before = prepare();
    std::fs::write(place.upper().join("late"), "content").expect("written");
    let (count, seen) = read(before);
    assert!(count == 1 && seen.starts_with(b"content"), "{count} files");
    assert!(matches!(prepare(), Reader::Thread(_)));
    assert_eq!(read(prepare()).0, 1);
}

#[test]
fn a_deep_tree_is_read_or_refused_by_name() {
    let deep = |depth: usize, name: &str| {
        let place = Place::new();
        let mut dir: OwnedFd = File::open(place.upper()).expect("open").into();
        for _ in 0..depth {
            below::make_dir(dir.as_fd(), name, 0o755).expect("made");
            dir = trees::enter(dir.as_fd(), name.as_ref()).expect("entered");
        }
        let read = read_all(&place.upper(), |_| {}).map(|tree| tree.entries.len());
        trees::remove(&place.upper()).expect("removed");
        read
    };
    assert_eq!(deep(1500, "d").expect("read"), 1500);
    let refused = deep(5000, "d").expect_err("more than an image holds").to_string();
    assert!(refused.contains("too deep"), "{refused}");
}

#[test]
fn names_links_and_attributes_are_bytes() {
    let place = Place::new();
    let name = OsStr::from_bytes(b"\xff\xfe\n");
    let path = place.upper().join(name);
    std::fs::write(&path, "content").expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("mode");
    sysfiles::set_xattr(&path, OsStr::from_bytes(b"user.\xff"), b"value").expect("set");
    std::fs::hard_link(&path, place.upper().join(OsStr::from_bytes(b"\xff\xff"))).expect("linked");
    symlink(OsStr::from_bytes(b"/\xfe"), place.upper().join("link")).expect("linked");
    let tree = read_all(&place.upper(), |bytes| assert!(bytes.starts_with(b"content")));
    let tree = tree.expect("read");
    let found: Vec<_> = tree.entries.iter().map(|entry| (&entry.path[..], &entry.kind)).collect();
    let target = |bytes: &[u8]| BString::from(bytes);
    assert_eq!(
        found,
        [
            (&b"link"[..], &FileEntryKind::Symlink { target: target(b"/\xfe") }),
            (b"\xff\xfe\n", &FileEntryKind::Regular { size: 7, runs: Vec::new() }),
            (b"\xff\xff", &FileEntryKind::Hardlink { target: target(b"\xff\xfe\n") }),
        ]
    );
    assert_eq!(tree.entries[1].xattrs, [(target(b"user.\xff"), b"value".to_vec())]);
    assert_eq!(tree.entries[1].mode, 0o640);
}
