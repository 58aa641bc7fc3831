//! What the service's routes take and give around machines and instructions.

use crate::machine::nullable;
use crate::range::{OutOfRange, TIMEOUT, within};
use crate::{Chunk, Durability, Exec, Instruction, Machine, Name, State, Template, Timeout};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub status: String,
    pub version: String,
    /// Whether machines can be made.
    pub templates_ready: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    pub account: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

/// A machine that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Made {
    pub machine_name: Name,
    pub machine: Machine,
}

/// Which machines to list. A machine has to meet all that is said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Filter {
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
    #[serde(default)]
    pub memory_mb_min: Option<u64>,
    #[serde(default)]
    pub memory_mb_max: Option<u64>,
    /// At most this many; 1000 unless told.
    #[serde(default)]
    pub limit: Option<u64>,
    /// What `next` of the page before said.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// A page of machines, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MachineList {
    pub machines: Vec<Machine>,
    /// What to give as `cursor` for the next page; null at the end.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Removed {
    pub removed: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Interrupted {
    /// Whether something ran.
    pub interrupted: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cancelled {
    /// Whether it still waited.
    pub cancelled: bool,
}

/// Code as clients send it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Code {
    pub code: String,
    /// Absent means the service's default, null no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nullable")]
    #[schema(value_type = Option<f64>)]
    pub timeout_seconds: Option<Option<f64>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecRequest {
    pub instruction: Code,
    /// Interrupt what runs, and cancel what waits, first.
    #[serde(default)]
    pub interrupt: bool,
    /// Overrides the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// The same key again gives the same instruction instead of a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

impl ExecRequest {
    /// As machines take it; otherwise what is wrong with it.
    pub fn exec(self) -> Result<Exec, OutOfRange> {
        Ok(Exec {
            code: self.instruction.code,
            timeout: timeout(self.instruction.timeout_seconds)?,
            durability: self.durability,
            idempotency_key: self.idempotency_key,
            interrupt: self.interrupt,
        })
    }
}

/// How long something may run, as clients say it; otherwise what is wrong with it.
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
    /// Whether something was interrupted for it.
    pub interrupted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Range {
    /// The first number.
    #[serde(default)]
    pub from: u64,
    /// At most this many.
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
    /// Whether no more will come after these.
    pub over: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TemplateList {
    pub templates: Vec<Template>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BuildTemplate {
    /// As TOML.
    pub recipe: String,
}

/// A line of what a build says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BuildLine {
    Step { step: String, done: u64, total: Option<u64> },
    Say { say: String },
    Template { template: Box<Template> },
    Error { error: crate::ErrorBody },
}

/// A token as lists show it: never its secret.
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
    pub name: Option<String>,
    /// The caller's own unless told.
    #[serde(default)]
    pub account: Option<String>,
    /// `machines` unless told; also `templates`, `tokens`, `host`.
    #[serde(default)]
    pub scopes: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// `id.secret`: shown this once.
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
    /// Shape or length, where there is one.
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
pub struct Complete {
    pub code: String,
    /// Counted in characters; the end, if absent.
    #[serde(default)]
    pub cursor: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Completions {
    /// Where the names begin, counted in characters.
    pub start: u64,
    pub names: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The state after this instruction; null for the beginning.
    #[schema(required)]
    #[serde(deserialize_with = "Option::deserialize")]
    pub seq: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchRequest {
    /// The state after this instruction; the state now, if absent.
    #[serde(default)]
    pub seq: Option<u32>,
    /// How many; as many as there are names, or one, if absent.
    #[serde(default)]
    pub count: Option<u32>,
    #[serde(default)]
    pub names: Vec<Name>,
    /// Added to those of the machine.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Seed the program's own random generators anew.
    #[serde(default)]
    pub reseed: bool,
    /// What each branch runs at once, in turn; those beyond the end run nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vary: Vec<crate::Vary>,
    /// How long each may run; absent means the service's default, null no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nullable")]
    #[schema(value_type = Option<f64>)]
    pub timeout_seconds: Option<Option<f64>>,
    /// Answer with a line of JSON for each end as it comes, instead of all together.
    #[serde(default)]
    pub stream: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Branches {
    pub machines: Vec<Machine>,
    /// How the parts of `vary` ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<crate::BranchEnd>,
}

/// What the store takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreStats {
    pub images: u64,
    pub packs: u64,
    pub cold_packs: u64,
    pub unreadable_packs: u64,
    pub layers: u64,
    /// Space on the disk: all of it, and what laid out files take of it.
    pub bytes: u64,
    pub layer_bytes: u64,
    pub live_pages: u64,
    pub dead_pages: u64,
    pub dropped_pages: u64,
    /// What compression saves, and what images save by sharing pages.
    pub compressed_bytes: u64,
    pub shared_bytes: u64,
}

/// What a collection freed.
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
    /// Put back what exists elsewhere.
    #[serde(default)]
    pub mend: bool,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreChecked {
    /// Whether all was looked at.
    pub complete: bool,
    pub findings: Vec<StoreFinding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreFinding {
    pub code: String,
    pub what: String,
    /// Machines and templates that need what is damaged.
    pub affects: Vec<String>,
    pub mended: bool,
}
