//! Types of instructions.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::{Chunk, Durability, Instruction, Name};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    pub instruction_seq: u64,
    /// Whether something was interrupted for it.
    pub interrupted: bool,
    pub machine: Name,
}

/// Something too large for a result, kept as long as its machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Whether it was cut all the same, at the largest size that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<bool>,
    /// Names its contents; read it at `/v1/machine/{name}/artifact/{id}`.
    pub id: String,
    /// Its MIME type.
    pub kind: String,
    /// Of what: `output` (both streams as they came), `value`, or `display`.
    pub name: String,
    /// In bytes.
    pub size: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArtifactList {
    pub artifacts: Vec<Kept>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cancelled {
    /// Whether it still waited.
    pub cancelled: bool,
}

/// Code as clients send it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Code {
    pub code: String,
    /// Absent means the service's default, null no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Overrides the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// The same key again gives the same instruction instead of a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    pub instruction: Code,
    /// Interrupt what runs, and cancel what waits, first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecResult {
    /// What was too large for the result, kept whole; absent if nothing was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Picture>,
    /// The traceback; absent after success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub runtime_ms: u64,
    /// repr of the last expression, null if there is none; absent after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InstructionList {
    pub instructions: Vec<Instruction>,
}

/// An artifact and the instruction it is of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Whether it was cut all the same, at the largest size that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<bool>,
    /// Names its contents; read it at `/v1/machine/{name}/artifact/{id}`.
    pub id: String,
    /// Its MIME type.
    pub kind: String,
    /// Of what: `output` (both streams as they came), `value`, or `display`.
    pub name: String,
    /// In bytes.
    pub size: u64,
    pub seq: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outputs {
    pub chunks: Vec<Chunk>,
    /// Whether no more will come after these.
    pub over: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Base64.
    pub png: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResultBody {
    pub instruction_id: u64,
    pub instruction_seq: u64,
    pub result: ExecResult,
}
