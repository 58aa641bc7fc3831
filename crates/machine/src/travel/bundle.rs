//! The description of a machine in an export file.

use serde::{Deserialize, Serialize};
use stasis_api::{Checkpoints, Durability, Parent};
use stasis_api::{Chunk, Instruction, Limits, Name, Retention, TemplateInfo, Timestamp};
use stasis_engine::ImageId;
use stasis_template::Root;
use std::collections::BTreeMap;

/// The version of this description.
pub const FORMAT: u32 = 2;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExportManifest {
    pub format: u32,
    /// The program that wrote it.
    pub stasis: String,
    /// The format of its images.
    pub form: String,
    pub machine: Exported,
    /// The source of a branch.
    pub parent: Option<Parent>,
    pub template: TemplateInfo,
    /// The agent's layer of its root, if it matches its name.
    pub agent: Option<Vec<(String, String)>>,
    /// The root file system it uses.
    pub root: Option<Root>,
    /// Whether the root follows, as the last part of the file.
    pub carries_root: bool,
    pub checkpoints: Vec<ExportedCheckpoint>,
    pub instructions: Vec<Instruction>,
    /// Output by instruction.
    pub outputs: Vec<(u64, Vec<Chunk>)>,
    /// Artifacts; their contents are among the file's parts.
    pub artifacts: Vec<stasis_api::KeptArtifact>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exported {
    pub name: Name,
    pub created_at: Timestamp,
    pub tags: BTreeMap<String, String>,
    pub limits: Limits,
    pub env: BTreeMap<String, String>,
    pub durability: Durability,
    #[serde(default)]
    pub checkpoints: Checkpoints,
    pub retention: Option<Retention>,
    pub start_image: ImageId,
    pub head_image: ImageId,
    pub head_seq: Option<u64>,
    pub next_seq: u64,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExportedCheckpoint {
    pub seq: u64,
    pub image: ImageId,
    pub at: Timestamp,
    pub bytes: u64,
    pub label: Option<String>,
}
