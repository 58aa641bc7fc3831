//! Types of history.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::{Artifact, ErrorBody, Name, Status};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub type Address = String;

/// What to take over from another machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdoptRequest {
    /// Files, or directories with all that the machine changed in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Overwrite what both sides changed since they parted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// The machine or checkpoint to take from.
    pub from: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
}

/// What was taken over, or why nothing was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Adopted {
    /// What both sides changed since they parted. Without `force` nothing was taken because of
    /// it.
    pub conflicts: Vec<Conflict>,
    /// What could not be carried, and why.
    pub failed: BTreeMap<String, String>,
    pub files: Vec<String>,
    /// The instruction of the log that stands for it; absent when nothing was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    pub variables: Vec<String>,
}

/// Where a line came through.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ancestor {
    pub machine: Name,
    /// Whether the machine is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<bool>,
    /// The checkpoint that the branch started from; absent if nothing had run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// How one branch's own part ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BranchEnd {
    /// Why it could not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Which branch, in the order they were asked for.
    pub index: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<Instruction>,
    pub machine: Name,
    /// Lines of output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<Chunk>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BranchRequest {
    /// How many; as many as there are names, or one, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Name>,
    /// Seed the program's own random generators anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reseed: Option<bool>,
    /// The state after this instruction; the state now, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Answer with a line of JSON for each end as it comes, instead of all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Added to those of the machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// How long each may run; absent means the service's default, null no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// What each branch runs at once, in turn; those beyond the end run nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vary: Vec<Vary>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Branches {
    /// How the parts of `vary` ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<BranchEnd>,
    pub machines: Vec<Machine>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Why it has no score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// In the order they were given.
    pub index: u64,
    /// Its branch, which is gone unless it won or was to be kept.
    pub machine: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    Added,
    Removed,
    Changed,
    Unknown,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

/// One line of output, without its newline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub data: String,
    /// From 0 for each instruction, over both streams.
    pub seq: u64,
    pub stream: Stream,
}

/// Two machines or checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CompareRequest {
    pub left: String,
    pub right: String,
}

/// What differs between two states.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The state both came from, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// What was left out because there is too much of it, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    pub files: Vec<FileDifference>,
    pub left: String,
    pub outputs: Vec<OutputDifference>,
    pub right: String,
    pub variables: Vec<VariableDifference>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Complete {
    pub code: String,
    /// Counted in characters; the end, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Completions {
    pub names: Vec<String>,
    /// Where the names begin, counted in characters.
    pub start: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conflict {
    /// `variable` or `file`.
    pub kind: String,
    pub name: String,
    pub why: String,
}

/// What a machine and its checkpoints take on the disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    pub checkpoints: u64,
    /// What would be freed if this machine went.
    pub own_bytes: u64,
    /// What others need, too.
    pub shared_bytes: u64,
}

/// When an instruction's answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Durability {
    Memory,
    Local,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

/// Candidates to try as branches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExploreRequest {
    pub candidates: Vec<Vary>,
    /// Leave the branches that lose; they are removed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
    /// Lower is better instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimize: Option<bool>,
    /// Seed the program's own random generators anew in each branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reseed: Option<bool>,
    /// A Python expression that each branch is scored with; higher is better.
    pub score: String,
    /// The state to start from; the state now, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// How long each candidate, and each score, may take; absent means the service's default,
    /// null no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Explored {
    /// The winner, under the machine's name; absent when no candidate could be scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Machine>,
    pub candidates: Vec<Candidate>,
    /// The machine as it was, under the winner's old name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Machine>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub message: String,
    /// The exception's class, or a code of ours such as `machine.out_of_memory`.
    pub name: String,
    pub traceback: String,
}

/// All families.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Families {
    pub families: Vec<Relative>,
}

/// Which files differ, by number and by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileChanges {
    pub added: u64,
    pub changed: u64,
    /// The first of them.
    pub names: Vec<String>,
    pub removed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileDifference {
    pub change: Change,
    /// As `diff -u` writes it, for text that is not too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_size: Option<u64>,
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right_size: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

/// A file in a machine or a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileView {
    pub kind: FileKind,
    pub mode: u64,
    pub modified_at: Timestamp,
    /// Below the root, without a leading slash.
    pub path: String,
    pub size: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileViews {
    pub files: Vec<FileView>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    pub checkpoints: Vec<Point>,
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

/// A name for a checkpoint; null takes it away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LabelRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub seq: u64,
}

/// What a machine may use; absent means the template's or the service's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
}

/// A machine among its relatives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lineage {
    /// From the machine's parent to the first of the line.
    pub ancestors: Vec<Ancestor>,
    pub children: Vec<Relative>,
    /// The whole family, from its first member that is still there.
    pub tree: Relative,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The last checkpoint on disk; absent before the first instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Address>,
    pub created_at: Timestamp,
    pub durability: Durability,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Whether instructions run or wait.
    pub has_pending_instruction: bool,
    pub has_pending_instructions: bool,
    /// How many instructions it was given.
    pub instructions: u64,
    pub limits: Limits,
    pub name: Name,
    pub network: Network,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Why it cannot leave memory, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    /// Which checkpoints are kept, if not those of the service's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// Whether it is in memory.
    pub running: bool,
    pub state: State,
    pub tags: BTreeMap<String, String>,
    pub template: String,
}

/// A machine that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Made {
    pub machine: Machine,
    pub machine_name: Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Network {
    None,
    Open,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
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
    /// Variables that were bound, unbound or changed in place, as far as was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touched: Vec<String>,
    /// repr of the last expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    pub code: String,
    /// Lines of both streams, perhaps cut.
    pub output: String,
    /// The value, or the error's last line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    pub seq: u64,
}

/// Instructions of both sides since they parted, side by side, where what they gave differs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputDifference {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Output>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<Output>,
}

/// Where a branch came from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parent {
    pub machine: Name,
    /// The checkpoint it started from; absent for a machine that had run nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// A state that can be gone back to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub at: Timestamp,
    /// What it added to the store.
    pub bytes: u64,
    /// The code of that instruction.
    pub code: String,
    /// Files that differ from the checkpoint before; absent when that was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FileChanges>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The instruction it is the state after.
    pub seq: u64,
    /// Variables that the instructions since the checkpoint before touched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PromoteRequest {
    /// Whose name to take; the parent's, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onto: Option<Name>,
}

/// What exchanged names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promoted {
    /// What had the name before, under the branch's old one.
    pub former: Machine,
    /// The branch, under its new name.
    pub machine: Machine,
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

/// A machine with its branches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Relative {
    pub children: Vec<Relative>,
    /// The checkpoint of its parent that it started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    pub machine: Name,
    /// Its own last checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// Which checkpoints are kept. The newest always is; of the others, one that any rule asks
/// for. Without `last` and `seconds` all are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Retention {
    /// Those with a label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labelled: Option<bool>,
    /// This many of the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Those younger than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rollback {
    /// The state after this instruction; null for the beginning.
    pub seq: Option<u64>,
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
pub enum State {
    Ready,
    Running,
    Swapped,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stream {
    Stdout,
    Stderr,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

/// A variable of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Var {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    pub kind: String,
    pub name: String,
    pub repr: String,
    /// Shape or length, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VarList {
    pub vars: Vec<Var>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariableDifference {
    pub change: Change,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Var>,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<Var>,
}

/// What to change on branches; never wider than the machine's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Vary {
    /// Run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Added to those of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Variables to set before that, as JSON values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, serde_json::Value>,
}
