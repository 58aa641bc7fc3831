//! What a file with a machine says about it.

use serde::{Deserialize, Serialize};
use stasis_api::{Chunk, Instruction, Limits, Name, Retention, Template, Timestamp};
use stasis_api::{Durability, Parent};
use std::collections::BTreeMap;

/// The generation of this description.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub format: u32,
    /// The program that wrote it.
    pub stasis: String,
    /// The form of its images.
    pub form: String,
    pub machine: Exported,
    /// Where a machine was a branch of another.
    pub parent: Option<Parent>,
    pub template: Template,
    /// Of all files of the root that it stands on.
    pub root_digest: Option<String>,
    pub checkpoints: Vec<Kept>,
    pub instructions: Vec<Instruction>,
    /// Output by instruction.
    pub outputs: Vec<(u64, Vec<Chunk>)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exported {
    pub name: Name,
    pub created_at: Timestamp,
    pub tags: BTreeMap<String, String>,
    pub limits: Limits,
    pub env: BTreeMap<String, String>,
    pub durability: Durability,
    pub retention: Option<Retention>,
    pub start_image: String,
    pub head_image: String,
    pub head_seq: Option<u64>,
    pub next_seq: u64,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub seq: u64,
    pub image: String,
    pub at: Timestamp,
    pub bytes: u64,
    pub label: Option<String>,
}
