//! Files that are open for writing: where their inode numbers come from, for `held` to bring back.
//!
//! In the pause the inode is identified: the file's own, or the one it says it has its number of.
//! After it, and before the image has its name, the store is told to keep that inode. One that
//! cannot be kept is left out of the image, and the file comes back with another number.

use crate::error::Result;
use crate::origin::{ATTRIBUTE, Origin};
use crate::store::{Living, Store};
use crate::tree::Tree;
use stasis_image::model::*;
use stasis_sys::files as sysfiles;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// A file as its machine sees it, open for writing.
pub struct Written {
    pub path: String,
    pub number: u64,
}

/// A file whose origin is known.
pub struct Seen {
    path: String,
    origin: Origin,
    /// It is the file itself, in the tree's upper directory.
    own: bool,
}

/// Identifies what is open for writing among the files the tree changed.
pub fn look(tree: &Tree, store: &Store, written: &[Written], files: &FileTree) -> Vec<Seen> {
    if written.is_empty() {
        return Vec::new();
    }
    let regular = |entry: &&FileEntry| matches!(entry.kind, FileKind::Regular { .. });
    let regular: HashSet<&str> =
        files.entries.iter().filter(regular).map(|entry| entry.path.as_str()).collect();
    let mut seen = HashMap::new();
    for Written { path, number } in written {
        let path = path.trim_start_matches('/');
        if regular.contains(path)
            && !seen.contains_key(path)
            && let Some((origin, own)) = origin_of(tree, store, path, *number)
        {
            seen.insert(path, Seen { path: path.to_owned(), origin, own });
        }
    }
    let mut seen: Vec<Seen> = seen.into_values().collect();
    seen.sort_by(|a, b| a.path.cmp(&b.path));
    seen
}

/// Where the number a program sees comes from, and whether that is the file itself.
fn origin_of(tree: &Tree, store: &Store, path: &str, number: u64) -> Option<(Origin, bool)> {
    let upper = Path::new(&tree.walls.files.upper);
    let real = std::fs::symlink_metadata(upper.join(path)).ok()?;
    if real.ino() == number {
        return store.keepers().identify(upper, path).map(|origin| (origin, true));
    }
    let name = upper.join(path).to_string_lossy().into_owned();
    let origin = Origin::parse(sysfiles::xattr(&name, ATTRIBUTE).ok()?)?;
    Some((origin, false))
}

/// Has the store keep origins; what is returned beside the list is held until the image has its
/// name.
pub fn keep(
    tree: &Tree,
    store: &Store,
    seen: Vec<Seen>,
) -> Result<(Vec<HeldFile>, Vec<Arc<Living>>)> {
    let (mut held, mut living) = (Vec::new(), Vec::new());
    let mut known = HashSet::new();
    for Seen { path, origin, own } in seen {
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
        held.push(HeldFile { path, origin: id });
    }
    Ok((held, living))
}

/// The lower directory a file was copied up from.
fn copied_from<'a>(tree: &'a Tree, store: &Store, path: &str, origin: &Origin) -> Option<&'a str> {
    let is_there =
        |dir: &&String| store.keepers().identify(Path::new(dir), path).as_ref() == Some(origin);
    tree.walls.files.lower.iter().find(is_there).map(String::as_str)
}
