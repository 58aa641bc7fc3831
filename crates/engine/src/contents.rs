//! Files of an image, looked at without bringing it back: what its machine would see.
//!
//!   image's own files ─► over the template's root          whiteouts hide, directories merge
//!
//! Paths are relative to the machine's root and are never resolved by the host's kernel as a
//! whole: each component below a root is looked at by itself, and a symbolic link is never
//! followed, so nothing a machine left behind leads anywhere else.

use crate::engine::Engine;
use crate::error::{Doing, Error, Result};
use crate::layers::{is_opaque, write_runs};
use crate::store::{Image, Store};
use stasis_image::model::{FileEntry, FileKind, Run};
use stasis_image::{PAGE_SIZE, PageHash};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Files below one directory that is gone, at most.
const MOST_BELOW: usize = 10_000;

/// The files of one image.
pub struct Contents<'a> {
    store: &'a Store,
    image: Image,
    /// Topmost first.
    roots: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Symlink(String),
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: String,
    pub kind: EntryKind,
    pub size: u64,
    pub mode: u32,
    pub mtime_s: i64,
    pub mtime_ns: i64,
}

/// What became of a file from one image to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    Added,
    Changed,
    Removed,
}

impl Engine {
    /// The files of an image.
    pub fn contents(&self, image: &Image) -> Result<Contents<'_>> {
        let roots = self.root_dirs(&image.manifest.meta.root)?;
        Ok(Contents { store: self.store(), image: image.clone(), roots })
    }
}

/// A path as images spell it: no slash in front, no component that means another directory.
pub fn plain_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let fine = |part: &&str| *part != "." && *part != ".." && !part.contains('\0');
    parts.iter().all(fine).then(|| parts.join("/"))
}

