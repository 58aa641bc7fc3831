//! Applies one layer to a root: adds and replaces files, and removes those that its whiteouts name.
//!
//! A layer is a tar stream from a stranger. Names that climb are refused, links are resolved with
//! the root as the end of the world, devices and other specials are left out, set-user-id bits and
//! extended attributes are dropped, and sizes and counts are bounded.

use crate::tree::{RootTree, absent_is_fine, names, refused};
use stasis_sys::trees;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{self as unix, PermissionsExt};
use std::path::{Path, PathBuf};
use tar::{Archive, Entry, EntryType, Header};

/// Totals of all layers of an image.
pub const MOST_BYTES: u64 = 32 << 30;
const MOST_ENTRIES: u64 = 2_000_000;
const LONGEST_NAME: usize = 4096;
const NOBODY: u64 = 65534;

/// The remaining allowance of an image.
#[derive(Debug, Clone)]
pub struct Budget {
    pub bytes: u64,
    pub entries: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { bytes: MOST_BYTES, entries: MOST_ENTRIES }
    }
}

impl Budget {
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        let entries = self.entries.checked_sub(1).ok_or_else(|| refused("too many entries"))?;
        let bytes = self.bytes.checked_sub(bytes).ok_or_else(|| refused("too large"))?;
        *self = Budget { bytes, entries };
        Ok(())
    }
}

/// A layer being applied.
struct Layer<'a> {
    tree: &'a RootTree,
    /// Files of this layer: whiteouts only remove earlier ones.
    fresh: HashSet<PathBuf>,
}

/// Applies a layer to the root. On failure the root is half changed and must be thrown away.
pub fn apply(tree: &RootTree, layer: impl Read, budget: &mut Budget) -> io::Result<()> {
    let mut state = Layer { tree, fresh: HashSet::new() };
    for entry in Archive::new(layer).entries()? {
        let mut entry = entry?;
        budget.take(entry.size())?;
        let name = entry.path_bytes().into_owned();
        if name.len() > LONGEST_NAME {
            return Err(refused("a name is too long"));
        }
        let path: PathBuf = names(Path::new(OsStr::from_bytes(&name)))?.iter().collect();
        let shown = path.display().to_string();
        let said = |error: io::Error| io::Error::new(error.kind(), format!("{shown}: {error}"));
        state.entry(&path, &mut entry).map_err(said)?;
    }
    Ok(())
}

impl Layer<'_> {
    fn entry(&mut self, path: &Path, entry: &mut Entry<impl Read>) -> io::Result<()> {
        let Some(name) = path.file_name().map(OsStr::as_bytes) else { return Ok(()) };
        if name == b".wh..wh..opq" {
            return self.clear_older(path.parent().unwrap_or(Path::new("")));
        }
        match name.strip_prefix(b".wh.") {
            Some(rest) if rest.starts_with(b".wh.") => Ok(()),
            Some(rest) => self.white_out(&path.with_file_name(OsStr::from_bytes(rest)), rest),
            None => self.add(path, entry),
        }
    }

    fn white_out(&mut self, path: &Path, name: &[u8]) -> io::Result<()> {
        if matches!(name, b"" | b"." | b"..") {
            return Err(refused("a whiteout without a name"));
        }
        if self.fresh.contains(path) {
            return Ok(());
        }
        self.remove(path)
    }

    /// Removes the files of earlier layers from a directory.
    fn clear_older(&mut self, dir: &Path) -> io::Result<()> {
        for name in self.tree.list(dir)? {
            let path = dir.join(name);
            if !self.fresh.contains(&path) {
                self.remove(&path)?;
            } else if self.is_dir(&path) {
                self.clear_older(&path)?;
            }
        }
        Ok(())
    }

    fn is_dir(&self, path: &Path) -> bool {
        let about = self.tree.slot(path).and_then(|slot| fs::symlink_metadata(slot.path()));
        about.is_ok_and(|about| about.is_dir())
    }

    /// Removes the entry itself and all below it; links are not followed.
    fn remove(&self, path: &Path) -> io::Result<()> {
        let slot = match self.tree.slot(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        match fs::symlink_metadata(slot.path()) {
            Ok(about) if about.is_dir() => trees::remove(&slot.path()),
            _ => absent_is_fine(fs::remove_file(slot.path())),
        }
    }

    fn add(&mut self, path: &Path, entry: &mut Entry<impl Read>) -> io::Result<()> {
        let kind = entry.header().entry_type();
        let known = kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link();
        if !known && kind != EntryType::Continuous && kind != EntryType::GNUSparse {
            return Ok(());
        }
        if !(kind.is_dir() && self.is_dir(path)) {
            self.remove(path)?;
        }
        self.fresh.extend(path.ancestors().map(Path::to_owned));
        match kind {
            EntryType::Directory => self.add_dir(path, entry.header()),
            EntryType::Symlink => self.add_symlink(path, entry),
            EntryType::Link => self.add_link(path, entry),
            _ => self.add_file(path, entry),
        }
    }

    fn add_dir(&self, path: &Path, header: &Header) -> io::Result<()> {
        self.tree.make_dirs(path, mode(header)?, 0)?;
        own(&self.tree.slot(path)?.path(), header)
    }

    fn add_file(&self, path: &Path, entry: &mut Entry<impl Read>) -> io::Result<()> {
        let slot = self.tree.slot_made(path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(slot.path())?;
        io::copy(entry, &mut file)?;
        let header = entry.header();
        own(&slot.path(), header)?;
        file.set_permissions(Permissions::from_mode(mode(header)?))?;
        let time = std::time::Duration::from_secs(header.mtime()?.min(u32::MAX.into()));
        file.set_modified(std::time::SystemTime::UNIX_EPOCH + time)
    }

    fn add_symlink(&self, path: &Path, entry: &Entry<impl Read>) -> io::Result<()> {
        let slot = self.tree.slot_made(path)?;
        unix::symlink(target(entry)?, slot.path())?;
        own(&slot.path(), entry.header())
    }

    /// Another name for a file that is in the root already.
    fn add_link(&self, path: &Path, entry: &Entry<impl Read>) -> io::Result<()> {
        let from = self.tree.slot(&target(entry)?)?;
        let slot = self.tree.slot_made(path)?;
        fs::hard_link(from.path(), slot.path())
    }
}

fn target(entry: &Entry<impl Read>) -> io::Result<PathBuf> {
    let bytes = entry.link_name_bytes().ok_or_else(|| refused("a link without a target"))?;
    if bytes.is_empty() || bytes.len() > LONGEST_NAME {
        return Err(refused("a link whose target is empty or too long"));
    }
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes.into_owned())))
}

/// The sticky bit may stay; no user gains another's rights by running a file.
fn mode(header: &Header) -> io::Result<u32> {
    Ok(header.mode()? & 0o1777)
}

/// Owners outside a machine's user namespace become `nobody`.
fn own(path: &Path, header: &Header) -> io::Result<()> {
    let (uid, gid) = (header.uid()?.min(NOBODY), header.gid()?.min(NOBODY));
    unix::lchown(path, Some(uid as u32), Some(gid as u32))
}
