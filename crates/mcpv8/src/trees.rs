//! File trees: immutable, named by their content, separate for each account.
//!
//!   <data>/mcp-v8-trees/<hash of account>/<hash of content>    files, and lists of files
//!
//! A tree is a list of paths below /work. Its id is the hash of that list, so identical files have
//! the same id. Directories are implicit. All data read is checked against its name: a damaged file
//! is an error, never other content.
//!
//! An account has 2 GiB. If that is used up, unreferenced trees are removed first. A tree is
//! referenced by a label or its log, by the latest entry of a session, by an unfinished run, or by
//! one of the newest 1,000 executions.

use crate::V8;
use crate::error::{Error, Result};
use crate::executions::shown;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;

/// Maximum files and links of one tree, and bytes of all of its files.
pub(crate) const MOST_ENTRIES: usize = 10_000;
pub(crate) const LARGEST_TREE: u64 = 256 << 20;
/// Maximum bytes of a path below /work.
pub(crate) const LONGEST_PATH: usize = 1024;
const LONGEST_LIST: u64 = 32 << 20;
const MOST_BYTES: u64 = 2 << 30;
const PIECE: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum TreeEntry {
    File {
        blob: String,
        size: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        executable: bool,
    },
    Link {
        target: String,
    },
}

impl TreeEntry {
    /// The content's name in an answer.
    pub fn content(&self) -> &str {
        match self {
            TreeEntry::File { blob, .. } => blob,
            TreeEntry::Link { target } => target,
        }
    }
}

/// Entries by their path below /work, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkTree(pub BTreeMap<String, TreeEntry>);

impl WorkTree {
    fn text(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Error::new(500, format!("cannot write a tree: {error}")))
    }

    /// A list, if it is one that could have been stored: a machine's file may look like a list.
    fn read(text: &[u8]) -> Option<WorkTree> {
        serde_json::from_slice(text).ok().filter(|tree: &WorkTree| tree.check().is_ok())
    }

    pub fn bytes(&self) -> u64 {
        let size = |entry: &TreeEntry| match entry {
            TreeEntry::File { size, .. } => *size,
            TreeEntry::Link { .. } => 0,
        };
        self.0.values().map(size).fold(0, u64::saturating_add)
    }

    /// Whether it is within bounds, and every path is possible in a machine.
    pub fn check(&self) -> Result<()> {
        if self.0.len() > MOST_ENTRIES || self.bytes() > LARGEST_TREE {
            return Err(too_large());
        }
        let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
        let is_path = |path: &String| {
            path.len() <= LONGEST_PATH && !path.contains('\0') && path.split('/').all(is_name)
        };
        match self.0.keys().all(is_path) && self.clashes().is_empty() {
            true => Ok(()),
            false => Err(Error::invalid("a tree has paths that no directory can have")),
        }
    }

    /// Files and links that other entries use as a directory, with those entries.
    pub fn clashes(&self) -> Vec<(String, String)> {
        let above = |path: &str| {
            let mut parents = path.match_indices('/').map(|(at, _)| &path[..at]);
            parents.find(|parent| self.0.contains_key(*parent)).map(str::to_owned)
        };
        self.0.keys().filter_map(|path| Some((above(path)?, path.clone()))).collect()
    }
}

pub(crate) fn too_large() -> Error {
    Error::new(
        413,
        format!(
            "/work has more than {MOST_ENTRIES} files or {} MiB; keep some of them elsewhere",
            LARGEST_TREE >> 20
        ),
    )
}

pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn check_id(id: &str) -> Result<String> {
    match is_id(id) {
        true => Ok(id.to_ascii_lowercase()),
        false => {
            Err(Error::invalid(format!("'{}' is not a tree: ids have 64 hex digits", shown(id))))
        }
    }
}

fn missing(id: &str) -> Error {
    Error::missing(format!("tree '{}' not found", shown(id)))
}

fn failed(doing: &str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::new(500, format!("cannot {doing} of the file store: {error}"))
}

