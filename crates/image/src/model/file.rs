//! The files a tree changed: its overlay's upper directory as data.
//!
//! Names are bytes, as the kernel has them: only `/` and NUL cannot be in one.

use bstr::BString;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTree {
    /// Sorted by path; a directory comes before its entries.
    pub entries: Vec<FileEntry>,
    /// Files that were open for writing, each once, with where their inode numbers come from.
    pub held: Vec<HeldFile>,
}

/// A file whose inode number a program may remember.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldFile {
    /// Of a regular file among the entries.
    pub path: BString,
    /// The inode that has the number. A host that does not know it gives the file another.
    pub origin: crate::OriginId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative to the root, with no `.` or `..` component.
    pub path: BString,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime_s: i64,
    pub mtime_ns: i64,
    pub xattrs: Vec<(BString, Vec<u8>)>,
    pub kind: FileEntryKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileEntryKind {
    Directory,
    /// Contents as page runs (`page` counts from 0), the last page padded with zeros.
    Regular {
        size: u64,
        runs: Vec<super::PageRun>,
    },
    Symlink {
        target: BString,
    },
    Fifo,
    Socket,
    /// Overlay's mark for a removed file of a lower layer.
    Whiteout,
    /// Another name of the file at this path.
    Hardlink {
        target: BString,
    },
}
