//! Files of machines, as clients see them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    /// A pipe, a socket, a device, or the root of another file system.
    Other,
}

/// A file's metadata.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileInfo {
    pub path: String,
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permissions, in octal.
    pub mode: String,
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    /// Where a symbolic link points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A page of a directory, sorted by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    pub path: String,
    pub files: Vec<FileInfo>,
    /// The `cursor` for the next page; null on the last page.
    pub next: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ListFiles {
    /// A directory; relative paths start at the machine's home.
    #[serde(default)]
    pub path: String,
    /// The most entries to return; 1000 by default.
    #[serde(default)]
    pub limit: Option<u64>,
    /// The `next` of the previous page.
    #[serde(default)]
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AtPath {
    /// Relative paths start at the machine's home.
    pub path: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct WatchFile {
    /// Relative paths start at the machine's home.
    pub path: String,
    /// Also watch all directories below it, including new ones.
    #[serde(default)]
    pub recursive: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PutFile {
    /// Relative paths start at the machine's home. Missing parent directories are created.
    pub path: String,
    /// Permissions, in octal; 644 by default.
    #[serde(default)]
    #[param(pattern = "^[0-7]{1,4}$")]
    pub mode: Option<String>,
    /// Create a symbolic link to this path instead of a file; the body is ignored.
    #[serde(default)]
    #[param(pattern = "^[^\\x00]{1,4095}$")]
    pub target: Option<String>,
    /// When the answer is sent; the machine's durability by default.
    #[serde(default)]
    pub durability: Option<crate::Durability>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct RemoveFile {
    /// Relative paths start at the machine's home.
    pub path: String,
    /// Remove a directory with everything in it.
    #[serde(default)]
    pub recursive: bool,
}

/// A change of a watched file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEvent {
    pub kind: FileChange,
    /// The path below the watched directory; absent if the watched file or directory itself
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// Watching has begun, or continues after the machine came back into memory.
    Watching,
    Created,
    /// The contents changed.
    Changed,
    /// A program that wrote to the file closed it.
    Written,
    Removed,
    /// Some changes were not reported: list the directory again.
    Overflowed,
    /// A new directory is not watched, because too many already are.
    Unwatched,
    /// The machine left memory; nothing changes until it returns.
    Swapped,
    /// The watched file or directory was removed. This is the last event.
    Gone,
}