/// Space of an account that content takes while it is stored: several may be at once. Given back,
/// unless the content stays.
struct TakenSpace<'a> {
    v8: &'a V8,
    account: &'a str,
    bytes: u64,
}

impl TakenSpace<'_> {
    fn add(&mut self, bytes: u64) -> Result<()> {
        let mut all = self.v8.shared.tree_bytes.lock();
        let used = all.entry(self.account.to_owned()).or_default();
        if *used + bytes > MOST_BYTES || self.bytes + bytes > LARGEST_TREE {
            return Err(Error::new(507, "the account's file trees use all of their 2 GiB"));
        }
        *used += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for TakenSpace<'_> {
    fn drop(&mut self) {
        if let Some(used) = self.v8.shared.tree_bytes.lock().get_mut(self.account) {
            *used = used.saturating_sub(self.bytes);
        }
    }
}

impl V8 {
    fn trees_of(&self, account: &str) -> PathBuf {
        let hash = blake3::hash(account.as_bytes()).to_hex();
        self.host.data_dir().join("mcp-v8-trees").join(hash.as_str())
    }

    /// The id of a tree that exists, in lower case.
    pub(crate) fn tree_id(&self, account: &str, id: &str) -> Result<String> {
        let id = check_id(id)?;
        // the contents of a file have a name of the same form
        self.tree(account, &id).map(|_| id)
    }

    pub(crate) fn tree(&self, account: &str, id: &str) -> Result<WorkTree> {
        let id = check_id(id)?;
        let mut text = Vec::new();
        let file = File::open(self.trees_of(account).join(&id)).map_err(|_| missing(&id))?;
        let read = file.take(LONGEST_LIST + 1).read_to_end(&mut text);
        // a file that is not a list is the content of one, which is not accessible here
        if read.map_err(failed("read a tree"))? as u64 > LONGEST_LIST {
            return Err(missing(&id));
        }
        if blake3::hash(&text).to_hex().as_str() != id {
            return Err(Error::new(500, format!("tree '{id}' is damaged")));
        }
        WorkTree::read(&text).ok_or_else(|| missing(&id))
    }

    /// Stores a tree whose contents are stored already.
    pub(crate) fn put_tree(&self, account: &str, tree: &WorkTree) -> Result<String> {
        tree.check()?;
        self.put_bytes(account, &tree.text()?)
    }

    pub(crate) fn put_bytes(&self, account: &str, bytes: &[u8]) -> Result<String> {
        self.put_content(account, bytes).map(|(id, _)| id)
    }

    /// Stores content as it is read; returns its id and its length.
    pub(crate) fn put_content(&self, account: &str, mut from: impl Read) -> Result<(String, u64)> {
        let dir = self.trees_of(account);
        fs::create_dir_all(&dir).map_err(failed("make the directory"))?;
        self.tree_bytes(account)?;
        let mut taken = TakenSpace { v8: self, account, bytes: 0 };
        let mut hash = blake3::Hasher::new();
        let mut file = tempfile::NamedTempFile::new_in(&dir).map_err(failed("write a file"))?;
        let mut piece = vec![0; PIECE];
        loop {
            let read = from.read(&mut piece).map_err(failed("read the contents of a file"))?;
            if read == 0 {
                break;
            }
            taken.add(read as u64)?;
            hash.update(&piece[..read]);
            file.write_all(&piece[..read]).map_err(failed("write a file"))?;
        }
        let id = hash.finalize().to_hex().to_string();
        let (path, size) = (dir.join(&id), taken.bytes);
        if !path.exists() {
            file.as_file().sync_data().map_err(failed("write a file"))?;
            file.persist(&path).map_err(|error| failed("name a file")(error.error))?;
            taken.bytes = 0;
        }
        Ok((id, size))
    }

