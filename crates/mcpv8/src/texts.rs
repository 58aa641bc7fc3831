//! Texts of this surface: instructions, the four resources, and the document of its routes.

use crate::V8Mode;
use crate::tools::tools;
use serde_json::{Map, Value, json};

pub(crate) const GUIDE: &str = include_str!("guide.md");

/// A text that can be read by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct V8Resource {
    pub uri: &'static str,
    pub name: &'static str,
    pub mime: &'static str,
}

pub const RESOURCES: [V8Resource; 4] = [
    V8Resource { uri: "docs://readme", name: "README", mime: "text/markdown" },
    V8Resource { uri: "docs://llms-txt", name: "llms.txt", mime: "text/markdown" },
    V8Resource { uri: "docs://openapi", name: "OpenAPI spec", mime: "application/json" },
    V8Resource { uri: "docs://tools", name: "MCP tool list", mime: "application/json" },
];

pub fn instructions(mode: V8Mode) -> &'static str {
    match mode {
        V8Mode::Stateless => {
            "JavaScript execution service. Every run_js is fresh: nothing persists between calls. \
             Read docs://readme, docs://llms-txt, docs://openapi and docs://tools for details."
        }
        V8Mode::Heap => {
            "JavaScript execution service. Globals, files and processes persist between calls of \
             run_js in a session. Read docs://readme, docs://llms-txt, docs://openapi and \
             docs://tools for details."
        }
        V8Mode::Files => {
            "JavaScript execution service. The files below /work persist between calls of run_js \
             in a session; globals do not. Read docs://readme, docs://llms-txt, docs://openapi and \
             docs://tools for details."
        }
        V8Mode::HeapAndFiles => {
            "JavaScript execution service. Globals, files and processes persist between calls of \
             run_js in a session, and the files below /work also under ids and labels. Read \
             docs://readme, docs://llms-txt, docs://openapi and docs://tools for details."
        }
    }
}

/// Describes the state and the answer of a run in a mode.
pub(crate) fn run_js_state(mode: V8Mode) -> &'static str {
    match mode {
        V8Mode::Stateless => {
            "Every run is fresh: nothing persists between runs. The answer has the output."
        }
        V8Mode::Heap => {
            "globalThis, timers, WebAssembly, files and processes persist from run to run of a \
             session; top-level names do not (repl: true keeps them). The answer has an \
             execution_id, for get_execution and get_execution_output."
        }
        V8Mode::Files => {
            "Files below /work persist from run to run of a session, under the id `fs`; \
             variables and other files do not. The answer has an execution_id, for get_execution \
             and get_execution_output."
        }
        V8Mode::HeapAndFiles => {
            "globalThis, timers, WebAssembly, files and processes persist from run to run of a \
             session, and files below /work also under the id `fs`; top-level names do not \
             (repl: true keeps them). The answer has an execution_id, for get_execution and \
             get_execution_output."
        }
    }
}

/// A resource's text; none, if there is no such resource.
pub fn read_resource(uri: &str, mode: V8Mode) -> Option<(&'static str, String)> {
    let found = RESOURCES.iter().find(|one| one.uri == uri)?;
    let text = match uri {
        "docs://openapi" => serde_json::to_string_pretty(&openapi()).unwrap_or_default(),
        "docs://tools" => serde_json::to_string_pretty(&tool_list(mode)).unwrap_or_default(),
        _ => GUIDE.to_owned(),
    };
    Some((found.mime, text))
}

fn tool_list(mode: V8Mode) -> Value {
    let shown = tools().into_iter().filter(|tool| tool.is_shown(mode));
    let one = |tool: crate::V8Tool| {
        let schema = tool.schema(mode);
        json!({ "name": tool.name, "description": tool.about(mode), "input_schema": schema })
    };
    json!({ "mode": mode.name(), "tools": shown.map(one).collect::<Vec<_>>() })
}

/// A route of the document: method, path, operation, description and responses.
type Route =
    (&'static str, &'static str, &'static str, &'static str, &'static [(u16, &'static str)]);

