//! Reads the files of an image without restoring it: the machine's view of them.
//!
//!   image's own files ─► over the template's root          whiteouts hide, directories merge
//!
//! Paths are relative to the machine's root, and the host's kernel never resolves one as a whole:
//! each component below a root is checked by itself, and a symbolic link is never followed, so no
//! file of a machine leads outside.

use crate::engine::Engine;
use crate::error::{Error, ErrorContext, Result};
use bstr::{BString, ByteSlice};
use stasis_image::model::{FileEntry, FileEntryKind, PageRun};
use stasis_image::{PAGE_SIZE, PageHash};
use stasis_store::layers::{is_opaque, order, write_runs};
use stasis_store::{Image, Store};
use stasis_sys::trees;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum files below one removed directory.
const MOST_BELOW: usize = 10_000;

/// The files of one image.
pub struct Contents<'a> {
    store: &'a Store,
    image: Image,
    /// Topmost first.
    roots: Vec<PathBuf>,
    /// For each entry, whether the template shows through there.
    shows: Vec<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Symlink(String),
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentEntry {
    /// For people: bytes that are no text are replaced.
    pub path: String,
    pub kind: EntryKind,
    pub size: u64,
    pub mode: u32,
    pub mtime_s: i64,
    pub mtime_ns: i64,
}

/// The change of a file from one image to another.
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
        let shows = shows(&image.manifest.files.entries);
        Ok(Contents { store: self.store(), image: image.clone(), roots, shows })
    }
}

/// Whether the template shows through at each entry: not where it or a directory above hides it.
fn shows(entries: &[FileEntry]) -> Vec<bool> {
    let mut shows: Vec<bool> = Vec::with_capacity(entries.len());
    // directories on the way to the entry
    let mut above: Vec<usize> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let is_in = |dir: &[u8]| entry.path.strip_prefix(dir).is_some_and(|rest| rest[0] == b'/');
        while above.pop_if(|dir| !is_in(&entries[*dir].path)).is_some() {}
        let is_dir = matches!(entry.kind, FileEntryKind::Directory);
        let open = above.last().is_none_or(|dir| shows[*dir]);
        shows.push(open && is_dir && !is_opaque(entry));
        if is_dir {
            above.push(index);
        }
    }
    shows
}

/// A path as images spell it: no slash in front, no component that means another directory.
pub fn plain_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let fine = |part: &&str| *part != "." && *part != ".." && !part.contains('\0');
    parts.iter().all(fine).then(|| parts.join("/"))
}

