//! A machine's history and its branches: checkpoints and their changes, lineage, comparing,
//! adopting, promoting, exploring.

use crate::{Address, FileKind, Limits, MachineInfo, Name};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// The checkpoints to keep: the newest, those that branches started from, and every checkpoint that
/// one of the rules selects. Without `last` and `seconds` all are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Keep this many of the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::whole::optional")]
    pub last: Option<u64>,
    /// Keep those younger than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::whole::optional")]
    pub seconds: Option<u64>,
    /// Keep those with a label.
    #[serde(default = "yes")]
    pub labelled: bool,
    /// The rule for all others.
    #[serde(default)]
    pub older: OlderCheckpoints,
}

/// The rule for checkpoints that are neither among the newest nor young.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OlderCheckpoints {
    /// None of them is kept.
    #[default]
    Removed,
    /// The last of each hour is kept for a week, and the last of each day after that.
    Thinned,
    /// All of them are kept.
    All,
}

fn yes() -> bool {
    true
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { last: None, seconds: None, labelled: true, older: OlderCheckpoints::Removed }
    }
}

impl Retention {
    pub fn keeps_all(&self) -> bool {
        let unbounded = self.last.is_none() && self.seconds.is_none();
        unbounded || self.older == OlderCheckpoints::All
    }
}

/// A saved state that the machine can return to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// The number of the instruction that produced this state.
    pub seq: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Bytes it added to the store.
    pub bytes: u64,
    pub label: Option<String>,
    /// The code of that instruction.
    pub code: String,
    /// Variables touched since the previous checkpoint.
    #[serde(default)]
    pub variables: Vec<String>,
    /// Files changed since the previous checkpoint; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FileChanges>,
}

/// Changed files: their numbers and names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileChanges {
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
    /// The names of the first ones.
    pub names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    pub checkpoints: Vec<Point>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// Include the files that each checkpoint changed. The first request reads all checkpoints.
    #[serde(default)]
    pub files: bool,
}

/// A label for a checkpoint; null removes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelRequest {
    #[serde(deserialize_with = "crate::whole::number")]
    pub seq: u32,
    /// 1 to 200 bytes.
    #[schema(min_length = 1, max_length = 200)]
    pub label: Option<String>,
}

/// Disk use of a machine and its checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskUse {
    /// Bytes that deleting this machine would free.
    pub own_bytes: u64,
    /// Bytes that other machines need too.
    pub shared_bytes: u64,
    pub checkpoints: u64,
    /// Which of them are kept: the machine's rule, or the service's.
    #[serde(default)]
    pub retention: Retention,
}

/// A machine's ancestors and branches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lineage {
    /// The ancestors, from the parent to the first machine.
    pub ancestors: Vec<Ancestor>,
    pub children: Vec<Relative>,
    /// The whole tree, from the oldest ancestor that still exists.
    pub tree: Relative,
}

/// An ancestor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Ancestor {
    pub machine: Name,
    /// The checkpoint that the branch started from; absent if nothing had run before it.
    pub seq: Option<u64>,
    /// Whether the machine was deleted.
    #[serde(default)]
    pub removed: bool,
}

/// A machine with its branches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(no_recursion)]
pub struct Relative {
    pub machine: Name,
    /// The checkpoint of the parent that it started from.
    pub from: Option<u64>,
    /// Its last checkpoint.
    pub seq: Option<u64>,
    pub children: Vec<Relative>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromoteRequest {
    /// The machine whose name to take; the parent, if absent.
    #[serde(default)]
    pub onto: Option<Name>,
    /// Remove the machine that had the name, unless it ran an instruction after the branch was
    /// made.
    #[serde(default)]
    pub remove: bool,
}

/// Two machines that exchanged their names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Promoted {
    /// The branch, under its new name.
    pub machine: MachineInfo,
    /// The machine that had the name before, under the branch's old name.
    pub former: MachineInfo,
    /// Whether that machine was removed.
    #[serde(default)]
    pub removed: bool,
}

/// Code and settings of one branch. Limits may not exceed the machine's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vary {
    /// Code to run when the branch starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Variables to set before the code runs, as JSON values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub variables: BTreeMap<String, serde_json::Value>,
    #[serde(default, deserialize_with = "crate::object::required")]
    pub limits: Limits,
    /// Added to the tags of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// A file in a machine or a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileView {
    /// Absolute path.
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    pub mode: u32,
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileViews {
    pub files: Vec<FileView>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct FileQuery {
    /// Relative paths start at the machine's home.
    pub path: String,
}

/// Two machines or checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareRequest {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}(@[0-9]{1,9})?$")]
    pub left: Address,
    #[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}(@[0-9]{1,9})?$")]
    pub right: Address,
}