const ROUTES: [Route; 25] = [
    ("get", "/api/version", "version_handler", "The version", &[(200, "Version")]),
    (
        "post",
        "/api/exec",
        "exec_handler",
        "Run code",
        &[(202, "Accepted"), (200, "ExecutionInfo"), (400, "Error"), (415, "Error")],
    ),
    (
        "get",
        "/api/executions",
        "list_executions_handler",
        "List executions",
        &[(200, "Executions")],
    ),
    (
        "get",
        "/api/executions/{id}",
        "get_execution_handler",
        "An execution",
        &[(200, "ExecutionInfo"), (404, "Error")],
    ),
    (
        "get",
        "/api/executions/{id}/output",
        "get_execution_output_handler",
        "A page of its output",
        &[(200, "OutputPage")],
    ),
    (
        "get",
        "/api/executions/{id}/stream",
        "stream_execution_handler",
        "Its output as it comes, then the execution, one JSON object per line",
        &[(200, "Any"), (404, "Error")],
    ),
    (
        "post",
        "/api/executions/{id}/cancel",
        "cancel_execution_handler",
        "End it",
        &[(200, "Done"), (400, "Error")],
    ),
    ("get", "/api/artifacts", "list_artifacts_handler", "List artifacts", &[(200, "Artifacts")]),
    (
        "get",
        "/api/artifacts/{key}",
        "get_artifact_handler",
        "An artifact's bytes",
        &[(200, "Any"), (404, "Error")],
    ),
    ("get", "/api/sessions", "list_sessions_handler", "List sessions", &[(200, "Any")]),
    (
        "get",
        "/api/sessions/{session}/log",
        "session_log_handler",
        "The runs of a session",
        &[(200, "Any")],
    ),
    (
        "get",
        "/api/heaps/{heap}/tags",
        "get_heap_tags_handler",
        "The tags of a heap",
        &[(200, "Any"), (404, "Error")],
    ),
    (
        "put",
        "/api/heaps/{heap}/tags",
        "set_heap_tags_handler",
        "Replace the tags of a heap",
        &[(200, "Done"), (404, "Error")],
    ),
    ("post", "/api/heaps/query", "query_heaps_handler", "Find heaps by tags", &[(200, "Any")]),
    ("get", "/api/cli", "cli_index_handler", "Client programs: none", &[(200, "Any")]),
    ("get", "/api/cli/{platform}", "cli_download_handler", "A client program", &[(404, "Error")]),
    (
        "post",
        "/api/setup/files",
        "setup_file_handler",
        "Keep the bytes of a WebAssembly module or of a skill's file",
        &[(200, "Any"), (400, "Error"), (507, "Error")],
    ),
    (
        "post",
        "/api/setup",
        "setup_handler",
        "Keep texts, WebAssembly modules and skills under an id for X-MCP-V8-Setup",
        &[(200, "Any"), (400, "Error"), (404, "Error")],
    ),
    (
        "get",
        "/api/fs/labels",
        "fs_labels_handler",
        "List labels",
        &[(200, "Labels"), (400, "Error")],
    ),
    (
        "post",
        "/api/fs/labels",
        "fs_set_label_handler",
        "Create a label, or point it elsewhere",
        &[(200, "LabelAt"), (400, "Error")],
    ),
    (
        "get",
        "/api/fs/labels/{label}",
        "fs_resolve_handler",
        "The tree a label names",
        &[(200, "LabelAt"), (400, "Error"), (404, "Error")],
    ),
    (
        "get",
        "/api/fs/labels/{label}/log",
        "fs_log_handler",
        "Where a label was, oldest first",
        &[(200, "Any"), (400, "Error")],
    ),
    (
        "post",
        "/api/fs/push",
        "fs_push_handler",
        "Advance a label",
        &[(200, "Any"), (409, "Any"), (400, "Error")],
    ),
    (
        "post",
        "/api/fs/reset",
        "fs_reset_handler",
        "Point a label back at a tree of its log",
        &[(200, "LabelAt"), (400, "Error")],
    ),
    (
        "post",
        "/api/fs/merge",
        "fs_merge_handler",
        "Merge two trees",
        &[(200, "Any"), (400, "Error")],
    ),
];

/// The document of the routes.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for (method, path, operation, summary, answers) in ROUTES {
        let answers: Map<String, Value> = answers
            .iter()
            .map(|(status, schema)| {
                let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
                let content = json!({ "application/json": { "schema": schema } });
                (status.to_string(), json!({ "description": summary, "content": content }))
            })
            .collect();
        let mut own = json!({
            "operationId": operation, "summary": summary, "parameters": parameters(path),
            "responses": answers,
        });
        if let Some(body) = body(operation) {
            let content = json!({ "application/json": { "schema": body } });
            own["requestBody"] = json!({ "required": true, "content": content });
        }
        let at = paths.entry(path).or_insert_with(|| json!({}));
        at[method] = own;
    }
    json!({
        "openapi": "3.0.3",
        "info": { "title": "mcp-v8 interface of Stasis", "version": "0.1.0" },
        "paths": paths,
        "components": { "schemas": schemas() },
    })
}

fn parameters(path: &str) -> Vec<Value> {
    let one = |name: &str, place: &str, kind: &str| {
        let required = place == "path";
        json!({ "name": name, "in": place, "required": required, "schema": { "type": kind } })
    };
    let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<_> = named.map(|name| one(name, "path", "string")).collect();
    if path.ends_with("/output") {
        let names = ["line_offset", "line_limit", "byte_offset", "byte_limit"];
        all.extend(names.map(|name| one(name, "query", "integer")));
    }
    if path == "/api/exec" {
        all.push(one("wait", "query", "number"));
    }
    if path.starts_with("/api/fs/") && path.ends_with("/log") {
        all.push(one("limit", "query", "integer"));
    }
    all
}

