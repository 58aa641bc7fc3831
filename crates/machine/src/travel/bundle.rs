//! What a file with a machine says about it.

use serde::{Deserialize, Serialize};
use stasis_api::{Chunk, Instruction, Limits, Name, Retention, Template, Timestamp};
use stasis_api::{Durability, Parent};
use stasis_template::Root;
use std::collections::BTreeMap;

/// The generation of this description.
pub const FORMAT: u32 = 2;

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
    /// The agent's layer of its root, where it is what it was named by.
    pub agent: Option<Vec<(String, String)>>,
    /// The root file system that it stands on.
    pub root: Option<Root>,
    /// Whether that follows, as the last part of the file.
    pub carries_root: bool,
    pub checkpoints: Vec<Kept>,
    pub instructions: Vec<Instruction>,
    /// Output by instruction.
    pub outputs: Vec<(u64, Vec<Chunk>)>,
    /// What was too large for results; contents are among the file's parts.
    pub artifacts: Vec<stasis_api::Kept>,
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
