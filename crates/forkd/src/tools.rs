//! The eleven tools of forkd's MCP server, with its names and arguments, over the same code as
//! forkd's routes.
//!
//! Differences: errors have a message and not only a status, a cancelled call interrupts its code,
//! and waiting for text reads the file without running anything.

use crate::error::{Error, Result};
use crate::{
    Completed, EvalAnswer, Forkd, ForkdCaller, Ping, SandboxCommand, SandboxInfo, SnapshotInfo,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stasis_api::Instruction;
use stasis_machine::Machine;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The server's description for agents.
pub const INSTRUCTIONS: &str = "\
list_snapshots shows states to start from; spawn_sandboxes starts sandboxes from one. Run commands \
with exec_command and Python with eval_code: a sandbox keeps its state between calls. \
branch_sandbox keeps that state as a snapshot, from which more sandboxes can start.";

/// Bytes of a file's end that are searched for text, and characters of it that are shown.
const TAIL: u64 = 4096;
const EXCERPT: usize = 256;
/// Bounds of the polling interval of a file, and of the wait.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(10);
const MAX_WAIT: f64 = 24.0 * 3600.0;

#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
struct SnapshotInput {
    /// A name for the snapshot.
    tag: String,
    /// Ignored: there is no kernel to choose.
    kernel: String,
    /// A template's name, or a recipe for one as TOML.
    rootfs: String,
    /// Ignored.
    #[serde(default)]
    rw: bool,
    /// Ignored.
    tap: Option<String>,
    /// Ignored: a snapshot is ready when this returns.
    #[serde(default = "ten")]
    boot_wait_secs: i64,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SpawnSandboxes {
    /// The snapshot to start from.
    snapshot_tag: String,
    /// Number of sandboxes.
    #[serde(default = "one")]
    n: i64,
    /// Every sandbox has a network of its own here.
    #[serde(default)]
    per_child_netns: bool,
    /// Memory limit of each, in MiB.
    #[serde(default = "quarter")]
    memory_limit_mib: u64,
    /// Ignored: sandboxes are ready when this returns.
    #[serde(default)]
    prewarm: bool,
    /// Ignored: a fork is always live.
    #[serde(default)]
    live_fork: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OneSandbox {
    /// The sandbox's id, as `spawn_sandboxes` gave it.
    sandbox_id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ExecCommand {
    /// The sandbox's id.
    sandbox_id: String,
    /// The program and its arguments; no shell is used.
    args: Vec<String>,
    /// Seconds after which the command is killed.
    #[serde(default = "thirty")]
    timeout_secs: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct EvalCode {
    /// The sandbox's id.
    sandbox_id: String,
    /// Python code for the sandbox's session, which keeps its variables.
    code: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct BranchSandbox {
    /// The sandbox whose state is kept. It keeps running.
    sandbox_id: String,
    /// A name for the snapshot; generated if absent.
    tag: Option<String>,
    /// Report how much changed.
    #[serde(default)]
    diff: bool,
    /// Report how much changed.
    #[serde(default)]
    measure_diff: bool,
    /// `full`, `diff` or `live`; all keep the same state here.
    mode: Option<String>,
    /// Whether to wait until the snapshot is usable; here it always is.
    #[serde(default = "yes")]
    wait: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct WaitForText {
    /// The sandbox's id.
    sandbox_id: String,
    /// The file to read.
    path: String,
    /// The text to wait for, in the last 4096 bytes of the file.
    marker: String,
    /// Maximum wait in seconds.
    #[serde(default = "minute")]
    timeout_secs: f64,
    /// Milliseconds between two reads.
    #[serde(default = "often")]
    poll_interval_ms: u64,
}

fn one() -> i64 {
    1
}
fn ten() -> i64 {
    10
}
fn thirty() -> u64 {
    30
}
fn minute() -> f64 {
    60.0
}
fn often() -> u64 {
    200
}
fn quarter() -> u64 {
    256
}
fn yes() -> bool {
    true
}

/// A list, as forkd's server gives one.
#[derive(Debug, Serialize, JsonSchema)]
struct Listed<T> {
    result: Vec<T>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Killed {
    id: String,
    killed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WaitAnswer {
    found: bool,
    elapsed_ms: u64,
    /// The end of the last read.
    last_excerpt: String,
}

/// The listing of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolText {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub effect: ToolEffect,
}

/// The effect of a call on existing data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolEffect {
    Reads,
    Adds,
    Sets,
    Destroys,
}

/// The result of a read: the answer, or the answer at the timeout and the time of the next read.
pub enum Look<O> {
    Over(O),
    Again(O, Duration),
}

/// An instruction that was begun: its machine, and its number there.
pub type Started = (Arc<Machine>, u64);
/// The action of a tool; it may block.
pub type ToolWork<I, O> = fn(&Forkd, &ForkdCaller, I) -> Result<O>;
/// A look for something, given when the first look was.
pub type ToolLook<I, O> = fn(&Forkd, &ForkdCaller, &I, Instant) -> Result<Look<O>>;

/// The table of tools: the server that offers them runs their actions.
pub trait ToolTable {
    /// A tool that does something which may block.
    fn does<I, O>(&mut self, text: ToolText, work: ToolWork<I, O>)
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + Send + 'static;

    /// A tool that runs an instruction: its start, and the meaning of its end.
    fn runs<I, O>(
        &mut self,
        text: ToolText,
        start: ToolWork<I, Started>,
        end: fn(&Forkd, Instruction) -> Result<O>,
    ) where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + Send + 'static;

    /// A tool that polls.
    fn looks<I, O>(&mut self, text: ToolText, look: ToolLook<I, O>)
    where
        I: DeserializeOwned + JsonSchema + Send + Sync + 'static,
        O: Serialize + JsonSchema + Send + 'static;
}

/// Enters all tools, in the order they are listed in.
pub fn tools(table: &mut impl ToolTable) {
    snapshots(table);
    sandboxes(table);
    inside(table);
}

const fn text(
    name: &'static str,
    title: &'static str,
    effect: ToolEffect,
    about: &'static str,
) -> ToolText {
    ToolText { name, title, about, effect }
}

fn snapshots(table: &mut impl ToolTable) {
    use ToolEffect::{Adds, Reads};
    let list = "Lists snapshots: states that sandboxes can start from.";
    let create = "Creates a snapshot from a template. spawn_sandboxes starts sandboxes from it.";
    let branch = "Keeps a sandbox's state as a snapshot, from which more sandboxes can start. The \
                  sandbox keeps running.";
    table.does(text("list_snapshots", "List snapshots", Reads, list), list_snapshots);
    table.does(text("create_snapshot", "Create a snapshot", Adds, create), create_snapshot);
    table.does(text("branch_sandbox", "Branch a sandbox", Adds, branch), branch_sandbox);
}

fn sandboxes(table: &mut impl ToolTable) {
    use ToolEffect::{Adds, Destroys, Reads, Sets};
    let spawn = "Starts independent sandboxes from a snapshot's state.";
    let list = "Lists all sandboxes.";
    let get = "Shows one sandbox.";
    let kill = "Deletes a sandbox and its state. Its snapshots stay.";
    let ping = "Wakes a sandbox and describes its contents.";
    table.does(text("spawn_sandboxes", "Spawn sandboxes", Adds, spawn), spawn_sandboxes);
    table.does(text("list_sandboxes", "List sandboxes", Reads, list), list_sandboxes);
    table.does(text("get_sandbox", "Inspect a sandbox", Reads, get), get_sandbox);
    table.does(text("kill_sandbox", "Kill a sandbox", Destroys, kill), kill_sandbox);
    table.does(text("ping_sandbox", "Ping a sandbox", Sets, ping), ping_sandbox);
}

fn inside(table: &mut impl ToolTable) {
    use ToolEffect::{Adds, Reads};
    let exec =
        "Runs a command in a sandbox, without a shell, and returns its output and exit code.";
    let eval = "Runs Python code in a sandbox's session, which keeps its variables, and \
                returns the last expression's value.";
    let wait = "Waits until a file in a sandbox contains a text.";
    let completed = |forkd: &Forkd, end: Instruction| forkd.completed(&end);
    let evaluated = |forkd: &Forkd, end: Instruction| Ok(forkd.evaluated(end));
    let exec = text("exec_command", "Run a command", Adds, exec);
    table.runs::<ExecCommand, Completed>(exec, exec_command, completed);
    let eval = text("eval_code", "Evaluate code", Adds, eval);
    table.runs::<EvalCode, EvalAnswer>(eval, eval_code, evaluated);
    table.looks(text("wait_for_text", "Wait for text", Reads, wait), wait_for_text);
}

/// The body that forkd's server would send, as the route takes it.
fn body<T: DeserializeOwned>(body: Value) -> Result<T> {
    let read = serde_json::from_value(body);
    read.map_err(|error| Error::new(422, format!("Invalid arguments: {error}")))
}

fn list_snapshots(forkd: &Forkd, caller: &ForkdCaller, _: Nothing) -> Result<Listed<SnapshotInfo>> {
    Ok(Listed { result: forkd.list_snapshots(&caller.account)? })
}

fn create_snapshot(
    forkd: &Forkd,
    caller: &ForkdCaller,
    input: SnapshotInput,
) -> Result<SnapshotInfo> {
    let SnapshotInput { tag, kernel, rootfs, rw, tap, boot_wait_secs } = input;
    let ask = body(json!({ "tag": tag, "kernel": kernel, "rootfs": rootfs, "rw": rw, "tap": tap,
        "boot_wait_secs": boot_wait_secs }))?;
    forkd.create_snapshot(caller, &ask)
}

fn spawn_sandboxes(
    forkd: &Forkd,
    caller: &ForkdCaller,
    input: SpawnSandboxes,
) -> Result<Listed<SandboxInfo>> {
    let SpawnSandboxes { snapshot_tag, n, per_child_netns, memory_limit_mib, prewarm, live_fork } =
        input;
    let ask = body(json!({ "snapshot_tag": snapshot_tag, "n": n, "prewarm": prewarm,
        "per_child_netns": per_child_netns, "memory_limit_mib": memory_limit_mib,
        "live_fork": live_fork }))?;
    Ok(Listed { result: forkd.spawn(&caller.account, &ask)? })
}

fn list_sandboxes(forkd: &Forkd, caller: &ForkdCaller, _: Nothing) -> Result<Listed<SandboxInfo>> {
    Ok(Listed { result: forkd.list_sandboxes(&caller.account) })
}

fn get_sandbox(forkd: &Forkd, caller: &ForkdCaller, input: OneSandbox) -> Result<SandboxInfo> {
    forkd.get_sandbox(&caller.account, &input.sandbox_id)
}

fn kill_sandbox(forkd: &Forkd, caller: &ForkdCaller, input: OneSandbox) -> Result<Killed> {
    forkd.kill_sandbox(&caller.account, &input.sandbox_id)?;
    Ok(Killed { id: input.sandbox_id, killed: true })
}

fn ping_sandbox(forkd: &Forkd, caller: &ForkdCaller, input: OneSandbox) -> Result<Ping> {
    forkd.ping(&caller.account, &input.sandbox_id)
}

/// Like forkd's server: `diff` counts only without a mode.
fn branch_sandbox(
    forkd: &Forkd,
    caller: &ForkdCaller,
    input: BranchSandbox,
) -> Result<SnapshotInfo> {
    let diff = input.mode.is_none() && input.diff;
    let ask = body(json!({ "tag": input.tag, "mode": input.mode, "diff": diff,
        "measure_diff": input.measure_diff, "wait": input.wait }))?;
    let (made, _) = forkd.branch(&caller.account, &input.sandbox_id, &ask)?;
    Ok(made)
}

fn exec_command(forkd: &Forkd, caller: &ForkdCaller, input: ExecCommand) -> Result<Started> {
    let ExecCommand { sandbox_id, args, timeout_secs } = input;
    let command = SandboxCommand { args, timeout_secs, ..SandboxCommand::default() };
    forkd.start(&caller.account, &sandbox_id, &command)
}

fn eval_code(forkd: &Forkd, caller: &ForkdCaller, input: EvalCode) -> Result<Started> {
    forkd.start_eval(&caller.account, &input.sandbox_id, &input.code)
}

fn wait_for_text(
    forkd: &Forkd,
    caller: &ForkdCaller,
    input: &WaitForText,
    since: Instant,
) -> Result<Look<WaitAnswer>> {
    let seconds = if input.timeout_secs > 0.0 { input.timeout_secs.min(MAX_WAIT) } else { 0.0 };
    let patience = Duration::from_secs_f64(seconds);
    let between = Duration::from_millis(input.poll_interval_ms).clamp(SHORTEST, LONGEST);
    let text = forkd.tail(&caller.account, &input.sandbox_id, &input.path, TAIL)?;
    let found = text.contains(&input.marker);
    let skip = text.chars().count().saturating_sub(EXCERPT);
    let last_excerpt = text.chars().skip(skip).collect();
    let waited = since.elapsed();
    let answer = WaitAnswer { found, elapsed_ms: waited.as_millis() as u64, last_excerpt };
    Ok(match patience.checked_sub(waited).filter(|left| !found && !left.is_zero()) {
        Some(left) => Look::Again(answer, between.min(left)),
        None => Look::Over(answer),
    })
}
