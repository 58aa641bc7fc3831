//! mcp-v8's tools: its names, arguments and answers.
//!
//! An answer is one JSON object as text. A failing tool reports it in that object, under the name
//! its clients expect, and is marked as an error as well. Invalid arguments are protocol errors.

use crate::artifacts::{ArtifactMeta, ArtifactPayload};
use crate::error::{Error, Result};
use crate::executions::ExecutionInfo;
use crate::heaps::HeapTags;
use crate::pages::PageRequest;
use crate::settings::V8Settings;
use crate::{FsLabel, FsMerge, FsPush, FsReset, RunFile, V8, V8Mode, V8RunRequest, fs_tools};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Maximum bytes of artifacts in one answer.
const MOST_INLINE: u64 = 8 << 20;
const NO_SESSION: &str = "no session ID available (send X-MCP-Session-Id header)";

pub(crate) type Arguments = Map<String, Value>;
/// The error is about the arguments.
pub(crate) type Reply = std::result::Result<V8Answer, String>;

/// The caller of a tool, and its connection.
#[derive(Clone)]
pub struct V8Call {
    pub v8: V8,
    pub account: String,
    pub settings: V8Settings,
}

/// The result of a call.
pub enum V8Answer {
    Over(V8Result),
    /// The answer is that of `started`, whether this execution has finished or not.
    Started(String),
    /// The answer is that of `finished`, when this execution has finished.
    Wait(String),
}

pub struct V8Result {
    pub text: Value,
    /// MIME types and contents of blocks after the text.
    pub blocks: Vec<(String, ArtifactPayload)>,
    pub is_failed: bool,
}

impl V8Result {
    fn ok(text: Value) -> V8Result {
        V8Result { text, blocks: Vec::new(), is_failed: false }
    }

    pub(crate) fn failed(text: Value) -> V8Result {
        V8Result { is_failed: true, ..V8Result::ok(text) }
    }
}

/// The modes that list a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShownIn {
    Everywhere,
    Sessions,
    Heaps,
    Files,
}

type Work = fn(&V8Call, Arguments) -> Reply;

pub struct V8Tool {
    pub name: &'static str,
    about: &'static str,
    shown_in: ShownIn,
    schema: fn() -> Value,
    work: Work,
}

impl V8Tool {
    pub fn is_shown(&self, mode: V8Mode) -> bool {
        match self.shown_in {
            ShownIn::Everywhere => true,
            ShownIn::Sessions => mode.has_sessions(),
            ShownIn::Heaps => mode.keeps_heap(),
            ShownIn::Files => mode.keeps_files(),
        }
    }

    /// Tools that a mode hides can still be called where there are sessions.
    pub fn is_callable(&self, mode: V8Mode) -> bool {
        mode.has_sessions() || self.is_shown(mode)
    }

    /// Its description for models.
    pub fn about(&self, mode: V8Mode) -> String {
        match self.name {
            RUN_JS_NAME => format!("{} {}", self.about, crate::texts::run_js_state(mode)),
            _ => self.about.to_owned(),
        }
    }

    pub fn schema(&self, mode: V8Mode) -> Arguments {
        let Value::Object(mut schema) = (self.schema)() else { return Arguments::new() };
        schema.remove("$schema");
        schema.remove("title");
        if self.name == RUN_JS_NAME
            && let Some(Value::Object(fields)) = schema.get_mut("properties")
        {
            fields.retain(|name, _| match name.as_str() {
                "heap" | "tags" => mode.keeps_heap(),
                "fs" => mode.keeps_files(),
                _ => true,
            });
        }
        schema
    }

    /// Calls it; an error is about its arguments.
    pub fn call(&self, call: &V8Call, arguments: Arguments) -> Reply {
        (self.work)(call, arguments)
    }
}

