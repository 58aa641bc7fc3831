//! Types of history.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::{Artifact, ErrorBody, Name, Status};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub type Address = String;

/// Variables and files to copy from another machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdoptRequest {
    /// Files, or directories with every file that the machine changed in them; relative paths
    /// start at the machine's home.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Overwrite variables and files that both sides changed since their common ancestor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// The machine or checkpoint to copy from.
    pub from: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
}

/// The result of an adoption.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Adopted {
    /// Variables and files that both sides changed. Without `force`, a conflict prevents the
    /// adoption.
    pub conflicts: Vec<Conflict>,
    /// Variables and files that could not be copied, and why.
    pub failed: BTreeMap<String, String>,
    pub files: Vec<String>,
    /// The log entry of the adoption; absent if nothing was copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    pub variables: Vec<String>,
}

/// An ancestor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ancestor {
    pub machine: Name,
    /// Whether the machine was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<bool>,
    /// The checkpoint that the branch started from; absent if nothing had run before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// The result of one branch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BranchEnd {
    /// Why it could not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// The branch's position in the request.
    pub index: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<Instruction>,
    pub machine: Name,
    /// Output lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<Chunk>,
}

/// A line in the stream of a branch request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BranchLine {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Machine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Why it could not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// The branch's position in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<Instruction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// Output lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<Chunk>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BranchRequest {
    /// The number of branches; by default as many as there are names, or one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Name>,
    /// Network access of the branches; the machine's, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Reseed the program's own random generators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reseed: Option<bool>,
    /// Start from the state after this instruction; by default, the current state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Stream a line of JSON as each branch ends, instead of one answer for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Added to the machine's tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Time limit of each branch. Absent: the service's default. Null: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// The code and settings of each branch, in order. Branches beyond the end run nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vary: Vec<Vary>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Branches {
    /// The results of `vary`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<BranchEnd>,
    pub machines: Vec<Machine>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Why it has no score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The candidate's position in the request.
    pub index: u64,
    /// The branch; it was removed unless it won or `keep` is set.
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

/// Which instructions have a state of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Checkpoints {
    Exact,
    Grouped,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

/// One line of output, without its newline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub data: String,
    /// The prompt of code that waits for a line of input; otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<bool>,
    /// Counted from 0 for each instruction, over both streams.
    pub seq: u64,
    pub stream: Stream,
}

/// Two machines or checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CompareRequest {
    pub left: String,
    pub right: String,
}

/// The differences between two states.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The common ancestor of both states, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Descriptions of differences omitted because there are too many.
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
    /// The cursor's position in characters; the end, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Completions {
    pub names: Vec<String>,
    /// The position in characters where the names begin.
    pub start: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conflict {
    /// `variable` or `file`.
    pub kind: String,
    pub name: String,
    pub why: String,
}

/// Disk use of a machine and its checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    pub checkpoints: u64,
    /// Bytes that deleting this machine would free.
    pub own_bytes: u64,
    /// Which of them are kept: the machine's rule, or the service's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// Bytes that other machines need too.
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
    /// Keep the losing branches and the previous machine; by default they are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
    /// Prefer lower scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimize: Option<bool>,
    /// Reseed the program's own random generators in each branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reseed: Option<bool>,
    /// An expression that scores each branch, in the machine's language; higher is better.
    pub score: String,
    /// Start from the state after this instruction; by default, the current state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Time limit of each candidate and of each score. Absent: the service's default. Null: no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Explored {
    /// The winner, under the machine's name; absent if no candidate got a score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Machine>,
    pub candidates: Vec<Candidate>,
    /// The previous machine, under the winner's old name; absent if it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Machine>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub message: String,
    /// The exception's class, or a code such as `machine.out_of_memory`.
    pub name: String,
    pub traceback: String,
}

/// All families.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Families {
    pub families: Vec<Relative>,
}

/// Changed files: their numbers and names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileChanges {
    pub added: u64,
    pub changed: u64,
    /// The names of the first ones.
    pub names: Vec<String>,
    pub removed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileDifference {
    pub change: Change,
    /// A unified diff, for text files up to a size limit.
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
    /// Absolute path.
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

/// A module that the host fetched for an import. Its bytes are pinned by their hash.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImportedModule {
    /// The hash of the fetched data: `sha512-` or `sha256-`, and base64.
    pub integrity: String,
    /// Its exact name, such as `npm:left-pad@1.3.0`, or its address.
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instruction {
    pub code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The number of output lines.
    pub outputs: u64,
    pub queued_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// Whether a later rollback undid it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<bool>,
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub status: Status,
}

/// A label for a checkpoint; null removes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LabelRequest {
    /// 1 to 200 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub seq: u64,
}

