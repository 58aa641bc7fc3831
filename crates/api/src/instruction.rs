//! Instructions, their output and their results.

use crate::{Address, Checkpoints, Durability};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A MIME bundle: content by type; binary types are in base64.
pub type Data = BTreeMap<String, serde_json::Value>;

/// How long an instruction may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Timeout {
    /// The service's default.
    #[default]
    Default,
    Seconds(f64),
    /// No limit.
    Never,
}

/// Code to run, with options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exec {
    pub code: String,
    #[serde(default)]
    pub timeout: Timeout,
    /// Overrides the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Overrides the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
    /// A request with the same key returns the same instruction instead of a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// First interrupt the running instruction and cancel those that wait.
    #[serde(default)]
    pub interrupt: bool,
    /// Whether the client answers the code's calls of `input()`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub input: bool,
}

impl Exec {
    /// Whether a text can be an idempotency key.
    pub fn is_key(text: &str) -> bool {
        (1..=255).contains(&text.chars().count())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Queued,
    Running,
    /// It completed without an error.
    Done,
    /// It raised an exception; its effects up to then are kept.
    Failed,
    /// It was interrupted or timed out; the state is kept.
    Interrupted,
    /// It was removed from the queue and never ran.
    Cancelled,
    /// The machine went back to a checkpoint: the effects are lost.
    Lost,
}

impl Status {
    pub fn is_over(self) -> bool {
        !matches!(self, Status::Queued | Status::Running)
    }

    /// Whether the machine's state includes its effects: it ended by itself or was interrupted.
    pub fn has_run(self) -> bool {
        matches!(self, Status::Done | Status::Failed | Status::Interrupted)
    }

    /// The status of code that ran to its end.
    pub fn of(outcome: &Outcome) -> Status {
        match outcome.error {
            Some(_) => Status::Failed,
            None => Status::Done,
        }
    }

    /// The name of the status on every surface.
    pub fn word(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::Running => "running",
            Status::Done => "done",
            Status::Failed => "failed",
            Status::Interrupted => "interrupted",
            Status::Cancelled => "cancelled",
            Status::Lost => "lost",
        }
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
    /// Counted from 0 for each instruction, over both streams.
    pub seq: u64,
    /// The prompt of code that waits for a line of input; otherwise absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prompt: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// The exception's class, or a code such as `machine.out_of_memory`.
    pub name: String,
    pub message: String,
    pub traceback: String,
}

/// Content displayed while an instruction ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Shown {
    /// The number of output lines before it.
    pub after: u64,
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub data: Data,
}

/// How an instruction ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// The repr of the last expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The value of the last expression in every format it offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>)]
    pub data: Option<Data>,
    /// Content displayed while the code ran: figures, `display(...)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<Shown>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    pub runtime_ms: f64,
    /// Variables that were bound, unbound or changed in place, as far as the agent can tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touched: Vec<String>,
    /// Descriptions of values omitted because they were too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// The omitted values, kept whole beside the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
}

/// A value too large for a result. It is kept as long as its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// Identifies the contents; read them at `/v1/machine/{name}/artifact/{id}`.
    pub id: String,
    /// The source: `output` (both streams, in order), `value`, or `display`.
    pub name: String,
    /// MIME type.
    pub kind: String,
    /// Size in bytes.
    pub size: u64,
    /// Whether it was truncated at the largest size that is kept.
    #[serde(default)]
    pub cut: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactList {
    pub artifacts: Vec<KeptArtifact>,
}

/// An artifact and its instruction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Kept)]
pub struct KeptArtifact {
    pub seq: u64,
    #[serde(flatten)]
    pub artifact: Artifact,
}

/// The machine's state after an instruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// The instruction's address.
    pub address: Address,
    /// Whether the state includes this instruction and all before it.
    pub intact: bool,
    /// The newest checkpoint on disk when this was written.
    pub durable: Option<Address>,
    /// Which effects were lost, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Notes for programs: the machine was woken, reseeded, or its sockets were reset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Modules that the host fetched for the instruction's imports, at most 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ImportedModule>,
}

/// A module that the host fetched for an import. Its bytes are pinned by their hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedModule {
    /// Its exact name, such as `npm:left-pad@1.3.0`, or its address.
    pub name: String,
    /// The hash of the fetched data: `sha512-` or `sha256-`, and base64.
    pub integrity: String,
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
    /// The number of output lines.
    pub outputs: u64,
    /// Whether a later rollback undid it.
    #[serde(default)]
    pub rolled_back: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
}
