//! Files that were open for writing come back with the inode numbers they had.
//!
//! sqlite, for example, takes a database with a changed inode number for a moved one, and no longer
//! writes to it. Such files are created in the new tree's own upper directory, before it is
//! mounted, each with its [`Origin`]; opening them for writing would copy them there anyway. If the
//! origin was removed, or is on another host, the file stays in the layer and has a new number.

use crate::error::{ErrorContext, Result};
use bstr::ByteSlice;
use stasis_image::model::*;
use stasis_store::layers::{OPAQUE, set_attributes};
use stasis_store::origin::{ATTRIBUTE, Origin};
use stasis_store::{Image, Store};
use stasis_sys::trees::{self, PathsBelow};
use stasis_sys::{below, files as sysfiles};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Overlayfs's mark for a directory that holds files with origins.
const IMPURE: &str = "trusted.overlay.impure";

/// The files to create in a new upper directory.
pub struct HeldFiles<'a> {
    layer: &'a Path,
    files: Vec<(&'a FileEntry, Origin)>,
    /// Everything on the way to them, parents first.
    directories: Vec<&'a FileEntry>,
}

/// Files of an image whose origins are known here; `None` if there are none.
pub fn find<'a>(
    store: &Store,
    image: &'a Image,
    layer: Option<&'a Path>,
    root: &[PathBuf],
) -> Option<HeldFiles<'a>> {
    let tree = &image.manifest.files;
    let layer = layer.filter(|_| !tree.held.is_empty())?;
    let entries: BTreeMap<&[u8], &FileEntry> =
        tree.entries.iter().map(|entry| (entry.path.as_slice(), entry)).collect();
    let origin = |held: &HeldFile| {
        let keepers = store.keepers();
        let of_root =
            || root.iter().find_map(|dir| keepers.identify(dir, held.path.to_str().ok()?));
        keepers.find(held.origin).or_else(of_root).filter(|origin| origin.id() == held.origin)
    };
    let files: Vec<_> = tree
        .held
        .iter()
        .filter_map(|held| Some((*entries.get(held.path.as_slice())?, origin(held)?)))
        .collect();
    let above = files.iter().flat_map(|(entry, _)| parents(&entry.path));
    let mut directories: Vec<&FileEntry> =
        above.filter_map(|path| entries.get(path).copied()).collect();
    directories.sort_by(|a, b| a.path.cmp(&b.path));
    directories.dedup_by(|a, b| a.path == b.path);
    (!files.is_empty()).then_some(HeldFiles { layer, files, directories })
}

/// The directories a path leads through.
fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.find_iter("/").map(|end| &path[..end])
}

impl HeldFiles<'_> {
    /// Lays them out in an empty directory. Everything on the way is made here, and what an image
    /// says was checked: each path leads through directories, to a file.
    pub fn place(&self, upper: &Path) -> Result<()> {
        let open = |dir: &Path| PathsBelow::open(dir).doing(|| format!("open {}", dir.display()));
        let (mut below, mut layer) = (open(upper)?, open(self.layer)?);
        for dir in &self.directories {
            let made = below.slot(&dir.path).and_then(std::fs::create_dir);
            made.doing(|| format!("make {}", dir.path))?;
        }
        for (entry, origin) in &self.files {
            let doing = || format!("bring back {}", entry.path);
            let path = below.slot(&entry.path).doing(doing)?;
            copy(&layer.slot(&entry.path).doing(doing)?, &path).doing(doing)?;
            set_attributes(&mut below, entry)?;
            sysfiles::set_xattr(&path, ATTRIBUTE, origin.as_bytes()).doing(doing)?;
            let (parent, _) = trees::split(&entry.path);
            let parent = below::own_name(below.directory(parent).doing(doing)?);
            // through the link, to the directory
            sysfiles::set_xattr(format!("{parent}/."), IMPURE, b"y").doing(doing)?;
        }
        for dir in self.directories.iter().rev() {
            let mut dir = FileEntry::clone(dir);
            // lower files show through: the layer itself hides the others
            dir.xattrs.retain(|(name, _)| name != OPAQUE);
            set_attributes(&mut below, &dir)?;
        }
        Ok(())
    }
}

/// Data alone: holes stay holes.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let (mut from, mut to) = (File::open(from)?, File::create_new(to)?);
    to.set_len(from.metadata()?.len())?;
    let mut at = 0;
    while let Some((start, end)) = sysfiles::next_data(from.as_fd(), at)? {
        from.seek(SeekFrom::Start(start))?;
        to.seek(SeekFrom::Start(start))?;
        std::io::copy(&mut (&from).take(end - start), &mut to)?;
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_before_what_they_hold() {
        assert_eq!(parents(b"a/b/c").collect::<Vec<_>>(), [&b"a"[..], b"a/b"]);
        assert_eq!(parents(b"a").count(), 0);
    }
}