/// The differences between two states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Comparison {
    #[schema(value_type = String)]
    pub left: Address,
    #[schema(value_type = String)]
    pub right: Address,
    /// The common ancestor of both states, if there is one.
    #[schema(value_type = Option<String>)]
    pub base: Option<Address>,
    pub variables: Vec<VariableDifference>,
    pub files: Vec<FileDifference>,
    pub outputs: Vec<OutputDifference>,
    /// Descriptions of differences omitted because there are too many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It exists only on the right.
    Added,
    /// It exists only on the left.
    Removed,
    Changed,
    /// Unknown: the value has no digest to compare.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VariableDifference {
    pub name: String,
    pub change: Change,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<crate::Var>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<crate::Var>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileDifference {
    pub path: String,
    pub change: Change,
    pub left_size: Option<u64>,
    pub right_size: Option<u64>,
    /// A unified diff, for text files up to a size limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// Instructions since the common ancestor, side by side, where their results differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OutputDifference {
    pub left: Option<Output>,
    pub right: Option<Output>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Output {
    pub seq: u64,
    pub code: String,
    /// The value, or the error's last line.
    pub result: Option<String>,
    /// Output of both streams, possibly truncated.
    pub output: String,
}

/// Variables and files to copy from another machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptRequest {
    /// The machine or checkpoint to copy from.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}(@[0-9]{1,9})?$")]
    pub from: Address,
    #[serde(default)]
    pub variables: Vec<String>,
    /// Files, or directories with every file that the machine changed in them; relative paths start
    /// at the machine's home.
    #[serde(default)]
    pub files: Vec<String>,
    /// Overwrite variables and files that both sides changed since their common ancestor.
    #[serde(default)]
    pub force: bool,
}

/// The result of an adoption.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Adopted {
    /// The log entry of the adoption; absent if nothing was copied.
    pub seq: Option<u64>,
    pub variables: Vec<String>,
    pub files: Vec<String>,
    /// Variables and files that both sides changed. Without `force`, a conflict prevents the
    /// adoption.
    pub conflicts: Vec<Conflict>,
    /// Variables and files that could not be copied, and why.
    pub failed: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Conflict {
    /// `variable` or `file`.
    pub kind: String,
    pub name: String,
    pub why: String,
}

/// Candidates to try as branches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExploreRequest {
    /// Start from the state after this instruction; by default, the current state.
    #[serde(default, deserialize_with = "crate::whole::optional")]
    pub seq: Option<u32>,
    #[serde(deserialize_with = "crate::object::list")]
    #[schema(min_items = 1, max_items = 1000)]
    pub candidates: Vec<Vary>,
    /// An expression that scores each branch, in the machine's language; higher is better.
    #[schema(pattern = "\\S")]
    pub score: String,
    /// Prefer lower scores.
    #[serde(default)]
    pub minimize: bool,
    /// Keep the losing branches and the previous machine; by default they are removed.
    #[serde(default)]
    pub keep: bool,
    /// Reseed the program's own random generators in each branch.
    #[serde(default)]
    pub reseed: bool,
    /// Time limit of each candidate and of each score. Absent: the service's default. Null: no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::machine::nullable")]
    #[schema(value_type = Option<f64>)]
    pub timeout_seconds: Option<Option<f64>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explored {
    /// The winner, under the machine's name; absent if no candidate got a score.
    pub best: Option<MachineInfo>,
    /// The previous machine, under the winner's old name; absent if it was removed.
    pub former: Option<MachineInfo>,
    pub candidates: Vec<Candidate>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Candidate {
    /// The candidate's position in the request.
    pub index: u64,
    /// The branch; it was removed unless it won or `keep` is set.
    pub machine: Name,
    pub score: Option<f64>,
    /// Why it has no score.
    pub error: Option<String>,
}

/// The result of one branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BranchEnd {
    /// The branch's position in the request.
    pub index: u64,
    pub machine: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<crate::Instruction>,
    /// Output lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<crate::Chunk>,
    /// Why it could not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::ErrorBody>,
}

/// A line in the stream of a branch request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BranchLine {
    /// The first line.
    Branches { machines: Vec<MachineInfo> },
    /// One line for each branch that ran code, in the order they end.
    End(Box<BranchEnd>),
    /// The last line.
    Over,
}
