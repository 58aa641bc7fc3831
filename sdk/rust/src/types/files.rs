//! Types of files.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::FileKind;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileChange {
    Watching,
    Created,
    Changed,
    Written,
    Removed,
    Overflowed,
    Unwatched,
    Swapped,
    Gone,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

/// Something that happened to a file that is watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileEvent {
    pub kind: FileChange,
    /// The name in the watched directory, or the path below it; of the watched thing itself, if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileInfo {
    pub kind: FileKind,
    /// Its permissions, in octal.
    pub mode: String,
    pub modified_at: Timestamp,
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// Where a symbolic link points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A page of a directory, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileList {
    pub files: Vec<FileInfo>,
    /// What to give as `cursor` for the next page; null at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    pub path: String,
}
