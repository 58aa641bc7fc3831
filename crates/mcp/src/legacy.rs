//! Tasks of revision 2025-11-25. The library supports those of 2026-07-28, so earlier requests are
//! renamed on their way in, and handled here:
//!
//!   tools/call with `task` ──► stasis/2025-11-25/tools/call ──► { task }
//!   tasks/get, tasks/result, tasks/list, tasks/cancel ──► the machine's records
//!   tools/list ──► the same list, which says what can be a task

use crate::call::{CallContext, ran};
use crate::error::Error;
use crate::server::Server;
use crate::table::ToolEntry;
use crate::tasks::{self, TaskId};
use crate::{v8, v8_tasks};
use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use stasis_api::Instruction;
use stasis_machine::{FollowUpdate, Machine};
use std::sync::Arc;
use std::time::Duration;

/// The revision with this kind of tasks, and the mark of its requests.
pub const REVISION: &str = "2025-11-25";
const MARK: &str = "stasis/2025-11-25/";
const METHODS: [&str; 5] =
    ["tools/list", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel"];
const RELATED: &str = "io.modelcontextprotocol/related-task";
/// Maximum tasks on one page of the list.
const PAGE: usize = 100;
/// Maximum time for a cancelled instruction to stop before the client is answered.
const STOPPING: Duration = Duration::from_secs(30);

pub type LegacyAnswer = std::result::Result<Value, ErrorData>;

/// Whether a message may need to be marked, judged by its bytes.
pub fn may_concern(body: &[u8]) -> bool {
    let has = |word: &[u8]| body.windows(word.len()).any(|own| own == word);
    has(b"\"tasks/") || has(b"\"task\"") || has(b"\"tools/list\"")
}

/// Marks a request that this module answers. Whether it did.
pub fn mark(message: &mut Value) -> bool {
    let Some(method) = message["method"].as_str() else { return false };
    let task = method == "tools/call" && message["params"]["task"].is_object();
    let ours = task || METHODS.contains(&method);
    if ours {
        message["method"] = format!("{MARK}{method}").into();
    }
    ours
}

/// The answer to `initialize`, with tasks among the server's capabilities.
pub fn with_tasks(message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
    let JsonRpcMessage::Response(JsonRpcResponse {
        result: ServerResult::InitializeResult(result),
        id,
        ..
    }) = &message
    else {
        return message;
    };
    if result.protocol_version.as_str() != REVISION {
        return message;
    }
    let Ok(mut result) = serde_json::to_value(result) else { return message };
    result["capabilities"]["tasks"] =
        json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
    ServerJsonRpcMessage::response(
        ServerResult::CustomResult(CustomResult::new(result)),
        id.clone(),
    )
}

/// A task in the form of this revision.
pub fn task(task: &Task) -> Value {
    json!({
        "taskId": task.task_id,
        "status": task.status,
        "statusMessage": task.status_message,
        "createdAt": task.created_at,
        "lastUpdatedAt": task.last_updated_at,
        "ttl": task.ttl_ms,
        "pollInterval": task.poll_interval_ms,
    })
}

/// Answers a marked request; nothing, if it is not marked.
pub async fn answer(
    server: &Server,
    request: &CustomRequest,
    context: RequestContext<RoleServer>,
) -> Option<LegacyAnswer> {
    let method = request.method.strip_prefix(MARK)?;
    let params = request.params.clone().unwrap_or_default();
    let call = server.call(context);
    let id = params["taskId"].as_str().unwrap_or_default().to_owned();
    if let Some(mode) = server.tools.v8_mode().filter(|_| method.starts_with("tasks/")) {
        return Some(v8_tasks::answer(&call, mode, method, id).await);
    }
    Some(match method {
        "tools/list" => Ok(list_tools(server).await),
        "tools/call" => start(server, call, params).await,
        "tasks/get" => in_block(&call, move |call| get(call, &id)).await,
        "tasks/list" => in_block(&call, move |call| list(call, params["cursor"].as_str())).await,
        "tasks/cancel" => cancel(&call, id).await,
        "tasks/result" => result(&call, id).await,
        _ => return None,
    })
}

pub async fn in_block(
    call: &CallContext,
    work: impl FnOnce(&CallContext) -> LegacyAnswer + Send + 'static,
) -> LegacyAnswer {
    let done = call.block(move |call| Ok(work(call))).await;
    done.map_err(|error| tasks::broken(&error))?
}

/// Whether calls of a tool can be tasks.
fn may_be_task(entry: &ToolEntry) -> bool {
    entry.finish.is_some() || entry.tool.name == v8::RUN_JS
}

async fn list_tools(server: &Server) -> Value {
    let one = |entry: &ToolEntry| {
        let mut tool = serde_json::to_value(server.shown(entry)).unwrap_or_default();
        if may_be_task(entry) {
            tool["execution"] = json!({ "taskSupport": "optional" });
        }
        tool
    };
    let stubs = v8::stubs(server).await;
    let stubs = stubs.iter().map(|stub| serde_json::to_value(stub).unwrap_or_default());
    json!({ "tools": server.tools.entries().map(one).chain(stubs).collect::<Vec<_>>() })
}

async fn start(server: &Server, mut call: CallContext, mut params: Value) -> LegacyAnswer {
    let odd = |error: serde_json::Error| ErrorData::invalid_params(error.to_string(), None);
    if let Some(params) = params.as_object_mut() {
        params.remove("task");
    }
    let request: CallToolRequestParams = serde_json::from_value(params).map_err(odd)?;
    let entry = server.tools.find(&request.name).filter(|entry| may_be_task(entry));
    let Some(entry) = entry else {
        let words = "this tool cannot run as a task";
        return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, words, None));
    };
    call.as_task = true;
    call.name = request.name.into_owned();
    let notes = server.notes(&call.context);
    match (entry.run)(call, request.arguments.unwrap_or_default()).await? {
        CallToolResponse::Task(made) => {
            if let Some(notes) = notes {
                notes.task(&made.task.task_id, made.task.status);
            }
            Ok(json!({ "task": task(&made.task) }))
        }
        // there is no task: it could not be started
        CallToolResponse::Complete(refused) => {
            let text = refused.content.first().and_then(|content| content.as_text());
            let words = text.map(|text| text.text.clone()).unwrap_or_default();
            Err(ErrorData::invalid_params(words, None))
        }
        _ => Err(ErrorData::internal_error("the tool asks first", None)),
    }
}

