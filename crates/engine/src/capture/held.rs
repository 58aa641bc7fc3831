//! Files that are open for writing: where their inode numbers come from, for `held` to bring back.
//!
//! In the pause the inode is identified: the file's own, or the origin of its number. Afterwards,
//! and before the image has its name, the store is instructed to keep that inode. An inode that
//! cannot be kept is left out of the image, and the file comes back with another number.

use crate::error::Result;
use crate::tree::Tree;
use bstr::BString;
use stasis_image::model::*;
use stasis_store::origin::{ATTRIBUTE, Origin};
use stasis_store::{LiveInode, Store};
use stasis_sys::trees::{self, PathsBelow};
use stasis_sys::{files as sysfiles, libc};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// A file as its machine sees it, open for writing.
pub struct WritableFile {
    pub path: String,
    pub number: u64,
}

/// A file whose origin is known.
pub struct KnownFile {
    path: String,
    origin: Origin,
    /// It is the file itself, in the tree's upper directory.
    own: bool,
}

/// Identifies the files open for writing among those the tree changed.
pub fn look(tree: &Tree, store: &Store, written: &[WritableFile]) -> Vec<KnownFile> {
    let mut paths = HashSet::new();
    let first = written.iter().filter(|file| paths.insert(&file.path));
    first.filter_map(|file| see(tree, store, file)).collect()
}

fn see(tree: &Tree, store: &Store, file: &WritableFile) -> Option<KnownFile> {
    let path = file.path.trim_start_matches('/').to_owned();
    let upper = Path::new(&tree.walls.files.upper);
    let (own, number) = store.keepers().identify_with_number(upper, &path)?;
    if number == file.number {
        return Some(KnownFile { path, origin: own, own: true });
    }
    let (parent, name) = trees::split(path.as_bytes());
    let mut below = PathsBelow::open(upper).ok()?;
    let dir = below.directory(parent).ok()?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let looked_at = sysfiles::open_straight(dir, OsStr::from_bytes(name), flags).ok()?;
    let origin = sysfiles::looked_at_xattr(looked_at.as_fd(), ATTRIBUTE).ok()?;
    let origin = Origin::parse(origin)?;
    Some(KnownFile { path, origin, own: false })
}

/// Names origins in `files` and has the store keep them. The returned value holds them until the
/// image has its name.
pub fn keep(
    tree: &Tree,
    store: &Store,
    seen: Vec<KnownFile>,
    files: &mut FileTree,
) -> Result<Vec<Arc<LiveInode>>> {
    let mut living = Vec::new();
    let mut known = HashSet::new();
    for KnownFile { path, origin, own } in seen {
        let id = origin.id();
        let dir = match own {
            true => Some(tree.walls.files.upper.as_str()),
            false if store.keepers().find(id).is_some() => None,
            false => match copied_from(tree, store, &path, &origin) {
                Some(dir) => Some(dir).filter(|dir| store.is_layer(Path::new(dir))),
                None => continue,
            },
        };
        // overlayfs knows a file by its origin: two of one would be one
        if !known.insert(id) {
            continue;
        }
        if let Some(dir) = dir {
            living.push(store.keepers().note(Path::new(dir), &path, origin)?);
        }
        files.held.push(HeldFile { path: path.into(), origin: id });
    }
    if files.held.is_empty() {
        return Ok(living);
    }
    let regular = |entry: &&FileEntry| matches!(entry.kind, FileEntryKind::Regular { .. });
    let regular: HashSet<&BString> =
        files.entries.iter().filter(regular).map(|entry| &entry.path).collect();
    files.held.retain(|held| regular.contains(&held.path));
    Ok(living)
}

/// The lower directory a file was copied up from.
fn copied_from<'a>(tree: &'a Tree, store: &Store, path: &str, origin: &Origin) -> Option<&'a str> {
    let is_there =
        |dir: &&String| store.keepers().identify(Path::new(dir), path).as_ref() == Some(origin);
    tree.walls.files.lower.iter().find(is_there).map(String::as_str)
}
