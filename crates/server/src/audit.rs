//! The audit log: one JSON object per line for every request that changes something, with its
//! caller.
//!
//! Queries and bodies are never written, because they can contain tokens and code. If a line cannot
//! be written, the service logs an error and the request continues.

use crate::error::{Error, ErrorContext};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use stasis_api::Timestamp;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Maximum characters of a name chosen by a client.
const LONGEST: usize = 100;

pub struct Audit {
    file: Mutex<File>,
}

#[derive(Debug, Serialize)]
pub struct AuditEntry<'a> {
    /// The request's id.
    pub id: &'a str,
    pub account: Option<&'a str>,
    /// The token's id.
    pub token: Option<&'a str>,
    pub peer: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    /// The subject of an MCP call, which its path does not contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<&'a str>,
    pub status: u16,
}

/// A tool call, as the audit log records it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolCall {
    pub tool: Option<String>,
    pub machine: Option<String>,
}

impl ToolCall {
    /// The tool call in a message, if it is one. Of its arguments only the machine's name is kept.
    pub fn of(message: &[u8]) -> ToolCall {
        let Ok(message) = serde_json::from_slice::<Value>(message) else {
            return ToolCall::default();
        };
        if message["method"] != "tools/call" {
            return ToolCall::default();
        }
        let text = |value: &Value| value.as_str().map(|text| text.chars().take(LONGEST).collect());
        let arguments = &message["params"]["arguments"];
        let named = ["machine", "machine_name", "machine_id", "name", "replId", "sandbox_id"];
        ToolCall {
            tool: text(&message["params"]["name"]),
            machine: named.iter().find_map(|name| text(&arguments[*name])),
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    at: Timestamp,
    #[serde(flatten)]
    entry: &'a AuditEntry<'a>,
}

impl Audit {
    pub fn open(path: &Path) -> Result<Audit, Error> {
        let file = File::options().create(true).append(true).mode(0o600).open(path);
        let file = file.doing(|| format!("open {}", path.display()))?;
        Ok(Audit { file: Mutex::new(file) })
    }

    pub fn write(&self, entry: &AuditEntry<'_>) {
        let line = serde_json::to_string(&Line { at: Timestamp::now(), entry });
        let Ok(mut line) = line else { return };
        line.push('\n');
        let mut file = self.file.lock();
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_by_tool_and_machine_and_nothing_else() {
        let call = br#"{"method":"tools/call","params":{"name":"run_code",
            "arguments":{"machine":"lab","code":"secret"}}}"#;
        let known = ToolCall { tool: Some("run_code".into()), machine: Some("lab".into()) };
        assert_eq!(ToolCall::of(call), known);
        for other in [&b"{"[..], b"[]", br#"{"method":"tools/list"}"#] {
            assert_eq!(ToolCall::of(other), ToolCall::default());
        }
    }
}
