//! Instructions, their output and their results.

use crate::{Address, Durability};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A MIME bundle: kind to content; binary kinds in base64.
pub type Data = BTreeMap<String, serde_json::Value>;

/// How long an instruction may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Timeout {
    /// As long as the service says.
    #[default]
    Default,
    Seconds(f64),
    /// As long as it takes.
    Never,
}

/// What to run, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exec {
    pub code: String,
    #[serde(default)]
    pub timeout: Timeout,
    /// Overrides the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// The same key again gives the same instruction instead of a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Interrupt what runs, and cancel what waits, first.
    #[serde(default)]
    pub interrupt: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Queued,
    Running,
    /// It ended, with a value or an error of its own.
    Done,
    /// It was interrupted or ran into its timeout; the state is kept.
    Interrupted,
    /// It was taken from the queue and never ran.
    Cancelled,
    /// The machine had to go back to a checkpoint: what it did is gone.
    Lost,
}

impl Status {
    pub fn is_over(self) -> bool {
        !matches!(self, Status::Queued | Status::Running)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// One line of output, without its newline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Chunk {
    pub stream: Stream,
    pub data: String,
    /// From 0 for each instruction, over both streams.
    pub seq: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// The exception's class, or a code of ours such as `machine.out_of_memory`.
    pub name: String,
    pub message: String,
    pub traceback: String,
}

/// Something shown while an instruction ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Shown {
    /// How many lines of output came before it.
    pub after: u64,
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub data: Data,
}

/// How an instruction ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// repr of the last expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The last expression's value in every form it offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>)]
    pub data: Option<Data>,
    /// What was shown on the way: figures, `display(...)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<Shown>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    pub runtime_ms: f64,
    /// Variables that were bound, unbound or changed in place, as far as was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touched: Vec<String>,
    /// What was left out because it was too large, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// What was left out, kept whole beside the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
}

/// Something too large for a result, kept as long as its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// Names its contents; read it at `/v1/machine/{name}/artifact/{id}`.
    pub id: String,
    /// Of what: `output` (both streams as they came), `value`, or `display`.
    pub name: String,
    /// Its MIME type.
    pub kind: String,
    /// In bytes.
    pub size: u64,
    /// Whether it was cut all the same, at the largest size that is kept.
    #[serde(default)]
    pub cut: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactList {
    pub artifacts: Vec<Kept>,
}

/// An artifact and the instruction it is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Kept {
    pub seq: u64,
    #[serde(flatten)]
    pub artifact: Artifact,
}

/// What holds of the machine's state after an instruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// The instruction's address.
    pub address: Address,
    /// Whether the state is that after this instruction and all before it.
    pub intact: bool,
    /// The newest checkpoint on disk when this was written.
    pub durable: Option<Address>,
    /// What was lost, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// What else a program should know: it was woken, reseeded, its sockets were reset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Instruction {
    pub seq: u64,
    pub code: String,
    pub status: Status,
    #[schema(value_type = String, format = DateTime)]
    pub queued_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
    /// How many lines of output it has.
    pub outputs: u64,
    /// Whether it was undone by a later rollback.
    #[serde(default)]
    pub rolled_back: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
}
