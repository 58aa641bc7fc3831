//! Names of files in the store, and contents of its directories.

use super::Store;
use crate::error::{ErrorContext, Result};
use stasis_image::{ImageId, PackForm, PackRoot};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub fn of_image(id: ImageId) -> String {
    format!("{id}.img")
}

pub fn of_pack(root: PackRoot, form: PackForm) -> String {
    match form {
        PackForm::Plain => format!("{root}.pack"),
        PackForm::Cold => format!("{root}.zpack"),
        PackForm::Delta => format!("{root}.dpack"),
    }
}

pub fn image_of(name: &str) -> Option<ImageId> {
    name.strip_suffix(".img")?.parse().ok()
}

pub fn pack_of(name: &str) -> Option<(PackRoot, PackForm)> {
    let (root, form) = match name.split_once('.')? {
        (root, "pack") => (root, PackForm::Plain),
        (root, "zpack") => (root, PackForm::Cold),
        (root, "dpack") => (root, PackForm::Delta),
        _ => return None,
    };
    Some((root.parse().ok()?, form))
}

/// The named files of a store at one time.
#[derive(Default)]
pub struct StoreListing {
    pub images: Vec<ImageId>,
    pub packs: Vec<(PackRoot, PackForm)>,
    /// Files the store has not named.
    pub strays: Vec<PathBuf>,
}

impl StoreListing {
    pub fn list(store: &Store) -> Result<StoreListing> {
        let mut found = StoreListing::default();
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

pub fn list(dir: &Path) -> Result<Vec<String>> {
    let doing = || format!("list {}", dir.display());
    let names = std::fs::read_dir(dir)
        .doing(doing)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<_>>>();
    let mut names = names.doing(doing)?;
    names.sort_unstable();
    Ok(names)
}

/// Disk space of a file, or of a directory with everything in it.
pub fn disk_bytes(path: &Path) -> u64 {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return 0 };
    meta.blocks() * 512 + if meta.is_dir() { bytes_inside(path) } else { 0 }
}

/// Disk space of a directory's contents, without the directory itself.
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
        for form in [PackForm::Plain, PackForm::Cold, PackForm::Delta] {
            assert_eq!(pack_of(&of_pack(root, form)), Some((root, form)));
        }
        for name in ["", ".pack", "12.pack", &format!("{root}.pack.pack"), &format!("{root}")] {
            assert_eq!(pack_of(name), None, "{name}");
        }
    }
}
