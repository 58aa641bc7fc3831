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

/// What is known of a file without reading it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileInfo {
    pub path: String,
    pub kind: FileKind,
    /// In bytes.
    pub size: u64,
    /// Its permissions, in octal.
    pub mode: String,
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    /// Where a symbolic link points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A page of a directory, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    pub path: String,
    pub files: Vec<FileInfo>,
    /// What to give as `cursor` for the next page; null at the end.
    pub next: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListFiles {
    /// A directory; relative ones are below the machine's home.
    #[serde(default)]
    pub path: String,
    /// At most this many; 1000 unless told.
    #[serde(default)]
    pub limit: Option<u64>,
    /// What `next` of the page before said.
    #[serde(default)]
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AtPath {
    /// Relative ones are below the machine's home.
    pub path: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WatchFile {
    /// Relative ones are below the machine's home.
    pub path: String,
    /// Also all directories below it, as they come and go.
    #[serde(default)]
    pub recursive: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PutFile {
    /// Relative ones are below the machine's home. Directories on the way are made.
    pub path: String,
    /// Its permissions, in octal; 644 unless told.
    #[serde(default)]
    pub mode: Option<String>,
    /// When the answer is sent; as the machine says unless told.
    #[serde(default)]
    pub durability: Option<crate::Durability>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RemoveFile {
    /// Relative ones are below the machine's home.
    pub path: String,
    /// Whether a directory goes with all that is in it.
    #[serde(default)]
    pub recursive: bool,
}

/// Something that happened to a file that is watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEvent {
    pub kind: FileChange,
    /// The name in the watched directory, or the path below it; of the watched thing itself, if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// It is watched from now on; also after the machine came back into memory.
    Watching,
    Created,
    /// Its contents changed.
    Changed,
    /// A writer closed it.
    Written,
    Removed,
    /// More happened than could be told: look again.
    Overflowed,
    /// A directory that came is not watched, because there are too many.
    Unwatched,
    /// The machine left memory; nothing changes until it is back.
    Swapped,
    /// What was watched is gone. The last event.
    Gone,
}
