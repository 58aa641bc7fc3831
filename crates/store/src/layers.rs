//! Files of an image as a layer for overlayfs.
//!
//! A restored tree's root is upper (new, empty) / layer (the image's files) / template. The layer
//! is a plain directory in overlay's own format (whiteouts, opaque marks), made once per set of
//! files and shared read-only by all trees that start from it. The next capture merges the contents
//! of the new upper over it, so there are never more than two.

use crate::error::{Error, ErrorContext, Result};
use crate::{Image, Store, layer_name};
use bstr::{BString, ByteSlice};
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_sys::trees::{self, PathsBelow};
use stasis_sys::{files as sysfiles, libc};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub const OPAQUE: &str = "trusted.overlay.opaque";
/// Overlay's own notes that matter in another directory; the rest it makes again.
pub const KEPT_OVERLAY_NOTES: [&str; 1] = [OPAQUE];

pub fn is_opaque(entry: &FileEntry) -> bool {
    entry.xattrs.iter().any(|(name, value)| name == OPAQUE && value == b"y")
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// The order of entries: a directory comes before its entries, and those before anything else.
pub fn order(a: &[u8], b: &[u8]) -> Ordering {
    let parts = |path| <[u8]>::split(path, |byte| *byte == b'/');
    parts(a).cmp(parts(b))
}

fn sort(entries: &mut [FileEntry]) {
    let by_path = |a: &FileEntry, b: &FileEntry| order(&a.path, &b.path);
    // they are, unless an image was made elsewhere
    if !entries.is_sorted_by(|a, b| by_path(a, b).is_le()) {
        entries.sort_by(by_path);
    }
}

/// The view of `upper` over `below` over the template, as one tree.
pub fn merge(mut below: FileTree, mut upper: FileTree) -> FileTree {
    sort(&mut below.entries);
    sort(&mut upper.entries);
    let shown = shown(&below.entries, &mut upper.entries);
    let mut lost = HashMap::new();
    let mut kept = Vec::with_capacity(below.entries.len());
    for (entry, shown) in below.entries.into_iter().zip(shown) {
        match entry.kind {
            _ if shown => kept.push(entry),
            FileEntryKind::Regular { .. } | FileEntryKind::Fifo | FileEntryKind::Socket => {
                lost.insert(entry.path, Lost::Contents(entry.kind));
            }
            _ => {}
        }
    }
    relink(&mut kept, lost);
    FileTree { entries: join(kept, upper.entries), held: Vec::new() }
}

/// Which entries of `below` nothing in `upper` replaces or hides. A directory merged with one below
/// still hides the template if that one did.
fn shown(below: &[FileEntry], upper: &mut [FileEntry]) -> Vec<bool> {
    let mut next = 0;
    // the outermost path up to here that hides all of `below`
    let mut hiding: Option<usize> = None;
    let show = |entry: &FileEntry| {
        let mut same = false;
        while next < upper.len() && order(&upper[next].path, &entry.path).is_le() {
            let over = &mut upper[next];
            same = over.path == entry.path;
            let is_dir = matches!(over.kind, FileEntryKind::Directory);
            let hid = is_opaque(entry) || matches!(entry.kind, FileEntryKind::Whiteout);
            let was_opaque = is_opaque(over);
            if same && is_dir && hid && !was_opaque {
                over.xattrs.push((OPAQUE.into(), b"y".to_vec()));
            }
            let within = hiding.is_some_and(|at| is_below(&upper[next].path, &upper[at].path));
            if (!is_dir || was_opaque) && !within {
                hiding = Some(next);
            }
            next += 1;
        }
        !same && !hiding.is_some_and(|at| is_below(&entry.path, &upper[at].path))
    };
    below.iter().map(show).collect()
}

/// The fate of a file with further names.
enum Lost {
    Contents(FileEntryKind),
    /// The first remaining one of those names.
    To(BString),
}

/// Gives further names of files whose first name was removed its data.
fn relink(entries: &mut [FileEntry], mut lost: HashMap<BString, Lost>) {
    for entry in entries {
        let FileEntryKind::Hardlink { target } = &entry.kind else { continue };
        let Some(was) = lost.get_mut(target) else { continue };
        entry.kind = match std::mem::replace(was, Lost::To(entry.path.clone())) {
            Lost::Contents(kind) => kind,
            Lost::To(first) => {
                *was = Lost::To(first.clone());
                FileEntryKind::Hardlink { target: first }
            }
        };
    }
}

/// Two sorted lists as one.
fn join(below: Vec<FileEntry>, upper: Vec<FileEntry>) -> Vec<FileEntry> {
    let mut entries = Vec::with_capacity(below.len() + upper.len());
    let mut upper = upper.into_iter().peekable();
    for entry in below {
        while let Some(first) = upper.next_if(|other| order(&other.path, &entry.path).is_lt()) {
            entries.push(first);
        }
        entries.push(entry);
    }
    entries.extend(upper);
    entries
}

/// The directory that holds the image's files; `None` when it changed none.
pub fn materialize(store: &Store, image: &Image) -> Result<Option<PathBuf>> {
    let manifest = &image.manifest;
    if manifest.files.entries.is_empty() {
        return Ok(None);
    }
    let name = layer_name(&manifest.files, &manifest.meta.packs);
    if let Some(path) = store.layer(&name) {
        return Ok(Some(path));
    }
    let temp = store.temp_path("layer");
    lay_out(store, manifest, &temp)
        .and_then(|()| store.adopt_layer(name, &temp))
        .map(Some)
        .inspect_err(|_| {
            let _ = trees::remove(&temp);
        })
}

fn lay_out(store: &Store, manifest: &Manifest, temp: &Path) -> Result<()> {
    let doing = || format!("make {}", temp.display());
    std::fs::create_dir(temp).doing(doing)?;
    let mut below = PathsBelow::open(temp).doing(doing)?;
    let mut targets = PathsBelow::open(temp).doing(doing)?;
    // hard links need their targets, and directories lose their times when filled
    let (links, files): (Vec<_>, Vec<_>) = manifest
        .files
        .entries
        .iter()
        .partition(|entry| matches!(entry.kind, FileEntryKind::Hardlink { .. }));
    for entry in files.iter().chain(&links) {
        let doing = || format!("make {}", shortened(&entry.path));
        let path = below.slot(&entry.path).doing(doing)?;
        if let FileEntryKind::Hardlink { target } = &entry.kind {
            let target = targets.slot(target).doing(doing)?;
            std::fs::hard_link(target, path).doing(doing)?;
        } else {
            make_entry(store, manifest, &path, entry)?;
        }
    }
    for entry in files.iter().rev() {
        set_attributes(&mut below, entry)?;
    }
    Ok(())
}

/// A path for people: one can have any length, and any bytes.
fn shortened(path: &BString) -> String {
    const LONGEST: usize = 200;
    match path.get(..LONGEST) {
        Some(start) => format!("{}…", start.as_bstr()),
        None => path.to_string(),
    }
}

fn make_entry(store: &Store, manifest: &Manifest, path: &Path, entry: &FileEntry) -> Result<()> {
    let doing = || format!("make {}", shortened(&entry.path));
    match &entry.kind {
        FileEntryKind::Directory => std::fs::create_dir(path).doing(doing),
        FileEntryKind::Symlink { target } => symlink(OsStr::from_bytes(target), path).doing(doing),
        FileEntryKind::Fifo => sysfiles::make_node(path, libc::S_IFIFO | 0o600, 0, 0).doing(doing),
        FileEntryKind::Socket => {
            sysfiles::make_node(path, libc::S_IFSOCK | 0o600, 0, 0).doing(doing)
        }
        FileEntryKind::Whiteout => sysfiles::make_node(path, libc::S_IFCHR, 0, 0).doing(doing),
        FileEntryKind::Hardlink { .. } => Ok(()),
        FileEntryKind::Regular { size, runs } => {
            let file = File::create_new(path).doing(doing)?;
            file.set_len(*size).doing(doing)?;
            write_runs(store, manifest, runs, |page, bytes| {
                let at = page * PAGE_SIZE as u64;
                let len = (size.saturating_sub(at)).min(bytes.len() as u64) as usize;
                file.write_all_at(&bytes[..len], at).doing(doing)
            })
        }
    }
}

/// Hands the contents of runs over, verified, in pieces.
pub fn write_runs<E: From<Error>>(
    store: &Store,
    manifest: &Manifest,
    runs: &[PageRun],
    mut take: impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    const PIECE: u32 = 64;
    for run in runs {
        let pack = store.readable_pack(manifest.meta.packs[run.pack as usize].root)?;
        let mut done = 0;
        while done < run.count {
            let count = (run.count - done).min(PIECE);
            let mut bytes = vec![0; count as usize * PAGE_SIZE];
            pack.read(run.slot + u64::from(done), &mut bytes)
                .map_err(|source| Error::Pack { root: pack.root().to_string(), source })?;
            take(run.page + u64::from(done), &bytes)?;
            done += count;
        }
    }
    Ok(())
}

/// Owner, mode, times and attributes of created files.
pub fn set_attributes(below: &mut PathsBelow, entry: &FileEntry) -> Result<()> {
    let mut set = || -> std::io::Result<()> {
        let path = below.slot(&entry.path)?;
        sysfiles::set_owner(&path, entry.uid, entry.gid)?;
        if matches!(entry.kind, FileEntryKind::Whiteout | FileEntryKind::Symlink { .. }) {
            return Ok(());
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(entry.mode))?;
        for (key, value) in &entry.xattrs {
            sysfiles::set_xattr(&path, OsStr::from_bytes(key), value)?;
        }
        sysfiles::set_mtime(&path, entry.mtime_s, entry.mtime_ns)
    };
    set().doing(|| format!("set attributes of {}", shortened(&entry.path)))
}

#[cfg(test)]
mod tests;