impl Contents<'_> {
    /// The machine's own files: those it made or changed, without directories.
    pub fn own(&self) -> Vec<Entry> {
        let entries = self
            .entries()
            .iter()
            .filter(|entry| !matches!(entry.kind, FileKind::Directory | FileKind::Whiteout));
        entries.map(|entry| self.described(entry)).collect()
    }

    /// What is at a path, if something is.
    pub fn entry(&self, path: &str) -> Option<Entry> {
        if path.is_empty() {
            let kind = EntryKind::Directory;
            let path = String::new();
            return Some(Entry { path, kind, size: 0, mode: 0o755, mtime_s: 0, mtime_ns: 0 });
        }
        match self.find(path) {
            Some(entry) if matches!(entry.kind, FileKind::Whiteout) => None,
            Some(entry) => Some(self.described(entry)),
            None => self.below(path).map(|(file, meta)| of_root(path, &file, &meta)),
        }
    }

    /// What is in a directory; `None` if it is not one.
    pub fn list(&self, dir: &str) -> Result<Option<Vec<Entry>>> {
        if !self.entry(dir).is_some_and(|entry| entry.kind == EntryKind::Directory) {
            return Ok(None);
        }
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let direct =
            |path: &str| path.strip_prefix(prefix.as_str()).is_some_and(|rest| !rest.contains('/'));
        let own = self.entries().iter().map(|entry| entry.path.as_str());
        let mut names: BTreeSet<String> =
            own.filter(|path| direct(path)).map(str::to_owned).collect();
        for root in self.roots.iter().filter(|_| self.shows_root(dir)) {
            names.extend(names_in(root, dir).into_iter().map(|name| format!("{prefix}{name}")));
        }
        Ok(Some(names.iter().filter_map(|path| self.entry(path)).collect()))
    }

    /// The contents of a file of at most `most` bytes; `None` if there is no such file.
    pub fn read(&self, path: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(entry) = self.entry(path).filter(|entry| entry.kind == EntryKind::File) else {
            return Ok(None);
        };
        if entry.size > most {
            let said = format!("{path} has {} bytes, more than {most}", entry.size);
            return Err(Error::TooLarge(said));
        }
        let Some(own) = self.find(path) else { return self.read_root(path).map(Some) };
        let FileKind::Regular { size, runs } = &self.resolved(own).kind else { return Ok(None) };
        let mut bytes = vec![0; *size as usize];
        write_runs(self.store, &self.image.manifest, runs, |page, content| {
            let at = (page as usize).saturating_mul(PAGE_SIZE).min(bytes.len());
            let len = content.len().min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&content[..len]);
            Ok(())
        })?;
        Ok(Some(bytes))
    }

    /// Files that differ in `other`, by path. Directories and times of change do not count.
    pub fn differences(&self, other: &Contents<'_>) -> Result<Vec<(String, Difference)>> {
        let paths: BTreeSet<&str> =
            self.entries().iter().chain(other.entries()).map(|entry| entry.path.as_str()).collect();
        let mut found = BTreeMap::new();
        for path in paths {
            self.compare(other, path, &mut found)?;
        }
        Ok(found.into_iter().collect())
    }

    fn compare(
        &self,
        other: &Contents<'_>,
        path: &str,
        found: &mut BTreeMap<String, Difference>,
    ) -> Result<()> {
        let (before, after) = (self.entry(path), other.entry(path));
        let is_dir = |entry: &Option<Entry>| {
            entry.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory)
        };
        if is_dir(&before) || is_dir(&after) {
            // what the template has there may have come or gone with it
            if self.shows_root(path) != other.shows_root(path) || is_dir(&before) != is_dir(&after)
            {
                for below in self.root_files(path).into_iter().filter(|path| !path.is_empty()) {
                    self.note(other, &below, found)?;
                }
            }
        }
        self.note(other, path, found)
    }

    fn note(
        &self,
        other: &Contents<'_>,
        path: &str,
        found: &mut BTreeMap<String, Difference>,
    ) -> Result<()> {
        let file = |entry: &Entry| entry.kind != EntryKind::Directory;
        let before = self.entry(path).filter(file);
        let after = other.entry(path).filter(file);
        let difference = match (&before, &after) {
            (None, None) => return Ok(()),
            (None, Some(_)) => Difference::Added,
            (Some(_), None) => Difference::Removed,
            (Some(a), Some(b)) if self.same(a, other, b)? => return Ok(()),
            _ => Difference::Changed,
        };
        found.insert(path.to_owned(), difference);
        Ok(())
    }

    fn same(&self, own: &Entry, other: &Contents<'_>, theirs: &Entry) -> Result<bool> {
        if (&own.kind, own.size, own.mode) != (&theirs.kind, theirs.size, theirs.mode) {
            return Ok(false);
        }
        if own.kind != EntryKind::File {
            return Ok(true);
        }
        Ok(self.pages(&own.path)? == other.pages(&theirs.path)?)
    }

    /// Hashes of a file's pages, without those that are all zeros.
    fn pages(&self, path: &str) -> Result<BTreeMap<u64, PageHash>> {
        let zero = PageHash::of(&[0; PAGE_SIZE]);
        let mut pages = BTreeMap::new();
        if let Some(entry) = self.find(path) {
            if let FileKind::Regular { runs, .. } = &self.resolved(entry).kind {
                self.hash_runs(runs, &mut pages)?;
            }
        } else {
            for (page, chunk) in self.read_root(path)?.chunks(PAGE_SIZE).enumerate() {
                let mut whole = [0; PAGE_SIZE];
                whole[..chunk.len()].copy_from_slice(chunk);
                pages.insert(page as u64, PageHash::of(&whole));
            }
        }
        pages.retain(|_, hash| *hash != zero);
        Ok(pages)
    }

    fn hash_runs(&self, runs: &[Run], pages: &mut BTreeMap<u64, PageHash>) -> Result<()> {
        for run in runs {
            let pack = self.store.pack(self.image.manifest.meta.packs[run.pack as usize].root)?;
            for at in 0..u64::from(run.count) {
                let hash = pack.hash(run.slot + at);
                let lost = || Error::Unfit(format!("page {} of a file is missing", run.page + at));
                pages.insert(run.page + at, hash.ok_or_else(lost)?);
            }
        }
        Ok(())
    }

    fn entries(&self) -> &[FileEntry] {
        &self.image.manifest.files.entries
    }

    fn find(&self, path: &str) -> Option<&FileEntry> {
        let entries = self.entries();
        let found = entries.binary_search_by(|entry| entry.path.split('/').cmp(path.split('/')));
        found.ok().map(|index| &entries[index])
    }

    /// The file a hard link leads to.
    fn resolved<'b>(&'b self, entry: &'b FileEntry) -> &'b FileEntry {
        match &entry.kind {
            FileKind::Hardlink { target } => self.find(target).unwrap_or(entry),
            _ => entry,
        }
    }

    fn described(&self, entry: &FileEntry) -> Entry {
        let real = self.resolved(entry);
        let (kind, size) = match &real.kind {
            FileKind::Regular { size, .. } => (EntryKind::File, *size),
            FileKind::Directory => (EntryKind::Directory, 0),
            FileKind::Symlink { target } => (EntryKind::Symlink(target.clone()), 0),
            _ => (EntryKind::Other, 0),
        };
        let path = entry.path.clone();
        let (mode, mtime_s, mtime_ns) = (real.mode & 0o7777, real.mtime_s, real.mtime_ns);
        Entry { path, kind, size, mode, mtime_s, mtime_ns }
    }

    /// Whether the template shows through at this path.
    fn shows_root(&self, path: &str) -> bool {
        let mut ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
        ends.push(path.len());
        ends.into_iter().all(|end| match self.find(&path[..end]) {
            Some(entry) => matches!(entry.kind, FileKind::Directory) && !is_opaque(entry),
            None => true,
        })
    }

    /// The template's file at a path, if the image does not hide it.
    fn below(&self, path: &str) -> Option<(PathBuf, Metadata)> {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !parent.is_empty() && !self.shows_root(parent) {
            return None;
        }
        self.roots.iter().find_map(|root| {
            let mut at = root.clone();
            let mut parts = path.split('/').peekable();
            while let Some(part) = parts.next() {
                at.push(part);
                let meta = std::fs::symlink_metadata(&at).ok()?;
                if parts.peek().is_none() {
                    return Some((at, meta));
                }
                if !meta.is_dir() {
                    return None;
                }
            }
            None
        })
    }

    fn read_root(&self, path: &str) -> Result<Vec<u8>> {
        let gone = || Error::Unfit(format!("{path} is not in the template"));
        let (file, _) = self.below(path).ok_or_else(gone)?;
        std::fs::read(&file).doing(|| format!("read {}", file.display()))
    }

    /// The template's files below a directory.
    fn root_files(&self, dir: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut waiting = vec![dir.to_owned()];
        while let Some(dir) = waiting.pop() {
            for root in &self.roots {
                for name in names_in(root, &dir) {
                    let path = format!("{dir}/{name}");
                    let is_dir =
                        std::fs::symlink_metadata(root.join(&path)).is_ok_and(|meta| meta.is_dir());
                    if is_dir { waiting.push(path) } else { found.push(path) }
                }
            }
            if found.len() > MOST_BELOW {
                break;
            }
        }
        found
    }
}