fn find(
    call: &CallContext,
    id: &str,
) -> std::result::Result<(TaskId, Arc<Machine>, Task), ErrorData> {
    let parsed = TaskId::parse(id).ok_or_else(|| tasks::unknown(id))?;
    let (machine, instruction) = tasks::find(call, &parsed).ok_or_else(|| tasks::unknown(id))?;
    let task = tasks::task(&parsed, &instruction);
    Ok((parsed, machine, task))
}

fn get(call: &CallContext, id: &str) -> LegacyAnswer {
    find(call, id).map(|(_, _, found)| task(&found))
}

/// The instructions of the caller's machines, newest first for each; the cursor is the last one
/// listed.
fn list(call: &CallContext, cursor: Option<&str>) -> LegacyAnswer {
    let Some(runner) = call.tools.runner() else { return Ok(json!({ "tasks": [] })) };
    let broken = |error: stasis_machine::Error| tasks::broken(&Error::from(error));
    let after = cursor.map(|cursor| TaskId::parse(cursor).ok_or_else(|| tasks::unknown(cursor)));
    let after = after.transpose()?;
    let mut machines: Vec<_> = call.machines().map(|own| (own.name().to_string(), own)).collect();
    machines.sort_by(|one, two| one.0.cmp(&two.0));
    let (mut page, mut more) = (Vec::new(), false);
    for (name, machine) in machines {
        let before = match &after {
            Some(after) if name < after.machine => continue,
            Some(after) if name == after.machine => after.seq,
            _ => machine.describe().instructions,
        };
        let room = (PAGE - page.len()) as u64;
        more |= before > room;
        let from = before.saturating_sub(room);
        let some = machine.instructions(from, before - from).map_err(broken)?;
        let id = |seq| TaskId { tool: runner.into(), machine: name.clone(), seq };
        page.extend(some.iter().rev().map(|one| task(&tasks::task(&id(one.seq), one))));
        if page.len() >= PAGE {
            more = true;
            break;
        }
    }
    let next = page.last().filter(|_| more && page.len() >= PAGE).map(|one| one["taskId"].clone());
    let mut listed = json!({ "tasks": page });
    if let Some(next) = next {
        listed["nextCursor"] = next;
    }
    Ok(listed)
}

