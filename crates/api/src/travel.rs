//! A machine's past and its relatives: checkpoints and what they changed, lineage, comparing and
//! adopting.

use crate::{Address, FileKind, Limits, Machine, Name};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// Which checkpoints are kept. The newest always is; of the others, one that any rule asks for.
/// Without `last` and `seconds` all are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// This many of the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Those younger than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Those with a label.
    #[serde(default = "yes")]
    pub labelled: bool,
}

fn yes() -> bool {
    true
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { last: None, seconds: None, labelled: true }
    }
}

impl Retention {
    pub fn keeps_all(&self) -> bool {
        self.last.is_none() && self.seconds.is_none()
    }
}

/// A state that can be gone back to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// The instruction it is the state after.
    pub seq: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What it added to the store.
    pub bytes: u64,
    pub label: Option<String>,
    /// The code of that instruction.
    pub code: String,
    /// Variables that the instructions since the checkpoint before touched.
    #[serde(default)]
    pub variables: Vec<String>,
    /// Files that differ from the checkpoint before; absent when that was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FileChanges>,
}

/// Which files differ, by number and by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileChanges {
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
    /// The first of them.
    pub names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    pub checkpoints: Vec<Point>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// Whether to say which files each checkpoint changed. The first time this reads them all.
    #[serde(default)]
    pub files: bool,
}

/// A name for a checkpoint; null takes it away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelRequest {
    pub seq: u32,
    pub label: Option<String>,
}

/// What a machine and its checkpoints take on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskUse {
    /// What would be freed if this machine went.
    pub own_bytes: u64,
    /// What others need, too.
    pub shared_bytes: u64,
    pub checkpoints: u64,
}

/// A machine among its relatives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lineage {
    /// From the machine's parent to the first of the line.
    pub ancestors: Vec<Ancestor>,
    pub children: Vec<Relative>,
    /// The whole family, from its first member that is still there.
    pub tree: Relative,
}

/// Where a line came through.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Ancestor {
    pub machine: Name,
    /// The checkpoint that the branch started from; absent if nothing had run.
    pub seq: Option<u64>,
    /// Whether the machine is gone.
    #[serde(default)]
    pub removed: bool,
}

/// A machine with its branches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(no_recursion)]
pub struct Relative {
    pub machine: Name,
    /// The checkpoint of its parent that it started from.
    pub from: Option<u64>,
    /// Its own last checkpoint.
    pub seq: Option<u64>,
    pub children: Vec<Relative>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromoteRequest {
    /// Whose name to take; the parent's, if absent.
    #[serde(default)]
    pub onto: Option<Name>,
}

/// What exchanged names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Promoted {
    /// The branch, under its new name.
    pub machine: Machine,
    /// What had the name before, under the branch's old one.
    pub former: Machine,
}

/// What to change on branches; never wider than the machine's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vary {
    /// Run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Variables to set before that, as JSON values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub variables: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    pub limits: Limits,
    /// Added to those of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// A file in a machine or a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileView {
    /// Below the root, without a leading slash.
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
pub struct FileQuery {
    /// Below the root.
    pub path: String,
}

/// Two machines or checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareRequest {
    #[schema(value_type = String)]
    pub left: Address,
    #[schema(value_type = String)]
    pub right: Address,
}

/// What differs between two states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Comparison {
    #[schema(value_type = String)]
    pub left: Address,
    #[schema(value_type = String)]
    pub right: Address,
    /// The state both came from, if there is one.
    #[schema(value_type = Option<String>)]
    pub base: Option<Address>,
    pub variables: Vec<VariableDifference>,
    pub files: Vec<FileDifference>,
    pub outputs: Vec<OutputDifference>,
    /// What was left out because there is too much of it, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Only on the right.
    Added,
    /// Only on the left.
    Removed,
    Changed,
    /// Whether it differs cannot be told: it has no digest.
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
    /// As `diff -u` writes it, for text that is not too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// Instructions of both sides since they parted, side by side, where what they gave differs.
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
    /// Lines of both streams, perhaps cut.
    pub output: String,
}

/// What to take over from another machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptRequest {
    /// The machine or checkpoint to take from.
    #[schema(value_type = String)]
    pub from: Address,
    #[serde(default)]
    pub variables: Vec<String>,
    /// Files, or directories with all that the machine changed in them.
    #[serde(default)]
    pub files: Vec<String>,
    /// Overwrite what both sides changed since they parted.
    #[serde(default)]
    pub force: bool,
}

/// What was taken over, or why nothing was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Adopted {
    /// The instruction of the log that stands for it; absent when nothing was taken.
    pub seq: Option<u64>,
    pub variables: Vec<String>,
    pub files: Vec<String>,
    /// What both sides changed since they parted. Without `force` nothing was taken because of it.
    pub conflicts: Vec<Conflict>,
    /// What could not be carried, and why.
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
    /// The state to start from; the state now, if absent.
    #[serde(default)]
    pub seq: Option<u32>,
    pub candidates: Vec<Vary>,
    /// A Python expression that each branch is scored with; higher is better.
    pub score: String,
    /// Lower is better instead.
    #[serde(default)]
    pub minimize: bool,
    /// Leave the branches that lose; they are removed otherwise.
    #[serde(default)]
    pub keep: bool,
    /// Seed the program's own random generators anew in each branch.
    #[serde(default)]
    pub reseed: bool,
    /// How long each candidate, and each score, may take; absent means the service's default, null
    /// no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::machine::nullable")]
    #[schema(value_type = Option<f64>)]
    pub timeout_seconds: Option<Option<f64>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explored {
    /// The winner, under the machine's name; absent when no candidate could be scored.
    pub best: Option<Machine>,
    /// The machine as it was, under the winner's old name.
    pub former: Option<Machine>,
    pub candidates: Vec<Candidate>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Candidate {
    /// In the order they were given.
    pub index: u64,
    /// Its branch, which is gone unless it won or was to be kept.
    pub machine: Name,
    pub score: Option<f64>,
    /// Why it has no score.
    pub error: Option<String>,
}

/// How one branch's own part ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BranchEnd {
    /// Which branch, in the order they were asked for.
    pub index: u64,
    pub machine: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<crate::Instruction>,
    /// Lines of output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<crate::Chunk>,
    /// Why it could not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::ErrorBody>,
}

/// A line of a branch call's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BranchLine {
    /// Comes first.
    Branches { machines: Vec<Machine> },
    /// One for each branch that had something to run, in the order they end.
    End(Box<BranchEnd>),
    /// Comes last.
    Over,
}