/// Resource limits; an absent limit is the template's or the service's default.
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

/// A machine's ancestors and branches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lineage {
    /// The ancestors, from the parent to the first machine.
    pub ancestors: Vec<Ancestor>,
    pub children: Vec<Relative>,
    /// The whole tree, from the oldest ancestor that still exists.
    pub tree: Relative,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The last checkpoint on disk; absent before the first instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
    pub created_at: Timestamp,
    pub durability: Durability,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Whether instructions run or wait.
    pub has_pending_instruction: bool,
    pub has_pending_instructions: bool,
    /// The number of instructions submitted to it.
    pub instructions: u64,
    pub limits: Limits,
    /// Acknowledged instructions whose effects were lost with the memory, and why; absent once a
    /// later instruction has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    pub name: Name,
    /// Network access, effective when the machine next comes into memory.
    pub network: Network,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Why the machine cannot leave memory, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    /// The checkpoints to keep, if they differ from the service's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// Whether it is in memory.
    pub running: bool,
    pub state: State,
    pub tags: BTreeMap<String, String>,
    pub template: String,
}

/// A new machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Made {
    pub machine: Machine,
    pub machine_name: Name,
}

/// The addresses that a machine may reach: `none` (loopback only), `open` (addresses outside
/// the host, over TCP and UDP; never the host itself) or `policy:NAME` (those that this
/// policy allows).
pub type Network = String;

/// The rule for checkpoints that are neither among the newest nor young.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OlderCheckpoints {
    Removed,
    Thinned,
    All,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

/// How an instruction ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The omitted values, kept whole beside the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Descriptions of values omitted because they were too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// The value of the last expression in every format it offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    pub runtime_ms: f64,
    /// Content displayed while the code ran: figures, `display(...)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<Shown>,
    /// Variables that were bound, unbound or changed in place, as far as the agent can tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touched: Vec<String>,
    /// The repr of the last expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    pub code: String,
    /// Output of both streams, possibly truncated.
    pub output: String,
    /// The value, or the error's last line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    pub seq: u64,
}

/// Instructions since the common ancestor, side by side, where their results differ.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputDifference {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Output>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<Output>,
}

/// The origin of a branch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parent {
    pub machine: Name,
    /// The checkpoint it started from; absent if the parent had run nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// A saved state that the machine can return to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub at: Timestamp,
    /// Bytes it added to the store.
    pub bytes: u64,
    /// The code of that instruction.
    pub code: String,
    /// Files changed since the previous checkpoint; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FileChanges>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The number of the instruction that produced this state.
    pub seq: u64,
    /// Variables touched since the previous checkpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PromoteRequest {
    /// The machine whose name to take; the parent, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onto: Option<Name>,
    /// Remove the machine that had the name, unless it ran an instruction after the branch was
    /// made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove: Option<bool>,
}

/// Two machines that exchanged their names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promoted {
    /// The machine that had the name before, under the branch's old name.
    pub former: Machine,
    /// The branch, under its new name.
    pub machine: Machine,
    /// Whether that machine was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<bool>,
}

/// The machine's state after an instruction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The instruction's address.
    pub address: Address,
    /// The newest checkpoint on disk when this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<Address>,
    /// Whether the state includes this instruction and all before it.
    pub intact: bool,
    /// Which effects were lost, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Modules that the host fetched for the instruction's imports, at most 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ImportedModule>,
    /// Notes for programs: the machine was woken, reseeded, or its sockets were reset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A machine with its branches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Relative {
    pub children: Vec<Relative>,
    /// The checkpoint of the parent that it started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    pub machine: Name,
    /// Its last checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// The checkpoints to keep: the newest, those that branches started from, and every
/// checkpoint that one of the rules selects. Without `last` and `seconds` all are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Retention {
    /// Keep those with a label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labelled: Option<bool>,
    /// Keep this many of the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// The rule for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older: Option<OlderCheckpoints>,
    /// Keep those younger than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rollback {
    /// Return to the state after this instruction; null means the initial state.
    pub seq: Option<u64>,
}

/// Content displayed while an instruction ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The number of output lines before it.
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

/// How far to undo or redo.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRequest {
    /// Include instructions that share a state with these. Without it, such a step is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouped: Option<bool>,
    /// The number of instructions; one by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
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
    /// Shape or length, if it has one.
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

/// Code and settings of one branch. Limits may not exceed the machine's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Vary {
    /// Code to run when the branch starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Added to the tags of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Variables to set before the code runs, as JSON values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, serde_json::Value>,
}