    /// Reads the content of a file in pieces, and fails at the end if it is damaged.
    pub(crate) fn read_content(
        &self,
        account: &str,
        blob: &str,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let id = check_id(blob)?;
        let mut file = File::open(self.trees_of(account).join(&id)).map_err(|_| missing(&id))?;
        let (mut hash, mut piece) = (blake3::Hasher::new(), vec![0; PIECE]);
        loop {
            let read = file.read(&mut piece).map_err(failed("read a file"))?;
            if read == 0 {
                break;
            }
            hash.update(&piece[..read]);
            take(&piece[..read])?;
        }
        match hash.finalize().to_hex().as_str() == id {
            true => Ok(()),
            false => Err(Error::new(500, format!("the content '{id}' of a tree is damaged"))),
        }
    }

    fn tree_bytes(&self, account: &str) -> Result<u64> {
        let mut known = self.shared.tree_bytes.lock();
        if let Some(bytes) = known.get(account) {
            return Ok(*bytes);
        }
        let size = |entry: fs::DirEntry| entry.metadata().map_or(0, |about| about.len());
        let all = fs::read_dir(self.trees_of(account)).into_iter().flatten().flatten();
        let bytes = all.map(size).sum();
        known.insert(account.to_owned(), bytes);
        Ok(bytes)
    }

    /// Removes unreferenced content, if the account's space is more than half used. Nothing is
    /// stored meanwhile.
    pub(crate) fn make_room(&self, account: &str) -> Result<()> {
        if self.tree_bytes(account)? <= MOST_BYTES / 2 {
            return Ok(());
        }
        let _alone = self.shared.trees.write();
        let mut kept = BTreeSet::new();
        for id in self.named_trees(account)? {
            if let Ok(tree) = self.tree(account, &id) {
                kept.extend(tree.0.into_values().map(|entry| entry.content().to_owned()));
            }
            kept.insert(id);
        }
        for entry in fs::read_dir(self.trees_of(account)).into_iter().flatten().flatten() {
            if !kept.contains(&*entry.file_name().to_string_lossy()) {
                let _ = fs::remove_file(entry.path());
            }
        }
        self.shared.tree_bytes.lock().remove(account);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> WorkTree {
        let link = TreeEntry::Link { target: "x".into() };
        WorkTree(paths.iter().map(|path| ((*path).to_owned(), link.clone())).collect())
    }

    #[test]
    fn paths_that_no_directory_has() {
        assert!(tree(&["a", "b/c", "b/d", "b-c"]).check().is_ok());
        let long = "x".repeat(1025);
        for odd in ["", "/a", "a/", "a//b", "..", "a/../b", ".", "a\0b", &long] {
            assert_eq!(tree(&[odd]).check().expect_err("odd").status, 400, "{odd:?}");
        }
        let clash = tree(&["a", "a-b", "a/b/c"]);
        assert_eq!(clash.clashes(), [("a".to_owned(), "a/b/c".to_owned())]);
        assert!(clash.check().is_err());
    }

    #[test]
    fn bounds() {
        let many: Vec<String> = (0..=MOST_ENTRIES).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(tree(&many).check().expect_err("many").status, 413);
        let large = TreeEntry::File { blob: String::new(), size: u64::MAX, executable: false };
        let large =
            WorkTree([("a", large.clone()), ("b", large)].map(|(n, e)| (n.into(), e)).into());
        assert_eq!(large.check().expect_err("large").status, 413);
    }

    #[test]
    fn files_that_look_like_lists() {
        let good = tree(&["a", "b/c"]);
        assert_eq!(WorkTree::read(&good.text().expect("text")), Some(good));
        let odd = tree(&["../a"]).text().expect("text");
        for text in [&odd[..], b"", b"{", b"[1]", b"{\"a\":1}"] {
            assert_eq!(WorkTree::read(text), None);
        }
    }

    #[test]
    fn ids() {
        assert!(check_id(&"A".repeat(64)).is_ok_and(|id| id == "a".repeat(64)));
        for odd in ["", "../../etc/passwd", &"g".repeat(64), &"a".repeat(63)] {
            assert_eq!(check_id(odd).expect_err("odd").status, 400, "{odd}");
        }
    }
}
