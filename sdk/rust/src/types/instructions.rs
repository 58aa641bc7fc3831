//! Types of instructions.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::{Address, Durability, Name};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

/// One line of output, without its newline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub data: String,
    /// From 0 for each instruction, over both streams.
    pub seq: u64,
    pub stream: Stream,
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
pub struct Failure {
    pub message: String,
    /// The exception's class, or a code of ours such as `machine.out_of_memory`.
    pub name: String,
    pub traceback: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instruction {
    pub code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// How many lines of output it has.
    pub outputs: u64,
    pub queued_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// Whether it was undone by a later rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<bool>,
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub status: Status,
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

/// How an instruction ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was left out, kept whole beside the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// What was left out because it was too large, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// The last expression's value in every form it offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    pub runtime_ms: f64,
    /// What was shown on the way: figures, `display(...)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<Shown>,
    /// repr of the last expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
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

/// What holds of the machine's state after an instruction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The instruction's address.
    pub address: Address,
    /// The newest checkpoint on disk when this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<Address>,
    /// Whether the state is that after this instruction and all before it.
    pub intact: bool,
    /// What was lost, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// What else a program should know: it was woken, reseeded, its sockets were reset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResultBody {
    pub instruction_id: u64,
    pub instruction_seq: u64,
    pub result: ExecResult,
}

/// Something shown while an instruction ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// How many lines of output came before it.
    pub after: u64,
    pub data: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    Queued,
    Running,
    Done,
    Interrupted,
    Cancelled,
    Lost,
    /// A word of a newer service.
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stream {
    Stdout,
    Stderr,
    /// A word of a newer service.
    #[serde(other)]
    Unknown,
}
