//! Files of an image as a layer for overlayfs.
//!
//! A restored tree's root is  upper (new, empty) / layer (the image's files) / template.  The
//! layer is a plain directory in overlay's own format (whiteouts, opaque marks), made once per
//! set of files and shared read-only by everyone who starts from it. At the next capture what the
//! new upper holds is merged over it, so there are never more than two.

use crate::error::{Doing, Result};
use crate::store::{Image, Store, layer_name};
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_sys::{files as sysfiles, libc};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub const OPAQUE: &str = "trusted.overlay.opaque";
/// Overlay's own notes that matter in another directory; the rest it makes again.
pub const KEPT_OVERLAY_NOTES: [&str; 1] = [OPAQUE];

pub fn is_opaque(entry: &FileEntry) -> bool {
    entry.xattrs.iter().any(|(name, value)| name == OPAQUE && value == b"y")
}

fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// What a reader of `upper` over `below` over the template sees, as one tree.
pub fn merge(below: FileTree, upper: FileTree) -> FileTree {
    // paths under which nothing of `below` shows through
    let hiding: Vec<&str> = upper
        .entries
        .iter()
        .filter(|entry| !matches!(entry.kind, FileKind::Directory) || is_opaque(entry))
        .map(|entry| entry.path.as_str())
        .collect();
    let replaced: HashSet<&str> = upper.entries.iter().map(|entry| entry.path.as_str()).collect();
    let gone = |path: &str| replaced.contains(path) || hiding.iter().any(|dir| is_below(path, dir));

    let mut entries: Vec<FileEntry> = Vec::new();
    for entry in below.entries.iter().filter(|entry| !gone(&entry.path)) {
        let mut entry = entry.clone();
        if let FileKind::Hardlink { target } = &entry.kind
            && gone(target)
            && let Some(old) = below.entries.iter().find(|old| old.path == *target)
        {
            entry.kind = old.kind.clone();
        }
        entries.push(entry);
    }
    let opaque_below: HashSet<&str> =
        below.entries.iter().filter(|e| is_opaque(e)).map(|e| e.path.as_str()).collect();
    let whiteout_below: HashSet<&str> = below
        .entries
        .iter()
        .filter(|entry| matches!(entry.kind, FileKind::Whiteout))
        .map(|entry| entry.path.as_str())
        .collect();
    for mut entry in upper.entries.clone() {
        let path = entry.path.as_str();
        // a directory merged with one below still hides the template if that one did
        let hides = opaque_below.contains(path) || whiteout_below.contains(path);
        if matches!(entry.kind, FileKind::Directory) && hides && !is_opaque(&entry) {
            entry.xattrs.push((OPAQUE.to_owned(), b"y".to_vec()));
        }
        entries.push(entry);
    }
    entries.sort_by(|a, b| a.path.split('/').cmp(b.path.split('/')));
    FileTree { entries, held: Vec::new() }
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
            let _ = std::fs::remove_dir_all(&temp);
        })
}

fn lay_out(store: &Store, manifest: &Manifest, temp: &Path) -> Result<()> {
    std::fs::create_dir(temp).doing(|| format!("make {}", temp.display()))?;
    // hard links need their targets, and directories lose their times when filled
    let (links, files): (Vec<_>, Vec<_>) = manifest
        .files
        .entries
        .iter()
        .partition(|entry| matches!(entry.kind, FileKind::Hardlink { .. }));
    for entry in files.iter().chain(&links) {
        make_entry(store, manifest, temp, entry)?;
    }
    for entry in files.iter().rev() {
        set_attributes(temp, entry)?;
    }
    Ok(())
}

fn make_entry(store: &Store, manifest: &Manifest, root: &Path, entry: &FileEntry) -> Result<()> {
    let path = root.join(&entry.path);
    let name = path.to_string_lossy();
    let doing = || format!("make {name}");
    match &entry.kind {
        FileKind::Directory => std::fs::create_dir(&path).doing(doing),
        FileKind::Symlink { target } => symlink(target, &path).doing(doing),
        FileKind::Fifo => sysfiles::make_node(&name, libc::S_IFIFO | 0o600, 0, 0).doing(doing),
        FileKind::Socket => sysfiles::make_node(&name, libc::S_IFSOCK | 0o600, 0, 0).doing(doing),
        FileKind::Whiteout => sysfiles::make_node(&name, libc::S_IFCHR, 0, 0).doing(doing),
        FileKind::Hardlink { target } => std::fs::hard_link(root.join(target), &path).doing(doing),
        FileKind::Regular { size, runs } => {
            let file = File::create_new(&path).doing(doing)?;
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
pub fn write_runs(
    store: &Store,
    manifest: &Manifest,
    runs: &[Run],
    mut take: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    const PIECE: u32 = 64;
    for run in runs {
        let pack = store.pack(manifest.meta.packs[run.pack as usize].root)?;
        let mut done = 0;
        while done < run.count {
            let count = (run.count - done).min(PIECE);
            let mut bytes = vec![0; count as usize * PAGE_SIZE];
            pack.read(run.slot + u64::from(done), &mut bytes)
                .map_err(|source| crate::Error::Pack { root: pack.root().to_string(), source })?;
            take(run.page + u64::from(done), &bytes)?;
            done += count;
        }
    }
    Ok(())
}

/// Owner, mode, times and attributes of what was laid out below `root`.
pub fn set_attributes(root: &Path, entry: &FileEntry) -> Result<()> {
    let path = root.join(&entry.path);
    let name = path.to_string_lossy();
    let set = || -> std::io::Result<()> {
        sysfiles::set_owner(&name, entry.uid, entry.gid)?;
        if matches!(entry.kind, FileKind::Whiteout | FileKind::Symlink { .. }) {
            return Ok(());
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(entry.mode))?;
        for (key, value) in &entry.xattrs {
            sysfiles::set_xattr(&name, key, value)?;
        }
        sysfiles::set_mtime(&name, entry.mtime_s, entry.mtime_ns)
    };
    set().doing(|| format!("set attributes of {name}"))
}
