//! Names of files in the store, and what is in its directories.

use super::Store;
use crate::error::{Doing, Result};
use stasis_image::{Form, ImageId, PackRoot};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub fn of_image(id: ImageId) -> String {
    format!("{id}.img")
}

pub fn of_pack(root: PackRoot, form: Form) -> String {
    match form {
        Form::Plain => format!("{root}.pack"),
        Form::Cold => format!("{root}.zpack"),
    }
}

fn image_of(name: &str) -> Option<ImageId> {
    name.strip_suffix(".img")?.parse().ok()
}

fn pack_of(name: &str) -> Option<(PackRoot, Form)> {
    let (root, form) = match name.split_once('.')? {
        (root, "pack") => (root, Form::Plain),
        (root, "zpack") => (root, Form::Cold),
        _ => return None,
    };
    Some((root.parse().ok()?, form))
}

/// The named files of a store at one time.
#[derive(Default)]
pub struct Found {
    pub images: Vec<ImageId>,
    pub packs: Vec<(PackRoot, Form)>,
    /// Files the store has not named.
    pub strays: Vec<PathBuf>,
}

impl Found {
    pub fn list(store: &Store) -> Result<Found> {
        let mut found = Found::default();
        for name in list(&store.dir.join("images"))? {
            match image_of(&name) {
                Some(id) => found.images.push(id),
                None => found.strays.push(store.dir.join("images").join(name)),
            }
        }
        for name in list(&store.dir.join("packs"))? {
            match pack_of(&name) {
                Some(pack) => found.packs.push(pack),
                None => found.strays.push(store.dir.join("packs").join(name)),
            }
        }
        Ok(found)
    }
}

fn list(dir: &Path) -> Result<Vec<String>> {
    let doing = || format!("list {}", dir.display());
    let names = std::fs::read_dir(dir)
        .doing(doing)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<_>>>();
    let mut names = names.doing(doing)?;
    names.sort_unstable();
    Ok(names)
}

/// What a file, or a directory with everything in it, takes on the disk.
pub fn disk_bytes(path: &Path) -> u64 {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return 0 };
    meta.blocks() * 512 + if meta.is_dir() { bytes_inside(path) } else { 0 }
}

/// What everything in a directory takes, without the directory itself.
pub fn bytes_inside(dir: &Path) -> u64 {
    stasis_sandbox::disk::usage(dir, u64::MAX, |_, _| {}).unwrap_or_default().bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let (id, root) = (ImageId::of(b"an image"), PackRoot::of(b"a pack"));
        assert_eq!(image_of(&of_image(id)), Some(id));
        for form in [Form::Plain, Form::Cold] {
            assert_eq!(pack_of(&of_pack(root, form)), Some((root, form)));
        }
        for name in ["", ".pack", "12.pack", &format!("{root}.pack.pack"), &format!("{root}")] {
            assert_eq!(pack_of(name), None, "{name}");
        }
    }
}
