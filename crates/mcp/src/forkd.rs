//! The eleven tools of forkd's MCP server, with its names and arguments, over the same code as
//! forkd's routes.
//!
//! Different from there: what went wrong is said in words instead of a status alone, a call that is
//! given up interrupts what it ran, and waiting for text reads the file without running anything.

use crate::answer::failure;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::table::{Effect, Entry, Face, parse};
use crate::text::{MAX_TEXT, cut};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stasis_forkd::{Command, Completed, EvalAnswer, Forkd, Ping, SandboxInfo, SnapshotInfo};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Bytes of a file's end that text is looked for in, and characters of it that are shown.
const TAIL: u64 = 4096;
const EXCERPT: usize = 256;
/// Bounds of how often a file is looked at, and for how long.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(10);
const MAX_WAIT: f64 = 24.0 * 3600.0;

#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
struct CreateSnapshot {
    /// A name for the snapshot.
    tag: String,
    /// Not used here: there is no kernel to choose.
    kernel: String,
    /// A template's name, or a recipe for one as TOML.
    rootfs: String,
    /// Not used here.
    #[serde(default)]
    rw: bool,
    /// Not used here.
    tap: Option<String>,
    /// Not waited for here: a snapshot is ready when this returns.
    #[serde(default = "ten")]
    boot_wait_secs: i64,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SpawnSandboxes {
    /// The snapshot to start from.
    snapshot_tag: String,
    /// How many sandboxes.
    #[serde(default = "one")]
    n: i64,
    /// Every sandbox has a network of its own here.
    #[serde(default)]
    per_child_netns: bool,
    /// Memory each may use, in MiB.
    #[serde(default = "quarter")]
    memory_limit_mib: u64,
    /// Not used here: sandboxes are ready when this returns.
    #[serde(default)]
    prewarm: bool,
    /// Not used here: a fork is always live.
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
    /// The program and its arguments; no shell is in between.
    args: Vec<String>,
    /// Seconds after which the command is ended.
    #[serde(default = "thirty")]
    timeout_secs: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct EvalCode {
    /// The sandbox's id.
    sandbox_id: String,
    /// Python code for the sandbox's session, which remembers.
    code: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct BranchSandbox {
    /// The sandbox whose state is kept. It goes on.
    sandbox_id: String,
    /// A name for the snapshot; one is made up if absent.
    tag: Option<String>,
    /// Tell how much changed.
    #[serde(default)]
    diff: bool,
    /// Tell how much changed.
    #[serde(default)]
    measure_diff: bool,
    /// `full`, `diff` or `live`; all keep the same state here.
    mode: Option<String>,
    /// Whether to wait until the snapshot can be used; it can at once here.
    #[serde(default = "yes")]
    wait: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct WaitForText {
    /// The sandbox's id.
    sandbox_id: String,
    /// The file to look into.
    path: String,
    /// The text to wait for, in the last 4096 bytes of the file.
    marker: String,
    /// Seconds to wait at most.
    #[serde(default = "minute")]
    timeout_secs: f64,
    /// Milliseconds between two looks.
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
struct Found {
    found: bool,
    elapsed_ms: u64,
    /// The end of what was read last.
    last_excerpt: String,
}

pub static TOOLS: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let mut all = snapshots();
    all.extend(sandboxes());
    all.extend(inside());
    all
});

fn face(name: &'static str, title: &'static str, effect: Effect, about: &'static str) -> Face {
    Face { name, title, about, effect }
}

fn snapshots() -> Vec<Entry> {
    let list = "Lists snapshots: states that sandboxes can start from.";
    let create = "Makes a snapshot from a template. spawn_sandboxes starts sandboxes from it.";
    let branch = "Keeps a sandbox's state as a snapshot, from which more sandboxes can start. The \
                  sandbox goes on.";
    vec![
        does(face("list_snapshots", "List snapshots", Effect::Reads, list), list_snapshots),
        does(face("create_snapshot", "Create a snapshot", Effect::Adds, create), create_snapshot),
        does(face("branch_sandbox", "Branch a sandbox", Effect::Adds, branch), branch_sandbox),
    ]
}

fn sandboxes() -> Vec<Entry> {
    let spawn = "Starts sandboxes from a snapshot, each with that state and on its own from there.";
    let list = "Lists the sandboxes there are.";
    let get = "Tells about one sandbox.";
    let kill = "Ends a sandbox and forgets its state for good. Snapshots of it stay.";
    let ping = "Wakes a sandbox and says what is in it.";
    vec![
        does(face("spawn_sandboxes", "Spawn sandboxes", Effect::Adds, spawn), spawn_sandboxes),
        does(face("list_sandboxes", "List sandboxes", Effect::Reads, list), list_sandboxes),
        does(face("get_sandbox", "Look at a sandbox", Effect::Reads, get), get_sandbox),
        does(face("kill_sandbox", "Kill a sandbox", Effect::Destroys, kill), kill_sandbox),
        does(face("ping_sandbox", "Ping a sandbox", Effect::Sets, ping), ping_sandbox),
    ]
}

fn inside() -> Vec<Entry> {
    let exec =
        "Runs a command in a sandbox, without a shell, and returns its output and exit code.";
    let eval = "Runs Python code in a sandbox's session, which remembers, and returns the last \
                expression's value.";
    let wait = "Waits until a file in a sandbox contains a text.";
    let exec = face("exec_command", "Run a command", Effect::Adds, exec);
    let eval = face("eval_code", "Evaluate code", Effect::Adds, eval);
    let wait = face("wait_for_text", "Wait for text", Effect::Reads, wait);
    vec![
        Entry::free(exec.tool::<ExecCommand, Completed>(true), async |call, arguments| {
            Ok(said(exec_command(&call, arguments).await).into())
        }),
        Entry::free(eval.tool::<EvalCode, EvalAnswer>(true), async |call, arguments| {
            Ok(said(eval_code(&call, arguments).await).into())
        }),
        Entry::free(wait.tool::<WaitForText, Found>(false), async |call, arguments| {
            Ok(said(wait_for_text(&call, arguments).await).into())
        }),
    ]
}

/// A tool that does something which may block.
fn does<I, O>(face: Face, work: fn(&Call, I) -> Result<O>) -> Entry
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    O: Serialize + JsonSchema + Send + 'static,
{
    let run = move |call: Call, arguments: JsonObject| async move {
        let done = call.block(move |call| work(call, parse(arguments)?)).await;
        Ok(said(done).into())
    };
    Entry::free(face.tool::<I, O>(false), run)
}

/// A result as forkd's server gives it: JSON as text, one text for each item of a list.
fn said<T: Serialize>(done: Result<T>) -> CallToolResult {
    let data = match done {
        Ok(data) => serde_json::to_value(data).unwrap_or_default(),
        Err(error) => return failure(&error),
    };
    let text = |value: &Value| {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        ContentBlock::text(cut(&text, MAX_TEXT, "the structured result"))
    };
    let content = match data["result"].as_array() {
        Some(list) => list.iter().map(text).collect(),
        None => vec![text(&data)],
    };
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(data);
    result
}

/// The body that forkd's server would send, as the route takes it.
fn body<T: DeserializeOwned>(body: Value) -> Result<T> {
    let read = serde_json::from_value(body);
    read.map_err(|error| Error::Invalid(format!("Invalid arguments: {error}")))
}

fn list_snapshots(call: &Call, _: Nothing) -> Result<Listed<SnapshotInfo>> {
    Ok(Listed { result: call.forkd.list_snapshots(&call.account)? })
}

fn create_snapshot(call: &Call, input: CreateSnapshot) -> Result<SnapshotInfo> {
    let CreateSnapshot { tag, kernel, rootfs, rw, tap, boot_wait_secs } = input;
    // a recipe is built, which is the templates' right
    if rootfs.contains('\n') && !call.may_build {
        let said = "the token does not have the scope `templates`, which a recipe needs";
        return Err(stasis_forkd::Error::new(403, said).into());
    }
    let ask = body(json!({ "tag": tag, "kernel": kernel, "rootfs": rootfs, "rw": rw, "tap": tap,
        "boot_wait_secs": boot_wait_secs }))?;
    Ok(call.forkd.create_snapshot(&call.account, &ask)?)
}

fn spawn_sandboxes(call: &Call, input: SpawnSandboxes) -> Result<Listed<SandboxInfo>> {
    let SpawnSandboxes { snapshot_tag, n, per_child_netns, memory_limit_mib, prewarm, live_fork } =
        input;
    let ask = body(json!({ "snapshot_tag": snapshot_tag, "n": n, "prewarm": prewarm,
        "per_child_netns": per_child_netns, "memory_limit_mib": memory_limit_mib,
        "live_fork": live_fork }))?;
    Ok(Listed { result: call.forkd.spawn(&call.account, &ask)? })
}

fn list_sandboxes(call: &Call, _: Nothing) -> Result<Listed<SandboxInfo>> {
    Ok(Listed { result: call.forkd.list_sandboxes(&call.account) })
}

fn get_sandbox(call: &Call, input: OneSandbox) -> Result<SandboxInfo> {
    Ok(call.forkd.get_sandbox(&call.account, &input.sandbox_id)?)
}

fn kill_sandbox(call: &Call, input: OneSandbox) -> Result<Killed> {
    call.forkd.kill_sandbox(&call.account, &input.sandbox_id)?;
    Ok(Killed { id: input.sandbox_id, killed: true })
}

fn ping_sandbox(call: &Call, input: OneSandbox) -> Result<Ping> {
    Ok(call.forkd.ping(&call.account, &input.sandbox_id)?)
}

/// As forkd's server asks: `diff` counts only where no mode is named.
fn branch_sandbox(call: &Call, input: BranchSandbox) -> Result<SnapshotInfo> {
    let diff = input.mode.is_none() && input.diff;
    let ask = body(json!({ "tag": input.tag, "mode": input.mode, "diff": diff,
        "measure_diff": input.measure_diff, "wait": input.wait }))?;
    let (made, _) = call.forkd.branch(&call.account, &input.sandbox_id, &ask)?;
    Ok(made)
}

async fn exec_command(call: &Call, arguments: JsonObject) -> Result<Completed> {
    let ExecCommand { sandbox_id, args, timeout_secs } = parse(arguments)?;
    let command = Command { args, timeout_secs, ..Command::default() };
    let start = move |forkd: &Forkd, own: &str| forkd.start(own, &sandbox_id, &command);
    let end = call.run_to_end(move |call| Ok(start(&call.forkd, &call.account)?)).await?;
    Ok(call.forkd.completed(&end)?)
}

async fn eval_code(call: &Call, arguments: JsonObject) -> Result<EvalAnswer> {
    let EvalCode { sandbox_id, code } = parse(arguments)?;
    let start = move |forkd: &Forkd, own: &str| forkd.start_eval(own, &sandbox_id, &code);
    let end = call.run_to_end(move |call| Ok(start(&call.forkd, &call.account)?)).await?;
    Ok(call.forkd.evaluated(end))
}

async fn wait_for_text(call: &Call, arguments: JsonObject) -> Result<Found> {
    let input: WaitForText = parse(arguments)?;
    let start = Instant::now();
    let seconds = if input.timeout_secs > 0.0 { input.timeout_secs.min(MAX_WAIT) } else { 0.0 };
    let end = start + Duration::from_secs_f64(seconds);
    let between = Duration::from_millis(input.poll_interval_ms).clamp(SHORTEST, LONGEST);
    loop {
        let (id, path) = (input.sandbox_id.clone(), input.path.clone());
        let tail = move |call: &Call| Ok(call.forkd.tail(&call.account, &id, &path, TAIL)?);
        let text = call.block(tail).await?;
        let found = text.contains(&input.marker);
        if found || Instant::now() >= end || call.context.ct.is_cancelled() {
            let skip = text.chars().count().saturating_sub(EXCERPT);
            let last_excerpt = text.chars().skip(skip).collect();
            let elapsed_ms = start.elapsed().as_millis() as u64;
            return Ok(Found { found, elapsed_ms, last_excerpt });
        }
        tokio::select! {
            () = tokio::time::sleep(between.min(end - Instant::now().min(end))) => {}
            () = call.context.ct.cancelled() => {}
        }
    }
}
