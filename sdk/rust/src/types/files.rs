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

/// A change of a watched file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileEvent {
    pub kind: FileChange,
    /// The path below the watched directory; absent if the watched file or directory itself
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A file's metadata.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileInfo {
    pub kind: FileKind,
    /// Permissions, in octal.
    pub mode: String,
    pub modified_at: Timestamp,
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Where a symbolic link points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A page of a directory, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileList {
    pub files: Vec<FileInfo>,
    /// The `cursor` for the next page; null on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    pub path: String,
}