#[derive(Deserialize, JsonSchema)]
struct RunJs {
    /// JavaScript or TypeScript: an ES module, with `await` and `import` at the top level.
    code: Option<String>,
    /// A file to run in place of `code`, if the server allows it.
    file: Option<String>,
    /// The text of that file, from a front process.
    #[schemars(skip)]
    opened: Option<RunFile>,
    /// The heap to start from. By default the latest of the session.
    heap: Option<String>,
    /// The tree or the label that /work starts from. By default the latest of the session.
    fs: Option<String>,
    heap_memory_max_mb: Option<u64>,
    execution_timeout_secs: Option<i64>,
    /// Tags of the heap after the run.
    tags: Option<HeapTags>,
    /// Runs the code as at a REPL's prompt: top-level names persist.
    repl: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Nothing {}

#[derive(Deserialize, JsonSchema)]
struct OfExecution {
    execution_id: String,
}

#[derive(Deserialize, JsonSchema)]
struct OutputOf {
    execution_id: String,
    /// The first line, from 1.
    line_offset: Option<u64>,
    line_limit: Option<u64>,
    /// The first byte; takes the place of lines.
    byte_offset: Option<u64>,
    byte_limit: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct OfArtifact {
    key: String,
}

#[derive(Deserialize, JsonSchema)]
struct OfSession {
    /// Some of index, input_heap, output_heap, output_fs, code, timestamp, separated by commas.
    fields: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct OfHeap {
    heap: String,
}

#[derive(Deserialize, JsonSchema)]
struct SetTags {
    heap: String,
    tags: HeapTags,
}

#[derive(Deserialize, JsonSchema)]
struct DeleteTags {
    heap: String,
    /// Names of tags, separated by commas. By default all.
    keys: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct WithTags {
    tags: HeapTags,
}

fn schema<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}

pub(crate) fn parse<T: DeserializeOwned>(arguments: Arguments) -> std::result::Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| error.to_string())
}

/// An answer with its failure in the tool's form.
pub(crate) fn answer(done: Result<Value>, failure: fn(&str) -> Value) -> V8Answer {
    V8Answer::Over(match done {
        Ok(text) => V8Result::ok(text),
        Err(error) => V8Result::failed(failure(&error.message)),
    })
}

pub(crate) fn plain(words: &str) -> Value {
    json!({ "error": words })
}

fn not_ok(words: &str) -> Value {
    json!({ "ok": false, "error": words })
}

/// All tools, by name.
pub fn tools() -> Vec<V8Tool> {
    let one = |name, about, shown_in, schema, work| V8Tool { name, about, shown_in, schema, work };
    use ShownIn::{Everywhere, Files, Heaps, Sessions};
    vec![
        one("cancel_execution", CANCEL, Sessions, schema::<OfExecution>, cancel),
        one("delete_heap_tags", DELETE_TAGS, Heaps, schema::<DeleteTags>, delete_tags),
        one("fs_label", fs_tools::LABEL, Files, schema::<FsLabel>, fs_tools::label),
        one("fs_log", fs_tools::LOG, Files, schema::<fs_tools::LogOf>, fs_tools::log),
        one("fs_ls", fs_tools::LS, Files, schema::<Nothing>, fs_tools::ls),
        one("fs_merge", fs_tools::MERGE, Files, schema::<FsMerge>, fs_tools::merge),
        one("fs_pull", fs_tools::PULL, Files, schema::<fs_tools::OfLabel>, fs_tools::pull),
        one("fs_push", fs_tools::PUSH, Files, schema::<FsPush>, fs_tools::push),
        one("fs_reset", fs_tools::RESET, Files, schema::<FsReset>, fs_tools::reset),
        one("get_artifact", GET_ARTIFACT, Everywhere, schema::<OfArtifact>, get_artifact),
        one("get_execution", GET_EXECUTION, Sessions, schema::<OfExecution>, get_execution),
        one("get_execution_output", OUTPUT, Sessions, schema::<OutputOf>, output),
        one("get_heap_tags", GET_TAGS, Heaps, schema::<OfHeap>, get_tags),
        one("list_artifacts", LIST_ARTIFACTS, Everywhere, schema::<Nothing>, list_artifacts),
        one("list_executions", LIST_EXECUTIONS, Sessions, schema::<Nothing>, list_executions),
        one("list_session_snapshots", SNAPSHOTS, Sessions, schema::<OfSession>, snapshots),
        one("list_sessions", LIST_SESSIONS, Sessions, schema::<Nothing>, list_sessions),
        one("query_heaps_by_tags", QUERY, Heaps, schema::<WithTags>, query),
        one(RUN_JS_NAME, RUN_JS, Everywhere, schema::<RunJs>, run_js),
        one("set_heap_tags", SET_TAGS, Heaps, schema::<SetTags>, set_tags),
    ]
}

const RUN_JS_NAME: &str = "run_js";
const RUN_JS: &str = "Runs JavaScript or TypeScript as an ES module in Node 24. Top-level await \
    and import work. console.log prints; the value of the last expression is not printed.";
const GET_EXECUTION: &str = "Status, error, heap and artifacts of an execution.";
const OUTPUT: &str = "A page of an execution's output, by lines or by bytes.";
const CANCEL: &str = "Ends an execution. The state it began from is kept.";
const LIST_EXECUTIONS: &str = "Executions, oldest first.";
const GET_ARTIFACT: &str = "An artifact that code stored with artifact(key, mime, bytes).";
const LIST_ARTIFACTS: &str = "Artifacts, by key.";
const LIST_SESSIONS: &str = "Names of sessions.";
const SNAPSHOTS: &str = "The runs of this connection's session with their heaps, oldest first.";
const GET_TAGS: &str = "The tags of a heap.";
const SET_TAGS: &str = "Replaces the tags of a heap.";
const DELETE_TAGS: &str = "Removes tags of a heap.";
const QUERY: &str = "Heaps that have all of these tags.";

fn run_js(call: &V8Call, arguments: Arguments) -> Reply {
    let asked: RunJs = parse(arguments)?;
    let request = V8RunRequest {
        code: asked.code,
        file: asked.file,
        opened: asked.opened,
        heap: asked.heap,
        fs: asked.fs,
        session: call.settings.session.clone(),
        heap_memory_max_mb: asked.heap_memory_max_mb,
        execution_timeout_secs: asked.execution_timeout_secs,
        tags: asked.tags,
        repl: asked.repl.unwrap_or(false),
        mode: call.settings.mode,
        setup: None,
        mcp_headers: call.settings.mcp_headers.clone(),
    };
    let keeps = call.settings.mode.has_sessions();
    let id = call.v8.run(&call.account, call.settings.fill(request));
    Ok(match id {
        Ok(id) if keeps => V8Answer::Started(id),
        Ok(id) => V8Answer::Wait(id),
        Err(error) if keeps => {
            let said = format!("error: {}", error.message);
            V8Answer::Over(V8Result::failed(json!({ "execution_id": said })))
        }
        Err(error) => V8Answer::Over(V8Result::failed(plain(&error.message))),
    })
}

/// The result of a call whose caller follows the execution itself.
pub fn started(id: &str) -> V8Result {
    V8Result::ok(json!({ "execution_id": id }))
}

/// The result of a call that waited for its execution.
pub fn finished(call: &V8Call, id: &str) -> V8Result {
    let (info, output) = match call.v8.finished(&call.account, id) {
        Ok(found) => found,
        Err(error) => return V8Result::failed(plain(&error.message)),
    };
    let mut text = json!({ "output": output });
    if let Some(error) = &info.error {
        text["error"] = error.as_str().into();
    }
    let (list, blocks) = inlined(call, &info);
    if !list.is_empty() {
        text["artifacts"] = list.into();
    }
    V8Result { text, blocks, is_failed: info.status != "completed" }
}

/// Artifacts of an execution: those that fit as blocks, the others by name.
fn inlined(call: &V8Call, info: &ExecutionInfo) -> (Vec<Value>, Vec<(String, ArtifactPayload)>) {
    let (mut list, mut blocks, mut room) = (Vec::new(), Vec::new(), MOST_INLINE);
    for ArtifactMeta { key, mime_type, size_bytes, .. } in &info.artifacts {
        let fits = *size_bytes <= room;
        let found = fits.then(|| call.v8.artifact(&call.account, key).ok()).flatten();
        let mut one = json!({
            "key": key, "mime_type": mime_type, "size_bytes": size_bytes,
            "inline": found.is_some(),
        });
        match found {
            Some((_, bytes)) => {
                room -= size_bytes;
                blocks.push((mime_type.clone(), ArtifactPayload::new(mime_type, bytes)));
            }
            None => one["note"] = "use get_artifact".into(),
        }
        list.push(one);
    }
    (list, blocks)
}

fn get_execution(call: &V8Call, arguments: Arguments) -> Reply {
    let OfExecution { execution_id } = parse(arguments)?;
    let found = call.v8.execution(&call.account, &execution_id);
    Ok(answer(found.map(|info| json!(info)), plain))
}

fn output(call: &V8Call, arguments: Arguments) -> Reply {
    let asked: OutputOf = parse(arguments)?;
    let wanted = PageRequest {
        line_offset: asked.line_offset,
        line_limit: asked.line_limit,
        byte_offset: asked.byte_offset,
        byte_limit: asked.byte_limit,
    };
    let page = call.v8.output(&call.account, &asked.execution_id, &wanted);
    Ok(answer(page.map(|page| json!(page)), plain))
}

fn cancel(call: &V8Call, arguments: Arguments) -> Reply {
    let OfExecution { execution_id } = parse(arguments)?;
    let done = call.v8.cancel(&call.account, &execution_id);
    Ok(answer(done.map(|()| json!({ "ok": true })), not_ok))
}

fn list_executions(call: &V8Call, arguments: Arguments) -> Reply {
    let Nothing {} = parse(arguments)?;
    let all = call.v8.executions(&call.account);
    Ok(answer(all.map(|all| json!({ "executions": all })), plain))
}

fn get_artifact(call: &V8Call, arguments: Arguments) -> Reply {
    let OfArtifact { key } = parse(arguments)?;
    let (meta, bytes) = match call.v8.artifact(&call.account, &key) {
        Ok(found) => found,
        Err(error) => return Ok(V8Answer::Over(V8Result::failed(plain(&error.message)))),
    };
    let payload = ArtifactPayload::new(&meta.mime_type, bytes);
    let mut text = json!(meta);
    text["encoding"] = payload.encoding().into();
    let blocks = vec![(meta.mime_type, payload)];
    Ok(V8Answer::Over(V8Result { blocks, ..V8Result::ok(text) }))
}

fn list_artifacts(call: &V8Call, arguments: Arguments) -> Reply {
    let Nothing {} = parse(arguments)?;
    let all = call.v8.artifacts(&call.account);
    Ok(answer(all.map(|all| json!({ "artifacts": all })), plain))
}

fn list_sessions(call: &V8Call, arguments: Arguments) -> Reply {
    let Nothing {} = parse(arguments)?;
    let all = call.v8.sessions(&call.account).map(|all| json!({ "sessions": all }));
    Ok(answer(all, |words| json!({ "sessions": [format!("Error: {words}")] })))
}

fn snapshots(call: &V8Call, arguments: Arguments) -> Reply {
    let OfSession { fields } = parse(arguments)?;
    let session = call.settings.session.as_deref().ok_or_else(|| Error::invalid(NO_SESSION));
    let log = session
        .and_then(|session| call.v8.session_fields(&call.account, session, fields.as_deref()));
    let log = log.map(|entries| json!({ "entries": entries }));
    Ok(answer(log, |words| json!({ "entries": [{ "error": words }] })))
}

fn get_tags(call: &V8Call, arguments: Arguments) -> Reply {
    let OfHeap { heap } = parse(arguments)?;
    let tags = call.v8.heap_tags(&call.account, &heap).map(|tags| json!({ "tags": tags }));
    Ok(answer(tags, |words| json!({ "tags": { "error": words } })))
}

fn set_tags(call: &V8Call, arguments: Arguments) -> Reply {
    let SetTags { heap, tags } = parse(arguments)?;
    let done = call.v8.set_heap_tags(&call.account, &heap, tags);
    Ok(answer(done.map(|()| json!({ "ok": true })), not_ok))
}

fn delete_tags(call: &V8Call, arguments: Arguments) -> Reply {
    let DeleteTags { heap, keys } = parse(arguments)?;
    let done = call.v8.delete_heap_tags(&call.account, &heap, keys.as_deref());
    Ok(answer(done.map(|()| json!({ "ok": true })), not_ok))
}

fn query(call: &V8Call, arguments: Arguments) -> Reply {
    let WithTags { tags } = parse(arguments)?;
    let found = call.v8.heaps_with(&call.account, &tags).map(|found| {
        let one = |(heap, tags)| json!({ "heap": heap, "tags": tags });
        json!({ "results": found.into_iter().map(one).collect::<Vec<_>>() })
    });
    Ok(answer(
        found,
        |words| json!({ "results": [{ "heap": "error", "tags": { "error": words } }] }),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(mode: V8Mode) -> Vec<&'static str> {
        tools().into_iter().filter(|tool| tool.is_shown(mode)).map(|tool| tool.name).collect()
    }

    #[test]
    fn tools_by_mode_are_sorted() {
        assert_eq!(shown(V8Mode::Stateless), ["get_artifact", "list_artifacts", "run_js"]);
        for (mode, count) in [(V8Mode::Heap, 13), (V8Mode::Files, 16), (V8Mode::HeapAndFiles, 20)] {
            let all = shown(mode);
            assert_eq!(all.len(), count, "{mode:?}");
            assert!(all.is_sorted(), "{all:?}");
        }
    }

    #[test]
    fn arguments_by_mode() {
        let all = tools();
        let run = all.iter().find(|tool| tool.name == "run_js").expect("run_js");
        let fields = |mode| -> Vec<String> {
            let schema = run.schema(mode);
            assert!(schema.get("required").is_none(), "{schema:?}");
            let fields = schema["properties"].as_object().expect("fields");
            fields.keys().cloned().collect()
        };
        assert!(fields(V8Mode::Heap).contains(&"heap".to_owned()));
        assert!(!fields(V8Mode::Stateless).contains(&"tags".to_owned()));
        let has = |mode, name: &str| fields(mode).contains(&name.to_owned());
        assert!(has(V8Mode::Files, "fs") && !has(V8Mode::Files, "heap"));
        assert!(has(V8Mode::HeapAndFiles, "fs") && has(V8Mode::HeapAndFiles, "heap"));
        assert!(!has(V8Mode::Heap, "fs"));
        let kind = &run.schema(V8Mode::Heap)["properties"]["code"]["type"];
        assert_eq!(*kind, json!(["string", "null"]));
    }
}