impl Contents<'_> {
    /// The machine's own files: those it made or changed, without directories.
    pub fn own(&self) -> Vec<ContentEntry> {
        let entries = self.entries().iter().filter(|entry| {
            !matches!(entry.kind, FileEntryKind::Directory | FileEntryKind::Whiteout)
        });
        entries.map(|entry| self.described(entry)).collect()
    }

    /// The file at a path, if any.
    pub fn entry(&self, path: &str) -> Option<ContentEntry> {
        self.entry_at(path.as_bytes())
    }

    fn entry_at(&self, path: &[u8]) -> Option<ContentEntry> {
        if path.is_empty() {
            let kind = EntryKind::Directory;
            let path = String::new();
            return Some(ContentEntry {
                path,
                kind,
                size: 0,
                mode: 0o755,
                mtime_s: 0,
                mtime_ns: 0,
            });
        }
        match self.find(path) {
            Some(entry) if matches!(entry.kind, FileEntryKind::Whiteout) => None,
            Some(entry) => Some(self.described(entry)),
            None => self.below(path).map(|(file, meta)| of_root(path, &file, &meta)),
        }
    }

    /// The entries of a directory; `None` if it is not one.
    pub fn list(&self, dir: &str) -> Result<Option<Vec<ContentEntry>>> {
        if !self.entry(dir).is_some_and(|entry| entry.kind == EntryKind::Directory) {
            return Ok(None);
        }
        let dir = dir.as_bytes();
        let is_direct = |path: &&[u8]| trees::split(path).0 == dir;
        let own = self.entries().iter().map(|entry| entry.path.as_slice());
        let mut paths: BTreeSet<Vec<u8>> = own.filter(is_direct).map(<[u8]>::to_vec).collect();
        for root in self.roots.iter().filter(|_| self.shows_root(dir)) {
            paths.extend(names_in(root, dir).into_iter().map(|name| joined(dir, &name)));
        }
        Ok(Some(paths.iter().filter_map(|path| self.entry_at(path)).collect()))
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
        let path = path.as_bytes();
        let Some(own) = self.find(path) else { return self.read_root(path).map(Some) };
        let FileEntryKind::Regular { size, runs } = &self.resolved(own).kind else {
            return Ok(None);
        };
        let mut bytes = vec![0; *size as usize];
        write_runs(self.store, &self.image.manifest, runs, |page, content| {
            let at = (page as usize).saturating_mul(PAGE_SIZE).min(bytes.len());
            let len = content.len().min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&content[..len]);
            Ok::<_, Error>(())
        })?;
        Ok(Some(bytes))
    }

    /// Files that differ in `other`, by path. Directories and times of change do not count.
    pub fn differences(&self, other: &Contents<'_>) -> Result<Vec<(String, Difference)>> {
        let paths: BTreeSet<&BString> =
            self.entries().iter().chain(other.entries()).map(|entry| &entry.path).collect();
        let mut found = BTreeMap::new();
        for path in paths {
            self.compare(other, path, &mut found)?;
        }
        Ok(found.into_iter().map(|(path, kind)| (BString::from(path).to_string(), kind)).collect())
    }

    fn compare(
        &self,
        other: &Contents<'_>,
        path: &[u8],
        found: &mut BTreeMap<Vec<u8>, Difference>,
    ) -> Result<()> {
        let (before, after) = (self.entry_at(path), other.entry_at(path));
        let is_dir = |entry: &Option<ContentEntry>| {
            entry.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory)
        };
        if is_dir(&before) || is_dir(&after) {
            // the template's entry may have been created or removed with it
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
        path: &[u8],
        found: &mut BTreeMap<Vec<u8>, Difference>,
    ) -> Result<()> {
        let file = |entry: &ContentEntry| entry.kind != EntryKind::Directory;
        let before = self.entry_at(path).filter(file);
        let after = other.entry_at(path).filter(file);
        let difference = match (&before, &after) {
            (None, None) => return Ok(()),
            (None, Some(_)) => Difference::Added,
            (Some(_), None) => Difference::Removed,
            (Some(a), Some(b)) if self.same(path, a, other, b)? => return Ok(()),
            _ => Difference::Changed,
        };
        found.insert(path.to_owned(), difference);
        Ok(())
    }

    fn same(
        &self,
        path: &[u8],
        own: &ContentEntry,
        other: &Contents<'_>,
        theirs: &ContentEntry,
    ) -> Result<bool> {
        if (&own.kind, own.size, own.mode) != (&theirs.kind, theirs.size, theirs.mode) {
            return Ok(false);
        }
        if own.kind != EntryKind::File {
            return Ok(true);
        }
        Ok(self.pages(path)? == other.pages(path)?)
    }

    /// Hashes of a file's pages, without those that are all zeros.
    fn pages(&self, path: &[u8]) -> Result<BTreeMap<u64, PageHash>> {
        let zero = PageHash::of(&[0; PAGE_SIZE]);
        let mut pages = BTreeMap::new();
        if let Some(entry) = self.find(path) {
            if let FileEntryKind::Regular { runs, .. } = &self.resolved(entry).kind {
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

    fn hash_runs(&self, runs: &[PageRun], pages: &mut BTreeMap<u64, PageHash>) -> Result<()> {
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

    fn find(&self, path: &[u8]) -> Option<&FileEntry> {
        self.index(path).map(|index| &self.entries()[index])
    }

    fn index(&self, path: &[u8]) -> Option<usize> {
        self.entries().binary_search_by(|entry| order(&entry.path, path)).ok()
    }

    /// The file a hard link leads to.
    fn resolved<'b>(&'b self, entry: &'b FileEntry) -> &'b FileEntry {
        match &entry.kind {
            FileEntryKind::Hardlink { target } => self.find(target).unwrap_or(entry),
            _ => entry,
        }
    }

    fn described(&self, entry: &FileEntry) -> ContentEntry {
        let real = self.resolved(entry);
        let (kind, size) = match &real.kind {
            FileEntryKind::Regular { size, .. } => (EntryKind::File, *size),
            FileEntryKind::Directory => (EntryKind::Directory, 0),
            FileEntryKind::Symlink { target } => (EntryKind::Symlink(target.to_string()), 0),
            _ => (EntryKind::Other, 0),
        };
        let path = entry.path.to_string();
        let (mode, mtime_s, mtime_ns) = (real.mode & 0o7777, real.mtime_s, real.mtime_ns);
        ContentEntry { path, kind, size, mode, mtime_s, mtime_ns }
    }

    /// Whether the template shows through at this path.
    fn shows_root(&self, path: &[u8]) -> bool {
        let mut path = path;
        loop {
            match self.index(path) {
                Some(index) => return self.shows[index],
                None if path.is_empty() => return true,
                None => path = trees::split(path).0,
            }
        }
    }

    /// The template's file at a path, if the image does not hide it.
    fn below(&self, path: &[u8]) -> Option<(PathBuf, Metadata)> {
        let (parent, _) = trees::split(path);
        if !parent.is_empty() && !self.shows_root(parent) {
            return None;
        }
        self.roots.iter().find_map(|root| {
            let mut at = root.clone();
            let mut parts = path.split_str("/").peekable();
            while let Some(part) = parts.next() {
                at.push(OsStr::from_bytes(part));
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

    fn read_root(&self, path: &[u8]) -> Result<Vec<u8>> {
        let gone = || Error::Unfit(format!("{} is not in the template", path.as_bstr()));
        let (file, _) = self.below(path).ok_or_else(gone)?;
        std::fs::read(&file).doing(|| format!("read {}", file.display()))
    }

    /// The template's files below a directory.
    fn root_files(&self, dir: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut waiting = vec![dir.to_owned()];
        while let Some(dir) = waiting.pop() {
            for root in &self.roots {
                for name in names_in(root, &dir) {
                    let path = joined(&dir, &name);
                    let at = root.join(OsStr::from_bytes(&path));
                    let is_dir = std::fs::symlink_metadata(at).is_ok_and(|meta| meta.is_dir());
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

fn joined(dir: &[u8], name: &OsStr) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() { b"" } else { b"/" };
    [dir, slash, name.as_bytes()].concat()
}

/// Names in a directory of a template, which is reached through directories only.
fn names_in(root: &Path, dir: &[u8]) -> Vec<OsString> {
    let mut at = root.to_owned();
    for part in dir.split_str("/").filter(|part| !part.is_empty()) {
        at.push(OsStr::from_bytes(part));
        if !std::fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_dir()) {
            return Vec::new();
        }
    }
    let entries = std::fs::read_dir(&at).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

fn of_root(path: &[u8], file: &Path, meta: &Metadata) -> ContentEntry {
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
    ContentEntry { path: path.as_bstr().to_string(), kind, size, mode, mtime_s, mtime_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_the_template_hides_it_below_too() {
        let dir = |path: &str, opaque: bool| FileEntry {
            path: path.into(),
            mode: 0o755,
            uid: 0,
            gid: 0,
            mtime_s: 0,
            mtime_ns: 0,
            xattrs: match opaque {
                true => vec![(stasis_store::layers::OPAQUE.into(), b"y".to_vec())],
                false => Vec::new(),
            },
            kind: FileEntryKind::Directory,
        };
        let entries =
            ["a", "a/b", "a/b/c", "a!", "d"].map(|path| dir(path, matches!(path, "a/b" | "d")));
        assert_eq!(shows(&entries), [true, false, false, true, false]);
    }

    #[test]
    fn paths_stay_below_the_root() {
        assert_eq!(plain_path("/a//b/"), Some("a/b".into()));
        assert_eq!(plain_path(""), Some(String::new()));
        for path in ["..", "a/../b", "./a", "a/.", "a\0b"] {
            assert_eq!(plain_path(path), None, "{path:?}");
        }
    }
}