fn body(operation: &str) -> Option<Value> {
    let text = || json!({ "type": "string", "nullable": true });
    let number = || json!({ "type": "integer", "nullable": true });
    let tags = || json!({ "type": "object", "additionalProperties": { "type": "string" } });
    match operation {
        "exec_handler" => Some(json!({ "type": "object", "required": ["code"], "properties": {
            "code": { "type": "string" }, "heap": text(), "fs": text(), "session": text(),
            "heap_memory_max_mb": number(), "execution_timeout_secs": number(),
            "tags": { "type": "object", "nullable": true,
                      "additionalProperties": { "type": "string" } },
            "repl": { "type": "boolean", "nullable": true },
        } })),
        "set_heap_tags_handler" | "query_heaps_handler" => Some(
            json!({ "type": "object", "required": ["tags"], "properties": { "tags": tags() } }),
        ),
        "fs_set_label_handler" => Some(body_of(&["name", "ca_id"], &["message"], &[])),
        "fs_push_handler" => {
            let more = ["label", "expected", "message"];
            Some(body_of(&["ca_id"], &more, &["force", "detach"]))
        }
        "fs_reset_handler" => Some(body_of(&["label", "ca_id"], &["message"], &["allow_unlogged"])),
        "fs_merge_handler" => Some(body_of(&["ours", "theirs"], &["base", "prefer"], &[])),
        _ => None,
    }
}

/// A body with required and optional texts, and flags.
fn body_of(required: &[&str], more: &[&str], switches: &[&str]) -> Value {
    let text = |nullable: bool| json!({ "type": "string", "nullable": nullable });
    let mut fields = Map::new();
    fields.extend(required.iter().map(|name| ((*name).to_owned(), text(false))));
    fields.extend(more.iter().map(|name| ((*name).to_owned(), text(true))));
    let switch = || json!({ "type": "boolean", "nullable": true });
    fields.extend(switches.iter().map(|name| ((*name).to_owned(), switch())));
    json!({ "type": "object", "required": required, "properties": fields })
}

fn schemas() -> Value {
    let text = || json!({ "type": "string" });
    let maybe = || json!({ "type": "string", "nullable": true });
    let number = || json!({ "type": "integer", "minimum": 0 });
    let list = |of: &str| {
        let items = json!({ "$ref": format!("#/components/schemas/{of}") });
        json!({ "type": "array", "items": items })
    };
    let object = |fields: Value| {
        let names: Vec<_> = fields.as_object().into_iter().flat_map(Map::keys).cloned().collect();
        json!({ "type": "object", "required": names, "properties": fields })
    };
    json!({
        "Any": {},
        "Error": object(json!({ "error": text() })),
        "Done": object(json!({ "ok": { "type": "boolean" } })),
        "Version": object(json!({ "version": text() })),
        "LabelAt": object(json!({ "label": text(), "ca_id": text() })),
        "Labels": object(json!({ "labels": { "type": "array", "items": {} } })),
        "Accepted": object(json!({ "execution_id": text() })),
        "Executions": object(json!({ "executions": { "type": "array", "items": {} } })),
        "Artifacts": object(json!({ "artifacts": list("Artifact") })),
        "Artifact": object(json!({
            "key": text(), "mime_type": text(), "size_bytes": number(), "created_at": text(),
        })),
        "ExecutionInfo": { "type": "object",
            "required": ["execution_id", "status", "started_at", "artifacts"],
            "properties": {
                "execution_id": text(), "status": text(), "result": maybe(), "heap": maybe(),
                "fs": maybe(), "error": maybe(), "started_at": text(), "completed_at": maybe(),
                "artifacts": list("Artifact"),
            } },
        "OutputPage": object(json!({
            "execution_id": text(), "data": text(), "start_line": number(), "end_line": number(),
            "next_line_offset": number(), "total_lines": number(), "start_byte": number(),
            "end_byte": number(), "next_byte_offset": number(), "total_bytes": number(),
            "has_more": { "type": "boolean" }, "status": text(),
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_can_be_read() {
        for one in RESOURCES {
            let (mime, text) = read_resource(one.uri, V8Mode::Heap).expect(one.uri);
            assert_eq!(mime, one.mime);
            assert!(!text.is_empty());
        }
        assert_eq!(read_resource("docs://other", V8Mode::Heap), None);
        let (_, list) = read_resource("docs://tools", V8Mode::Stateless).expect("tools");
        let list: Value = serde_json::from_str(&list).expect("JSON");
        assert_eq!(
            (&list["mode"], list["tools"].as_array().map(Vec::len)),
            (&json!("stateless"), Some(3))
        );
    }

    #[test]
    fn operations_have_the_names_generated_clients_use() {
        let text = openapi().to_string();
        for name in [
            "version",
            "exec",
            "list_executions",
            "get_execution",
            "get_execution_output",
            "cancel_execution",
            "list_artifacts",
            "get_artifact",
            "cli_index",
            "cli_download",
            "fs_labels",
            "fs_set_label",
            "fs_resolve",
            "fs_log",
            "fs_push",
            "fs_reset",
            "fs_merge",
        ] {
            assert!(text.contains(&format!("\"operationId\":\"{name}_handler\"")), "{name}");
        }
    }
}
