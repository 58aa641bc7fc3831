//! Types of service.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::{Chunk, Instruction, Machine, Name};
use serde::{Deserialize, Serialize};

/// A line of a branch call's stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BranchLine {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Machine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Why it could not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Which branch, in the order they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<Instruction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// Lines of output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<Chunk>,
}

/// The body of every error.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Stable, for programs: `machine.not_found`.
    pub code: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The request this is about, as logs know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What happened, on what.
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    pub status: String,
    /// Whether machines can be made.
    pub templates_ready: bool,
    pub version: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Whoami {
    pub account: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}
