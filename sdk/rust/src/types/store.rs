//! Types of store.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckStore {
    /// Put back what exists elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mend: Option<bool>,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreChecked {
    /// Whether all was looked at.
    pub complete: bool,
    pub findings: Vec<StoreFinding>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreFinding {
    /// Machines and templates that need what is damaged.
    pub affects: Vec<String>,
    pub code: String,
    pub mended: bool,
    pub what: String,
}

/// What a collection freed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreFreed {
    pub bytes: u64,
    pub images: u64,
    pub layers: u64,
    pub packs: u64,
}

/// What the store takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreStats {
    /// Space on the disk: all of it, and what laid out files take of it.
    pub bytes: u64,
    pub cold_packs: u64,
    /// What compression saves, and what images save by sharing pages.
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
