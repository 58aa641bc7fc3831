//! Tasks: calls that continue while the client does something else. A task is an instruction of a
//! machine, and its id names the instruction, so it stays valid as long as the machine exists, also
//! after a restart of the service.
//!
//!   run_code:lab@7  ──►  tool, machine, seq  ──►  the machine's records

use crate::call::{CallContext, ran};
use crate::error::{Error, Result};
use crate::text::first_line;
use rmcp::ErrorData;
use rmcp::model::{DetailedTask, JsonObject, Task, TaskPayload, TaskStatus};
use stasis_api::{Instruction, Status};
use stasis_machine::Machine;
use std::sync::Arc;

/// Suggested polling interval.
const POLL_MS: u64 = 500;

/// The parts of a task's id.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskId {
    pub tool: String,
    pub machine: String,
    pub seq: u64,
}

impl TaskId {
    pub fn parse(text: &str) -> Option<TaskId> {
        let (tool, address) = text.split_once(':')?;
        let (machine, seq) = address.rsplit_once('@')?;
        let id = TaskId { tool: tool.into(), machine: machine.into(), seq: seq.parse().ok()? };
        // one task has one id
        (id.to_string() == text).then_some(id)
    }
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}@{}", self.tool, self.machine, self.seq)
    }
}

/// A task that does not exist for this account.
pub fn unknown(id: &str) -> ErrorData {
    ErrorData::invalid_params(format!("there is no task `{}`", first_line(id, 200)), None)
}

/// An error of a request about tasks.
pub fn broken(error: &Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), serde_json::to_value(error.body()).ok())
}

/// A task that was just made.
pub fn open(tool: &str, machine: &Arc<Machine>, seq: u64) -> Result<Task> {
    let id = TaskId { tool: tool.to_owned(), machine: machine.name().to_string(), seq };
    Ok(task(&id, &machine.instruction(seq)?))
}

/// The status of an instruction as a task.
pub fn task(id: &TaskId, instruction: &Instruction) -> Task {
    let times = [instruction.finished_at, instruction.started_at];
    let updated = times.into_iter().flatten().next().unwrap_or(instruction.queued_at);
    let (status, words) = status(instruction);
    Task::new(id.to_string(), status, instruction.queued_at.to_string(), updated.to_string())
        .with_status_message(format!("{}@{} {words}", id.machine, id.seq))
        .with_poll_interval_ms(POLL_MS)
}

fn status(instruction: &Instruction) -> (TaskStatus, &'static str) {
    let outcome = instruction.outcome.as_ref();
    let error = outcome.and_then(|outcome| outcome.error.as_ref()).map(|error| &*error.name);
    match (instruction.status, error) {
        (Status::Queued, _) => (TaskStatus::Working, "waits for the instructions before it"),
        (Status::Running, _) => (TaskStatus::Working, "runs"),
        (Status::Cancelled, _) => (TaskStatus::Cancelled, "was cancelled before it ran"),
        // an instruction that reached its timeout has a result that reports it
        (Status::Interrupted, Some(name)) if is_interrupt(name) => {
            (TaskStatus::Cancelled, "was interrupted; the machine's state is kept")
        }
        (Status::Lost, _) => (TaskStatus::Completed, "was lost"),
        (Status::Interrupted | Status::Done, _) => (TaskStatus::Completed, "is over"),
        (Status::Failed, _) => (TaskStatus::Completed, "failed"),
    }
}

/// Whether an error of this name means that the instruction was interrupted.
fn is_interrupt(name: &str) -> bool {
    stasis_agent::LANGUAGES.iter().any(|language| language.interrupts()[0] == name)
}

/// The instruction of a task, if it belongs to the caller and the id names a tool that makes tasks.
pub fn find(call: &CallContext, id: &TaskId) -> Option<(Arc<Machine>, Instruction)> {
    call.tools.find(&id.tool).filter(|entry| entry.finish.is_some())?;
    let machine = call.machine(&id.machine).ok()?;
    let instruction = machine.instruction(id.seq).ok()?;
    Some((machine, instruction))
}

/// A task with its result, if it has one.
pub fn detailed(call: &CallContext, id: &str) -> std::result::Result<DetailedTask, ErrorData> {
    let parsed = TaskId::parse(id).ok_or_else(|| unknown(id))?;
    let (machine, instruction) = find(call, &parsed).ok_or_else(|| unknown(id))?;
    let task = task(&parsed, &instruction);
    let payload = match task.status {
        TaskStatus::Completed => result(call, &parsed, &machine, &instruction)?,
        TaskStatus::Cancelled => TaskPayload::Cancelled,
        _ => TaskPayload::Working,
    };
    Ok(DetailedTask::new(task, payload))
}

fn result(
    call: &CallContext,
    id: &TaskId,
    machine: &Arc<Machine>,
    end: &Instruction,
) -> std::result::Result<TaskPayload, ErrorData> {
    let chunks = machine.outputs(id.seq, 0).map_err(|error| broken(&error.into()))?;
    let payload = match call.tools.finish(&id.tool, ran(machine, end, &chunks)) {
        Ok(result) => TaskPayload::Completed { result: object(&result) },
        Err(error) => TaskPayload::Failed { error: object(&error) },
    };
    Ok(payload)
}

fn object(value: &impl serde::Serialize) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}

/// Ends a task's instruction, whether it waits or runs; a finished one is unchanged.
pub async fn cancel(call: &CallContext, id: &str) -> std::result::Result<(), ErrorData> {
    let text = id.to_owned();
    let found = call.block(move |call| {
        let found = TaskId::parse(&text).and_then(|id| find(call, &id));
        let Some((machine, instruction)) = found else { return Ok(false) };
        machine.stop(instruction.seq)?;
        Ok(true)
    });
    let found = found.await.map_err(|error| broken(&error))?;
    found.then_some(()).ok_or_else(|| unknown(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = TaskId { tool: "run_code".into(), machine: "lab-1".into(), seq: 7 };
        assert_eq!(TaskId::parse("run_code:lab-1@7"), Some(id));
        for odd in ["", "lab@7", "run_code:lab", "run_code:lab@", "run_code:lab@07", "a:b@-1"] {
            assert_eq!(TaskId::parse(odd), None, "{odd}");
        }
    }
}
