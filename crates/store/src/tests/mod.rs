//! The store by itself: synthetic images over synthetic packs, without processes.

mod checks;
mod collecting;
mod forms;
mod keepers;
mod large;
mod model;
mod open;
mod pending;
mod property;
mod race;
mod remote;
mod scale;
mod thin;

use super::*;
use stasis_image::model::*;
use stasis_image::{Arch, PAGE_SIZE, PackWriter};
use std::collections::HashSet;
use tempfile::TempDir;

/// Made-up images say nothing that could be checked.
fn any(_: &Manifest) -> std::result::Result<(), String> {
    Ok(())
}

struct Bed {
    store: Store,
    dir: TempDir,
}

impl Bed {
    fn new() -> Bed {
        let dir = TempDir::new().expect("make a directory");
        Bed { store: Store::open(dir.path(), any).expect("open a store"), dir }
    }

    /// In memory: for tests that open many, one after the other.
    fn in_memory() -> Bed {
        let dir = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
        let dir = dir.expect("make a directory");
        Bed { store: Store::open(dir.path(), any).expect("open a store"), dir }
    }

    /// As a new process would find it.
    fn reopened(self) -> Bed {
        let Bed { store, dir } = self;
        drop(store);
        Bed { store: Store::open(dir.path(), any).expect("open a store"), dir }
    }

    /// A pack with one page for each number, as long as its reader is held.
    fn pack(&self, pages: impl IntoIterator<Item = u64>) -> Arc<Pack> {
        let temp = self.store.temp_path("pack");
        let file = File::create(&temp).expect("make a file");
        let mut writer = PackWriter::new(io::BufWriter::new(file), Arch::X86_64).expect("write");
        for number in pages {
            writer.append(&page(number)).expect("write");
        }
        let (file, summary) = writer.finish().expect("write");
        let file = file.into_inner().expect("write");
        self.store.adopt_pack(&temp, file, summary.root).expect("adopt a pack")
    }

    /// An image of parts of packs.
    fn image(&self, parts: &[(&Pack, std::ops::Range<u64>)]) -> Image {
        self.store.write_image(manifest(parts, self.store.number())).expect("write an image")
    }

    fn pack_file(&self, root: PackRoot) -> PathBuf {
        let forms = [PackForm::Plain, PackForm::Cold, PackForm::Delta];
        let paths = forms.map(|form| self.store.pack_path(root, form));
        paths.into_iter().find(|path| path.exists()).expect("a pack has a file")
    }

    fn has_pack(&self, root: PackRoot) -> bool {
        self.store.open_pack(root).is_ok()
    }

    /// Whether every page of an image can be had.
    fn is_whole(&self, id: ImageId) -> bool {
        let keep = HashSet::from([id]);
        let checked = self.store.check(&keep, Repair::Nothing, |_| ControlFlow::Continue(()));
        checked.expect("check").findings.is_empty()
    }

    fn tmp(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("tmp")).expect("list tmp").count()
    }
}

use std::ops::ControlFlow;

/// A page that compresses by half, and is like no other.
fn page(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut page = vec![0; PAGE_SIZE];
    for byte in &mut page[..PAGE_SIZE / 2] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (state >> 56) as u8;
    }
    page
}

/// An entry of root's, without extended attributes.
fn entry(path: &str, mode: u32, kind: FileEntryKind) -> FileEntry {
    FileEntry {
        path: path.into(),
        mode,
        uid: 0,
        gid: 0,
        mtime_s: 0,
        mtime_ns: 0,
        xattrs: Vec::new(),
        kind,
    }
}

fn manifest(parts: &[(&Pack, std::ops::Range<u64>)], created_unix_ms: u64) -> Manifest {
    let part = |(pack, slots): &(&Pack, std::ops::Range<u64>)| {
        (PackRef { root: pack.root(), pages: pack.pages() }, slots.clone())
    };
    let parts: Vec<_> = parts.iter().map(part).collect();
    let parts: Vec<_> = parts.iter().map(|(pack, slots)| (pack, slots.clone())).collect();
    super::fuzzing::sample_manifest(&parts, created_unix_ms)
}

fn set<const N: usize>(images: [&Image; N]) -> HashSet<ImageId> {
    images.into_iter().map(|image| image.id).collect()
}
