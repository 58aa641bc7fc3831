//! Results in the format of foreverVM's clients.
//!
//! These clients are strict in ways their types do not show: `value` is null for no value and
//! absent for a failure, `error` is absent for success, and `runtime_ms` is a whole number.

use crate::{Artifact, Chunk, Failure, Instruction, Outcome, Status};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Picture {
    /// The image in base64.
    pub png: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecResult {
    /// The repr of the last expression, null if it has no value; absent after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::machine::nullable")]
    #[schema(value_type = Option<String>)]
    pub value: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Picture>,
    /// The traceback; absent after success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub runtime_ms: u64,
    /// Values too large for the result, kept whole; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResultBody {
    pub instruction_id: u64,
    pub instruction_seq: u64,
    pub result: ExecResult,
}

/// A message from a client over a WebSocket.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromClient {
    Exec {
        instruction: crate::Code,
        request_id: u64,
        /// The W3C trace context; by default that of the request that opened the WebSocket.
        #[serde(default)]
        traceparent: Option<String>,
    },
}

/// A message to a client over a WebSocket; `output` and `result` are also lines of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToClient {
    Connected {
        machine_name: String,
    },
    ExecReceived {
        seq: u64,
        request_id: u64,
    },
    Output {
        chunk: Chunk,
        instruction_id: u64,
    },
    Result {
        instruction_id: u64,
        result: ExecResult,
    },
    /// A notice for people; clients ignore it.
    Message {
        message: String,
        level: &'static str,
    },
}

impl ExecResult {
    /// A failure of the service or the connection, not of an instruction.
    pub fn failed(error: impl Into<String>) -> ExecResult {
        let (error, artifacts) = (Some(error.into()), Vec::new());
        ExecResult { value: None, data: None, error, runtime_ms: 0, artifacts }
    }
}

impl From<&Instruction> for ExecResult {
    fn from(instruction: &Instruction) -> ExecResult {
        let Some(outcome) = &instruction.outcome else {
            return ExecResult::failed("instruction.unknown: its end is unknown");
        };
        let runtime_ms = outcome.runtime_ms.max(0.0).round() as u64;
        let artifacts = outcome.artifacts.clone();
        match &outcome.error {
            Some(failure) => {
                let late = instruction.status == Status::Interrupted;
                let error = Some(words(failure, late));
                ExecResult { value: None, data: None, error, runtime_ms, artifacts }
            }
            None => {
                let value = Some(outcome.value.clone());
                let data = picture(outcome);
                ExecResult { value, data, error: None, runtime_ms, artifacts }
            }
        }
    }
}

/// Clients recognize a timeout by these two words.
fn words(failure: &Failure, interrupted: bool) -> String {
    let Failure { name, message, traceback } = failure;
    let text = match traceback.is_empty() {
        true => format!("{name}: {message}"),
        false => traceback.clone(),
    };
    match interrupted && name == "TimeoutError" {
        true => format!("{}\nTimed out", text.trim_end()),
        false => text,
    }
}

/// The image of the value, or else the last image that was shown.
fn picture(outcome: &Outcome) -> Option<Picture> {
    let shown = outcome.shown.iter().rev().map(|shown| &shown.data);
    let found = outcome.data.iter().chain(shown).find_map(|data| data.get("image/png"));
    let png = found?.as_str()?.to_owned();
    Some(Picture { png })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: Status, outcome: Outcome) -> String {
        let instruction = Instruction {
            seq: 0,
            code: String::new(),
            status,
            queued_at: jiff::Timestamp::UNIX_EPOCH,
            started_at: None,
            finished_at: None,
            outputs: 0,
            rolled_back: false,
            outcome: Some(outcome),
            receipt: None,
        };
        serde_json::to_string(&ExecResult::from(&instruction)).expect("JSON")
    }

    #[test]
    fn a_value_has_no_error_and_no_value_is_null() {
        let outcome = Outcome { value: Some("2".into()), runtime_ms: 1.6, ..Default::default() };
        assert_eq!(ended(Status::Done, outcome), r#"{"value":"2","runtime_ms":2}"#);
        let nothing = ended(Status::Done, Outcome::default());
        assert_eq!(nothing, r#"{"value":null,"runtime_ms":0}"#);
    }

    #[test]
    fn a_failure_has_no_value() {
        let error = Failure { traceback: "Boom".into(), ..Default::default() };
        let outcome = Outcome { error: Some(error), ..Default::default() };
        assert_eq!(ended(Status::Done, outcome), r#"{"error":"Boom","runtime_ms":0}"#);
    }

    #[test]
    fn a_timeout_says_so_but_a_timeout_of_the_program_does_not() {
        let error = Failure { name: "TimeoutError".into(), ..Default::default() };
        let outcome = Outcome { error: Some(error), ..Default::default() };
        assert!(ended(Status::Interrupted, outcome.clone()).contains("Timed out"));
        assert!(!ended(Status::Done, outcome).contains("Timed out"));
    }

    #[test]
    fn pictures_come_from_the_value_first() {
        let png = |text: &str| crate::Data::from([("image/png".into(), text.into())]);
        let shown = vec![crate::Shown { after: 0, data: png("shown") }];
        let outcome = Outcome { shown, ..Default::default() };
        assert!(ended(Status::Done, outcome.clone()).contains(r#""data":{"png":"shown"}"#));
        let both = Outcome { data: Some(png("own")), ..outcome };
        assert!(ended(Status::Done, both).contains(r#""data":{"png":"own"}"#));
    }
}
