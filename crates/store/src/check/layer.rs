//! A laid out layer against the manifest it was made of.

use crate::Store;
use stasis_image::model::{FileEntry, FileEntryKind, Manifest, PageRun};
use stasis_image::{PAGE_SIZE, PageHash};
use stasis_sys::trees::PathsBelow;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

/// The first thing that differs, in words.
pub fn difference(store: &Store, manifest: &Manifest, layer: &Path) -> Option<String> {
    let mut below = match PathsBelow::open(layer) {
        Ok(below) => below,
        Err(error) => return Some(format!("it cannot be read: {error}")),
    };
    manifest.files.entries.iter().find_map(|entry| {
        let path = below.slot(&entry.path);
        match path.and_then(|path| entry_is_same(store, manifest, entry, &path)) {
            Ok(true) => None,
            Ok(false) => Some(format!("{:?} differs from its image", entry.path)),
            Err(error) => Some(format!("{:?} cannot be read: {error}", entry.path)),
        }
    })
}

fn entry_is_same(
    store: &Store,
    manifest: &Manifest,
    entry: &FileEntry,
    path: &Path,
) -> io::Result<bool> {
    let meta = std::fs::symlink_metadata(path)?;
    let kind = meta.file_type();
    let same = match &entry.kind {
        FileEntryKind::Directory => kind.is_dir(),
        FileEntryKind::Symlink { target } => {
            return Ok(
                kind.is_symlink() && std::fs::read_link(path)?.as_os_str().as_bytes() == target
            );
        }
        FileEntryKind::Fifo => kind.is_fifo(),
        FileEntryKind::Socket => kind.is_socket(),
        FileEntryKind::Whiteout => return Ok(kind.is_char_device() && meta.rdev() == 0),
        FileEntryKind::Hardlink { .. } => kind.is_file() || kind.is_fifo() || kind.is_socket(),
        FileEntryKind::Regular { size, runs } => {
            kind.is_file() && meta.len() == *size && holds(store, manifest, runs, path)?
        }
    };
    Ok(same && has_attributes(entry, &meta))
}

fn has_attributes(entry: &FileEntry, meta: &Metadata) -> bool {
    (meta.mode() & 0o7777, meta.uid(), meta.gid()) == (entry.mode, entry.uid, entry.gid)
}

/// Whether a file's pages have the hashes in their packs. A pack that cannot be opened is reported
/// elsewhere.
fn holds(store: &Store, manifest: &Manifest, runs: &[PageRun], path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    for run in runs {
        let pack = manifest.meta.packs.get(run.pack as usize).map(|pack| store.pack(pack.root));
        let Some(Ok(pack)) = pack else { continue };
        for index in 0..u64::from(run.count) {
            let page = page_at(&file, run.page + index)?;
            if pack.hash(run.slot + index) != Some(PageHash::of(&page)) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// One page, the last of a file padded with zeros.
fn page_at(file: &File, page: u64) -> io::Result<[u8; PAGE_SIZE]> {
    let mut bytes = [0; PAGE_SIZE];
    let mut done = 0;
    while done < PAGE_SIZE {
        match file.read_at(&mut bytes[done..], page * PAGE_SIZE as u64 + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(bytes)
}
