//! Entry point for the fuzz target of whole files with machines.
//!
//! Any bytes are imported as such a file: unchanged, and with correct digests, as an attacker could
//! write them. Nothing panics, a refused file leaves only files that a collection removes, and an
//! accepted one can be read page by page.

use super::codec::{decode, encode};
use super::{Error, Image, ManifestCheck, Store};
use model::*;
use stasis_image::fuzzing::{reseal_bundle, sample_rewritten};
#[doc(hidden)]
pub use stasis_image::model;
use stasis_image::{BundleHead, PAGE_SIZE, PackForm, PackReader, SealedImage};
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

/// A separate store, which is empty between two files.
pub struct Importer {
    store: Store,
}

impl Importer {
    pub fn new(dir: &Path, check: ManifestCheck) -> Importer {
        Importer { store: Store::open(dir, check).expect("open a store") }
    }

    /// Imports `data` unchanged and resealed; whether either was accepted.
    pub fn read(&self, data: &[u8]) -> bool {
        let taken = self.take_in(data);
        reseal_bundle(data).is_some_and(|data| self.take_in(&data)) || taken
    }

    fn take_in(&self, data: &[u8]) -> bool {
        let mut rest = data;
        let Ok(head) = BundleHead::read(&mut rest) else { return false };
        let taken = self.store.import_parts(&head, &mut rest, &|_| Ok::<_, Error>(()));
        let is_whole = taken.as_ref().is_ok_and(|images| {
            images.iter().for_each(|image| self.is_readable(image));
            true
        });
        drop(taken);
        self.is_emptied();
        is_whole
    }

    fn is_readable(&self, image: &Image) {
        self.store.read_image(image.id).expect("what was taken in can be read");
        for (root, slots) in self.store.needs(std::slice::from_ref(image)) {
            let pack = self.store.pack(root).expect("its packs are here");
            let mut page = [0; PAGE_SIZE];
            for slot in slots.ranges(64).flatten() {
                pack.read(slot, &mut page).expect("its pages are whole");
            }
        }
    }

    fn is_emptied(&self) {
        self.store.collect(&HashSet::new()).expect("collect");
        for name in ["images", "packs", "tmp"] {
            let left = std::fs::read_dir(self.store.dir().join(name)).expect("a list").count();
            assert_eq!(left, 0, "files left in {name}");
        }
    }
}

/// A small file with two images that share a pack, and one with none.
pub fn sample_bundles() -> [Vec<u8>; 2] {
    let fill: Vec<u8> = (1..40).collect();
    let packs = [
        sample_rewritten(&fill, PackForm::Cold, &[7]),
        sample_rewritten(&[9], PackForm::Cold, &[]),
    ];
    let refs = packs.each_ref().map(|bytes| {
        let pack = PackReader::open(&bytes[..], bytes.len() as u64, None).expect("a sample");
        PackRef { root: pack.root(), pages: pack.pages() }
    });
    let images =
        [sealed(&[(&refs[0], 0..7)], 1), sealed(&[(&refs[0], 8..39), (&refs[1], 0..1)], 2)];
    let whole = joined(&images, &refs, &packs);
    [whole, joined(&[sealed(&[], 3)], &[], &[])]
}

/// A file in which every image differs, as an attacker with this program could write it.
pub fn with_images(data: &[u8], change: &dyn Fn(&mut Manifest)) -> Vec<u8> {
    let mut rest = data;
    let mut head = BundleHead::read(&mut rest).expect("a head");
    let mut about = String::from_utf8(head.about).expect("text");
    let mut images = Vec::new();
    for (id, len) in &mut head.images {
        let (bytes, others) = rest.split_at(*len as usize);
        let mut manifest = decode(bytes, *id).expect("an image");
        change(&mut manifest);
        let sealed = encode(&manifest).expect("an image");
        about = about.replace(&id.to_string(), &sealed.id.to_string());
        (*id, *len, rest) = (sealed.id, sealed.bytes.len() as u64, others);
        images.extend(sealed.bytes);
    }
    head.about = about.into_bytes();
    [head.encode().expect("a head"), images, rest.to_vec()].concat()
}

fn sealed(parts: &[(&PackRef, Range<u64>)], at: u64) -> SealedImage {
    encode(&sample_manifest(parts, at)).expect("a sample is small")
}

fn joined(images: &[SealedImage], refs: &[PackRef], packs: &[Vec<u8>]) -> Vec<u8> {
    let head = BundleHead {
        about: b"{}".to_vec(),
        images: images.iter().map(|one| (one.id, one.bytes.len() as u64)).collect(),
        packs: refs.iter().zip(packs).map(|(one, bytes)| (one.root, bytes.len() as u64)).collect(),
        files: Vec::new(),
    };
    let images = images.iter().map(|one| one.bytes.clone());
    let parts = [head.encode().expect("small")].into_iter().chain(images);
    parts.chain(packs.iter().cloned()).flatten().collect()
}

/// A process that has ended, yet has pages: the smallest possible image.
pub(super) fn sample_manifest(parts: &[(&PackRef, Range<u64>)], created_unix_ms: u64) -> Manifest {
    let mut at = 0;
    let runs = parts.iter().zip(0..).map(|((_, slots), pack)| {
        let count = (slots.end - slots.start) as u32;
        at += u64::from(count);
        PageRun { page: at - u64::from(count), count, pack, slot: slots.start }
    });
    let memory = ProcessPages { pid: 2, runs: runs.collect(), guards: Vec::new() };
    let state = ProcessState::Zombie { status: 0, comm: "made up".into() };
    Manifest {
        meta: Meta {
            parent: None,
            origin: None,
            root: "root".into(),
            created_unix_ms,
            kernel: String::new(),
            cpu: CpuNeeds { vendor: String::new(), xfeatures: 0, flags: Vec::new() },
            clocks: Clocks { monotonic_ns: 0, boottime_ns: 0, realtime_ns: 0 },
            hostname: String::new(),
            packs: parts.iter().map(|(pack, _)| **pack).collect(),
            mapped_files: Vec::new(),
            filters: Vec::new(),
        },
        processes: vec![Process { pid: 2, ppid: 1, pgid: 2, sid: 2, exit_signal: 17, state }],
        objects: Vec::new(),
        segments: Vec::new(),
        memory: vec![memory],
        files: FileTree::default(),
    }
}
