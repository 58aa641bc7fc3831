//! Types of store.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckStore {
    /// Repair damaged pages of which another copy exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<bool>,
}

/// The result of a check of the store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreChecked {
    /// Whether everything was checked.
    pub complete: bool,
    pub findings: Vec<StoreFinding>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreFinding {
    /// Machines and templates that need the damaged data.
    pub affects: Vec<String>,
    pub code: String,
    pub repaired: bool,
    pub what: String,
}

/// The result of a garbage collection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreFreed {
    pub bytes: u64,
    pub images: u64,
    pub layers: u64,
    pub packs: u64,
}

/// The size of the image store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreStats {
    /// Disk space in total, and the part of it that extracted files take.
    pub bytes: u64,
    pub cold_packs: u64,
    /// Bytes saved by compression, and by images that share pages.
    pub compressed_bytes: u64,
    pub dead_pages: u64,
    pub dropped_pages: u64,
    pub images: u64,
    pub layer_bytes: u64,
    pub layers: u64,
    pub live_pages: u64,
    pub packs: u64,
    pub shared_bytes: u64,
    pub unreadable_packs: u64,
}
