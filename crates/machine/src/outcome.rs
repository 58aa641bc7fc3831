//! Converts the end of an instruction to API types: from an agent's report, bounded here, or from
//! an error of the host.

use crate::error::Error;
use stasis_agent::Language;
use stasis_api::{Failure, Outcome};
use stasis_protocol::Done;
use std::time::Duration;

pub fn outcome_of(done: Done) -> Outcome {
    let error = done.error.map(|error| Failure {
        name: error.name,
        message: error.message,
        traceback: error.traceback,
    });
    Outcome {
        value: done.value,
        data: done.data,
        shown: Vec::new(),
        error,
        runtime_ms: if done.runtime_ms.is_finite() { done.runtime_ms.max(0.0) } else { 0.0 },
        touched: bounded(done.touched),
        cut: done.cut,
        artifacts: Vec::new(),
    }
}

/// Converts an error of ours to an instruction's.
pub fn failure_of(error: &Error) -> Failure {
    Failure {
        name: error.code().to_owned(),
        message: error.to_string(),
        traceback: format!("{}: {error}", error.code()),
    }
}

/// Bounds a machine's report before it is stored.
fn bounded(names: Vec<String>) -> Vec<String> {
    const NAMES: usize = 100;
    const LONGEST: usize = 1000;
    names.into_iter().filter(|name| name.len() <= LONGEST).take(NAMES).collect()
}

/// The message for an interrupted instruction.
pub fn explain(outcome: &mut Outcome, timeout: Option<Duration>, language: &dyn Language) {
    let Some(error) = &mut outcome.error else { return };
    let words = match timeout {
        Some(limit) => format!(
            "it ran longer than its timeout of {} s and was interrupted; its state is kept. \
             Set a longer one: --timeout, or timeout_seconds",
            limit.as_secs_f64()
        ),
        None => "it was interrupted; its state is kept".to_owned(),
    };
    let [interrupted, timed_out] = language.interrupts();
    let name = if timeout.is_some() { timed_out } else { interrupted };
    error.traceback = format!("{}\n{name}: {words}", error.traceback.trim_end());
    error.name = name.to_owned();
    error.message = words;
}
