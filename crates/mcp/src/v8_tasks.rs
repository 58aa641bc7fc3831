//! Tasks of mcp-v8's tools: a long call of `run_js`. Its id names the execution, so it stays valid
//! as long as the execution is kept, also after a restart of the service.
//!
//!   run_js:<execution> ──► the execution's status, and what `run_js` would have answered
//!
//! Cancelling a task cancels its execution. A failed run is a completed task: its result contains
//! the error.

use crate::call::CallContext;
use crate::legacy::{self, LegacyAnswer, in_block};
use crate::table::ToolReply;
use crate::tasks::{broken, unknown};
use crate::v8::{RUN_JS, rendered, settings};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, CreateTaskResult, DetailedTask, JsonObject, Task, TaskPayload, TaskStatus,
};
use serde_json::{Value, json};
use stasis_mcpv8::{ExecutionInfo, ExecutionSummary, V8Call, V8Mode};
use std::time::Duration;

/// Suggested polling interval.
const POLL_MS: u64 = 500;
/// Maximum time for a cancelled run to stop before the client is answered.
const STOPPING: Duration = Duration::from_secs(30);

/// The execution of a task.
fn execution(id: &str) -> Option<&str> {
    id.strip_prefix(RUN_JS)?.strip_prefix(':')
}

fn task(info: &ExecutionInfo) -> Task {
    let updated = info.completed_at.as_ref().unwrap_or(&info.started_at);
    let status = match info.status.as_str() {
        "running" => TaskStatus::Working,
        "cancelled" => TaskStatus::Cancelled,
        _ => TaskStatus::Completed,
    };
    let id = format!("{RUN_JS}:{}", info.execution_id);
    Task::new(id, status, info.started_at.clone(), updated.clone())
        .with_status_message(format!("the run is {}", info.status))
        .with_poll_interval_ms(POLL_MS)
}

/// A task that was just made.
pub async fn open(call: &CallContext, id: String) -> ToolReply {
    let account = call.account.clone();
    let info = call.block(move |call| Ok(call.v8.execution(&account, &id))).await;
    let info = info.map_err(|error| broken(&error))?;
    let info = info.map_err(|error| ErrorData::internal_error(error.message, None))?;
    Ok(CreateTaskResult::new(task(&info)).into())
}

/// The answer of `run_js` for a finished execution.
pub fn result(own: &V8Call, id: &str) -> CallToolResult {
    rendered(match own.settings.mode.has_sessions() {
        true => stasis_mcpv8::started(id),
        false => stasis_mcpv8::finished(own, id),
    })
}

fn info(call: &CallContext, id: &str) -> std::result::Result<ExecutionInfo, ErrorData> {
    let found = execution(id).and_then(|own| call.v8.execution(&call.account, own).ok());
    found.ok_or_else(|| unknown(id))
}

/// A task with its result, if it has one.
pub fn detailed(
    call: &CallContext,
    mode: V8Mode,
    id: &str,
) -> std::result::Result<DetailedTask, ErrorData> {
    let info = info(call, id)?;
    let task = task(&info);
    let payload = match task.status {
        TaskStatus::Completed => {
            let result = result(&as_caller(call, mode), &info.execution_id);
            TaskPayload::Completed { result: object(&result) }
        }
        TaskStatus::Cancelled => TaskPayload::Cancelled,
        _ => TaskPayload::Working,
    };
    Ok(DetailedTask::new(task, payload))
}

fn as_caller(call: &CallContext, mode: V8Mode) -> V8Call {
    let settings = settings(call, mode);
    V8Call { v8: call.v8.clone(), account: call.account.clone(), settings }
}

fn object(value: &impl serde::Serialize) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}

/// Cancels a task's run; a finished one is unchanged.
pub async fn cancel(call: &CallContext, id: &str) -> std::result::Result<(), ErrorData> {
    let own = id.to_owned();
    let done = call.block(move |call| {
        let info = match info(call, &own) {
            Ok(info) => info,
            Err(error) => return Ok(Err(error)),
        };
        if !info.is_over() {
            // it may have finished meanwhile
            let _ = call.v8.cancel(&call.account, &info.execution_id);
        }
        Ok(Ok(()))
    });
    done.await.map_err(|error| broken(&error))?
}

/// Waits for the end of a task's run, unless the caller cancels.
async fn over(call: &CallContext, id: &str) {
    let open = execution(id).and_then(|own| call.v8.open_execution(&call.account, own));
    if let Some(open) = open {
        tokio::select! {
            () = open.over() => {}
            () = call.context.ct.cancelled() => {}
        }
    }
}

/// The same requests in the form of revision 2025-11-25.
pub async fn answer(call: &CallContext, mode: V8Mode, method: &str, id: String) -> LegacyAnswer {
    let own = id.clone();
    let get = move |call: &CallContext| info(call, &own).map(|info| legacy::task(&task(&info)));
    match method {
        "tasks/list" => in_block(call, list).await,
        "tasks/cancel" => {
            let own = id.clone();
            let is_over =
                move |call: &CallContext| info(call, &own).map(|own| own.is_over().into());
            if in_block(call, is_over).await? == Value::Bool(true) {
                return Err(ErrorData::invalid_params("the task is over", None));
            }
            cancel(call, &id).await?;
            let _ = tokio::time::timeout(STOPPING, over(call, &id)).await;
            in_block(call, get).await
        }
        "tasks/result" => {
            over(call, &id).await;
            in_block(call, move |call| whole(call, mode, &id)).await
        }
        _ => in_block(call, get).await,
    }
}

/// The unfinished runs.
fn list(call: &CallContext) -> LegacyAnswer {
    let all = call.v8.executions(&call.account);
    let all = all.map_err(|error| ErrorData::internal_error(error.message, None))?;
    let open = |one: &ExecutionSummary| one.status == "running";
    let ids = all.into_iter().filter(open).map(|one| one.execution_id);
    let tasks = ids.filter_map(|id| call.v8.execution(&call.account, &id).ok());
    Ok(json!({ "tasks": tasks.map(|info| legacy::task(&task(&info))).collect::<Vec<_>>() }))
}

/// The result of a task's call.
fn whole(call: &CallContext, mode: V8Mode, id: &str) -> LegacyAnswer {
    let info = info(call, id)?;
    let result = result(&as_caller(call, mode), &info.execution_id);
    Ok(legacy::with_task(&result, id))
}
