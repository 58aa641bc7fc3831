//! Types of instructions.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::{Checkpoints, Chunk, Durability, Instruction, Name};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    pub instruction_seq: u64,
    /// Whether another instruction was interrupted for it.
    pub interrupted: bool,
    pub machine: Name,
}

/// A value too large for a result. It is kept as long as its machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Whether it was truncated at the largest size that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<bool>,
    /// Identifies the contents; read them at `/v1/machine/{name}/artifact/{id}`.
    pub id: String,
    /// MIME type.
    pub kind: String,
    /// The source: `output` (both streams, in order), `value`, or `display`.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArtifactList {
    pub artifacts: Vec<Kept>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cancelled {
    /// Whether the instruction was still waiting.
    pub cancelled: bool,
}

/// Code as clients send it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Code {
    pub code: String,
    /// Absent: the service's default. Null: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Overrides the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
    /// Overrides the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// A request with the same key returns the same instruction instead of a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Whether the client answers the code's calls of `input()`. Without it they fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<bool>,
    pub instruction: Code,
    /// First interrupt the running instruction and cancel those that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecResult {
    /// Values too large for the result, kept whole; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Picture>,
    /// The traceback; absent after success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub runtime_ms: u64,
    /// The repr of the last expression, null if it has no value; absent after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A line of input for code that asked for one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InputLine {
    /// The line, without its newline; `null` means end of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InputTaken {
    /// Whether the instruction was waiting for a line.
    pub taken: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InstructionList {
    pub instructions: Vec<Instruction>,
}

/// An artifact and its instruction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Whether it was truncated at the largest size that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<bool>,
    /// Identifies the contents; read them at `/v1/machine/{name}/artifact/{id}`.
    pub id: String,
    /// MIME type.
    pub kind: String,
    /// The source: `output` (both streams, in order), `value`, or `display`.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    pub seq: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outputs {
    pub chunks: Vec<Chunk>,
    /// Whether these are the last.
    pub over: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// The image in base64.
    pub png: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResultBody {
    pub instruction_id: u64,
    pub instruction_seq: u64,
    pub result: ExecResult,
}