/// Names in a directory of a template, which is reached through directories only.
fn names_in(root: &std::path::Path, dir: &str) -> Vec<String> {
    let mut at = root.to_owned();
    for part in dir.split('/').filter(|part| !part.is_empty()) {
        at.push(part);
        if !std::fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_dir()) {
            return Vec::new();
        }
    }
    let entries = std::fs::read_dir(&at).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn of_root(path: &str, file: &std::path::Path, meta: &Metadata) -> Entry {
    let kind = if meta.is_file() {
        EntryKind::File
    } else if meta.is_dir() {
        EntryKind::Directory
    } else if meta.is_symlink() {
        let target = std::fs::read_link(file).unwrap_or_default();
        EntryKind::Symlink(target.to_string_lossy().into_owned())
    } else {
        EntryKind::Other
    };
    let size = if meta.is_file() { meta.len() } else { 0 };
    let mode = meta.mode() & 0o7777;
    let (mtime_s, mtime_ns) = (meta.mtime(), meta.mtime_nsec());
    Entry { path: path.to_owned(), kind, size, mode, mtime_s, mtime_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        assert_eq!(plain_path("/a//b/"), Some("a/b".into()));
        assert_eq!(plain_path(""), Some(String::new()));
        for path in ["..", "a/../b", "./a", "a/.", "a\0b"] {
            assert_eq!(plain_path(path), None, "{path:?}");
        }
    }
}
