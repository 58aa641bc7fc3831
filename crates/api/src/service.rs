//! Requests and responses of the service's routes, beside machines and instructions themselves.

use crate::machine::nullable;
use crate::range::{OutOfRange, TIMEOUT, within};
use crate::{
    Checkpoints, Chunk, Durability, Exec, Instruction, MachineInfo, Name, Network, State,
    TemplateInfo, Timeout,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub status: String,
    pub version: String,
    /// Whether machines can be created.
    pub templates_ready: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    pub account: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

/// A new machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Made)]
pub struct CreatedMachine {
    pub machine_name: Name,
    pub machine: MachineInfo,
}

/// A filter for machines. A machine must match every condition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Filter)]
pub struct MachineFilter {
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub state: Option<State>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created_after: Option<Timestamp>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created_before: Option<Timestamp>,
    /// Bounds on the memory a machine may use.
    #[serde(default, deserialize_with = "crate::whole::optional")]
    pub memory_mb_min: Option<u64>,
    #[serde(default, deserialize_with = "crate::whole::optional")]
    pub memory_mb_max: Option<u64>,
    /// The most machines to return; 1000 by default.
    #[serde(default, deserialize_with = "crate::whole::optional")]
    pub limit: Option<u64>,
    /// The `next` of the previous page.
    #[serde(default)]
    #[schema(pattern = "^[0-9]{1,18}$")]
    pub cursor: Option<String>,
}

/// A page of machines, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MachineList {
    pub machines: Vec<MachineInfo>,
    /// The `cursor` for the next page; null on the last page.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Removed {
    pub removed: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Interrupted {
    /// Whether an instruction was running.
    pub interrupted: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cancelled {
    /// Whether the instruction was still waiting.
    pub cancelled: bool,
}

/// A line of input for code that asked for one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InputLine {
    /// The line, without its newline; `null` means end of input.
    #[schema(max_length = 4096)]
    #[serde(default)]
    pub line: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InputTaken {
    /// Whether the instruction was waiting for a line.
    pub taken: bool,
}

/// Code as clients send it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Code {
    pub code: String,
    /// Absent: the service's default. Null: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nullable")]
    #[schema(value_type = Option<f64>)]
    pub timeout_seconds: Option<Option<f64>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    #[serde(deserialize_with = "crate::object::required")]
    pub instruction: Code,
    /// First interrupt the running instruction and cancel those that wait.
    #[serde(default)]
    pub interrupt: bool,
    /// Overrides the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Overrides the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
    /// A request with the same key returns the same instruction instead of a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub idempotency_key: Option<String>,
    /// Whether the client answers the code's calls of `input()`. Without it they fail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub input: bool,
}

impl ExecRequest {
    /// Converts to the form that machines accept, or describes what is invalid.
    pub fn exec(self) -> Result<Exec, OutOfRange> {
        Ok(Exec {
            code: self.instruction.code,
            timeout: timeout(self.instruction.timeout_seconds)?,
            durability: self.durability,
            checkpoints: self.checkpoints,
            idempotency_key: self.idempotency_key,
            interrupt: self.interrupt,
            input: self.input,
        })
    }
}

/// Converts a time limit of a client, or describes what is invalid.
pub fn timeout(given: Option<Option<f64>>) -> Result<Timeout, OutOfRange> {
    within("timeout_seconds", &given, TIMEOUT)?;
    Ok(match given {
        None => Timeout::Default,
        Some(None) => Timeout::Never,
        Some(Some(seconds)) => Timeout::Seconds(seconds),
    })
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    pub instruction_seq: u64,
    pub machine: Name,
    /// Whether another instruction was interrupted for it.
    pub interrupted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct InstructionRange {
    /// The first number to return.
    #[serde(default)]
    pub from: u64,
    /// The most to return.
    #[serde(default)]
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstructionList {
    pub instructions: Vec<Instruction>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outputs {
    pub chunks: Vec<Chunk>,
    /// Whether these are the last.
    pub over: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TemplateList {
    pub templates: Vec<TemplateInfo>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BuildTemplate {
    /// The recipe as TOML.
    pub recipe: String,
}

/// A line of a build's progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BuildLine {
    Step { step: String, done: u64, total: Option<u64> },
    Say { say: String },
    Template { template: Box<TemplateInfo> },
    Error { error: crate::ErrorBody },
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    pub id: String,
    pub name: Option<String>,
    pub account: String,
    pub scopes: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    #[serde(default)]
    #[schema(max_length = 64)]
    pub name: Option<String>,
    /// The caller's account by default.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub account: Option<String>,
    /// `machines` by default; also `templates`, `tokens`, `host`, `secrets`.
    #[serde(default)]
    #[schema(schema_with = scopes)]
    pub scopes: Option<Vec<String>>,
}

/// A list of scopes, or null.
fn scopes() -> Schema {
    let scope = ObjectBuilder::new().schema_type(Type::String).enum_values(Some([
        "machines",
        "templates",
        "tokens",
        "host",
        "secrets",
        "approve",
    ]));
    ArrayBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Array, Type::Null]))
        .description(Some(
            "`machines` by default; also `templates`, `tokens`, `host`, `secrets`, `approve`.",
        ))
        .items(scope)
        .into()
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// `id.secret`: shown only once.
    pub token: String,
    #[serde(flatten)]
    pub about: Token,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    pub tokens: Vec<Token>,
}

/// A variable of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Var {
    pub name: String,
    pub kind: String,
    /// Shape or length, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    pub repr: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VarList {
    pub vars: Vec<Var>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Complete {
    pub code: String,
    /// The cursor's position in characters; the end, if absent.
    #[serde(default, deserialize_with = "crate::whole::optional")]
    pub cursor: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Completions {
    /// The position in characters where the names begin.
    pub start: u64,
    pub names: Vec<String>,
}

/// How far to undo or redo.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepRequest {
    /// The number of instructions; one by default.
    #[serde(default, deserialize_with = "crate::whole::optional")]
    pub n: Option<u32>,
    /// Include instructions that share a state with these. Without it, such a step is refused.
    #[serde(default)]
    pub grouped: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// Return to the state after this instruction; null means the initial state.
    #[schema(required)]
    #[serde(deserialize_with = "crate::whole::optional")]
    pub seq: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchRequest {
    /// Start from the state after this instruction; by default, the current state.
    #[serde(default, deserialize_with = "crate::whole::optional")]
    pub seq: Option<u32>,
    /// The number of branches; by default as many as there are names, or one.
    #[serde(default, deserialize_with = "crate::whole::optional")]
    pub count: Option<u32>,
    #[serde(default)]
    pub names: Vec<Name>,
    /// Added to the machine's tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Reseed the program's own random generators.
    #[serde(default)]
    pub reseed: bool,
    /// Network access of the branches; the machine's, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The code and settings of each branch, in order. Branches beyond the end run nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "crate::object::list")]
    pub vary: Vec<crate::Vary>,
    /// Time limit of each branch. Absent: the service's default. Null: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nullable")]
    #[schema(value_type = Option<f64>)]
    pub timeout_seconds: Option<Option<f64>>,
    /// Stream a line of JSON as each branch ends, instead of one answer for all.
    #[serde(default)]
    pub stream: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Branches {
    pub machines: Vec<MachineInfo>,
    /// The results of `vary`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<crate::BranchEnd>,
}

/// The size of the image store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreStats {
    pub images: u64,
    pub packs: u64,
    pub cold_packs: u64,
    pub unreadable_packs: u64,
    pub layers: u64,
    /// Disk space in total, and the part of it that extracted files take.
    pub bytes: u64,
    pub layer_bytes: u64,
    pub live_pages: u64,
    pub dead_pages: u64,
    pub dropped_pages: u64,
    /// Bytes saved by compression, and by images that share pages.
    pub compressed_bytes: u64,
    pub shared_bytes: u64,
}

/// The result of a garbage collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreFreed {
    pub images: u64,
    pub packs: u64,
    pub layers: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckStore {
    /// Repair damaged pages of which another copy exists.
    #[serde(default)]
    pub repair: bool,
}

/// The result of a check of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreChecked {
    /// Whether everything was checked.
    pub complete: bool,
    pub findings: Vec<StoreFinding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreFinding {
    pub code: String,
    pub what: String,
    /// Machines and templates that need the damaged data.
    pub affects: Vec<String>,
    pub repaired: bool,
}