async fn cancel(call: &CallContext, id: String) -> LegacyAnswer {
    let text = id.clone();
    let before = call.block(move |call| Ok(find(call, &text))).await;
    let (parsed, machine, found) = before.map_err(|error| tasks::broken(&error))??;
    if found.status.is_terminal() {
        let words = format!("the task is over: it is {:?}", found.status).to_lowercase();
        return Err(ErrorData::invalid_params(words, None));
    }
    tasks::cancel(call, &id).await?;
    let _ = tokio::time::timeout(STOPPING, wait(call, &machine, parsed.seq)).await;
    in_block(call, move |call| get(call, &id)).await
}

/// Waits for an instruction's end without influencing it.
async fn wait(
    call: &CallContext,
    machine: &Arc<Machine>,
    seq: u64,
) -> std::result::Result<Option<Instruction>, ErrorData> {
    loop {
        let own = machine.clone();
        let now = call.block(move |_| Ok(own.follow(seq, u64::MAX)?)).await;
        match now.map_err(|error| tasks::broken(&error))? {
            FollowUpdate::Over(end) => return Ok(Some(*end)),
            FollowUpdate::Chunks(_) => {}
            FollowUpdate::Wait(change) => tokio::select! {
                () = change => {}
                () = call.context.ct.cancelled() => return Ok(None),
            },
        }
    }
}

/// The result of a task's call, once it has finished.
async fn result(call: &CallContext, id: String) -> LegacyAnswer {
    let text = id.clone();
    let found = call.block(move |call| Ok(find(call, &text))).await;
    let (parsed, machine, _) = found.map_err(|error| tasks::broken(&error))??;
    let end = wait(call, &machine, parsed.seq).await?;
    let end =
        end.ok_or_else(|| ErrorData::internal_error("the caller has stopped waiting", None))?;
    in_block(call, move |call| {
        let chunks = machine.outputs(parsed.seq, 0);
        let chunks = chunks.map_err(|error| tasks::broken(&error.into()))?;
        let result = call.tools.finish(&parsed.tool, ran(&machine, &end, &chunks))?;
        Ok(with_task(&result, &id))
    })
    .await
}

/// A result in the form of this revision, with its task.
pub fn with_task(result: &CallToolResult, id: &str) -> Value {
    let mut result = serde_json::to_value(result).unwrap_or_default();
    if let Some(result) = result.as_object_mut() {
        result.remove("resultType");
    }
    result["_meta"][RELATED] = json!({ "taskId": id });
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_library_would_misread_is_marked() {
        let marked =
            |mut message: Value| may_concern(message.to_string().as_bytes()) && mark(&mut message);
        assert!(marked(json!({ "method": "tasks/get", "params": { "taskId": "x" } })));
        assert!(marked(json!({ "method": "tools/call", "params": { "name": "x", "task": {} } })));
        assert!(!marked(json!({ "method": "tools/call", "params": { "name": "x" } })));
        assert!(!marked(
            json!({ "method": "tools/call", "params": { "arguments": { "task": {} } } })
        ));
        assert!(!marked(json!({ "method": 7 })) && !marked(json!(["tasks/get"])));
    }
}
