//! The end of a run, in mcp-v8's terms.

use crate::error::{Error, Result};
use crate::executions::RunningExecution;
use stasis_api::{Instruction, Status};
use std::sync::atomic::Ordering;

/// The end of a run.
pub struct RunVerdict {
    pub status: &'static str,
    pub error: Option<String>,
    pub result: Option<String>,
}

pub fn unsaved(error: &Error) -> RunVerdict {
    let said = format!("the run ended, but its state could not be saved: {error}");
    RunVerdict { status: "failed", error: Some(said), result: None }
}

pub fn verdict(end: &Result<Instruction>, own: &RunningExecution) -> RunVerdict {
    let is_cancelled = own.is_cancelled.load(Ordering::SeqCst);
    let with =
        |status, error: &str| RunVerdict { status, error: Some(error.to_owned()), result: None };
    let end = match end {
        Ok(end) => end,
        Err(_) if is_cancelled => return with("cancelled", "Execution cancelled"),
        Err(error) => return with("failed", &error.message),
    };
    let outcome = end.outcome.clone().unwrap_or_default();
    match end.status {
        Status::Done => {
            let result =
                if own.run.repl { outcome.value.unwrap_or_default() } else { String::new() };
            RunVerdict { status: "completed", error: None, result: Some(result) }
        }
        Status::Interrupted | Status::Cancelled if is_cancelled => {
            with("cancelled", "Execution cancelled")
        }
        Status::Interrupted => with("timed_out", "Execution timed out"),
        Status::Lost if is_cancelled => with("cancelled", "Execution cancelled"),
        _ => with("failed", &described(outcome.error)),
    }
}

/// An error as Node prints it, without the frames of the program that runs the code.
fn described(failure: Option<stasis_api::Failure>) -> String {
    let Some(failure) = failure else { return "the run ended without a result".into() };
    if failure.name == "machine.out_of_memory" {
        return format!("Out of memory: {}", failure.message);
    }
    let is_own = |line: &&str| line.starts_with("    at ") && !line.contains("instruction ");
    let frames: Vec<_> = failure.traceback.lines().filter(is_own).collect();
    let head = format!("{}: {}", failure.name, failure.message);
    std::iter::once(head.as_str()).chain(frames).collect::<Vec<_>>().join("\n")
}
