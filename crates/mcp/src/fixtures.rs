//! Fixtures that the protocol's conformance suite calls by name: tools, prompts and resources for
//! it alone, behind the same endpoint and code as ours. No user sees them: they exist only if
//! `McpOptions::conformance` is set, which only a test does.

mod jobs;
mod plain;
mod readable;
mod rounds;
mod seal;
mod talk;

pub use jobs::{TASKS, has_task};
pub use readable::{prompt, prompts, read, resources, templates};

use crate::table::ToolEntry;
use rmcp::model::{
    CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams, InputRequest, JsonObject,
    Tool,
};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// A red dot.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAA\
                   AElFTkSuQmCC";

pub static TOOLS: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| {
    let groups = [plain::tools(), talk::tools(), rounds::tools(), jobs::tools()];
    groups.into_iter().flatten().collect()
});

/// A tool with the arguments of `schema`.
fn tool_with(name: &'static str, about: &'static str, schema: Value) -> Tool {
    Tool::new(name, about, object(schema))
}

fn tool(name: &'static str, about: &'static str) -> Tool {
    tool_with(name, about, json!({ "type": "object", "properties": {} }))
}

fn object(value: Value) -> JsonObject {
    value.as_object().cloned().unwrap_or_default()
}

fn said(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// A form for the user; its schema has these properties, all required.
fn form(message: &str, properties: Value) -> Option<ElicitRequestParams> {
    let needed: Vec<_> = properties.as_object()?.keys().cloned().collect();
    let schema = json!({ "type": "object", "properties": properties, "required": needed });
    let requested_schema = serde_json::from_value(schema).ok()?;
    let message = message.to_owned();
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// The same as a question of an earlier round.
fn question(message: &str, properties: Value) -> Option<InputRequest> {
    form(message, properties).map(|form| InputRequest::Elicitation(ElicitRequest::new(form)))
}

fn text_of<'a>(arguments: &'a JsonObject, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}
