//! The OpenAPI document: generated from the handlers, served as it is and as a page.

use crate::routes;
use serde_json::{Value, json};
use stasis_api::{RANGES, SEQ, ValueRange};
use std::fmt::Write;
use std::sync::OnceLock;

/// Patterns of object keys, by type and field.
const KEYS: [(&str, &str, &str); 2] =
    [("NewMachine", "env", "^[^=\\x00]+$"), ("Vary", "variables", "^[^\\W\\d]\\w*$")];

/// Types of which at least one of two fields is needed, with the least content of each field.
fn alternatives() -> [(&'static str, Value); 2] {
    let some = json!({ "type": "array", "minItems": 1 });
    let none = json!({ "type": "null" });
    let only = |field: &str, content: Value, other: &str| {
        let properties = json!({ field: content, other: none });
        json!({ "required": [field], "properties": properties })
    };
    [
        (
            "AdoptRequest",
            json!([
                { "required": ["variables"], "properties": { "variables": some } },
                { "required": ["files"], "properties": { "files": some } },
            ]),
        ),
        (
            "SetSecret",
            json!([
                only("value", json!({ "type": "string" }), "oauth"),
                only("oauth", json!({ "type": "object" }), "value"),
            ]),
        ),
    ]
}

/// Requests with content that a schema cannot describe. Status 422 means that the request has its
/// documented form, and that this content cannot be used.
const CONTENTS: [(&str, &str, &str); 16] = [
    ("/v1/import", "post", "The file is no export, or is damaged"),
    ("/v1/machine/{name}/adopt", "post", "A path cannot be used"),
    ("/v1/machine/{name}/at/{seq}/file", "get", "The path cannot be used"),
    ("/v1/machine/{name}/at/{seq}/files", "get", "The path cannot be used"),
    ("/v1/machine/{name}/branch", "post", "A variable has a name or value its language lacks"),
    ("/v1/machine/{name}/explain", "get", "The request to explain cannot be read"),
    ("/v1/machine/{name}/explore", "post", "A variable has a name or value its language lacks"),
    ("/v1/machine/{name}/file", "delete", "The path cannot be used"),
    ("/v1/machine/{name}/file", "get", "The path cannot be used"),
    ("/v1/machine/{name}/file", "put", "The path cannot be used"),
    ("/v1/machine/{name}/file/stat", "get", "The path cannot be used"),
    ("/v1/machine/{name}/file/watch", "get", "The path cannot be used"),
    ("/v1/machine/{name}/files", "get", "The path cannot be used"),
    ("/v1/policies/{name}", "put", "The policy has a mistake"),
    ("/v1/secrets/{name}", "put", "A host, an address or the value cannot be used"),
    ("/v1/template/build", "post", "The recipe has a mistake"),
];

/// The document, with the common parts added to each route.
pub fn document() -> Value {
    let (_, api) = routes::all().split_for_parts();
    let mut value = serde_json::to_value(api).unwrap_or_default();
    value["info"] = json!({
        "title": "Stasis",
        "description": "Stateful code machines: each is a process that runs one instruction at \
                        a time and keeps its state.",
        "version": env!("CARGO_PKG_VERSION"),
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    });
    value["components"]["securitySchemes"]["token"] = json!({ "type": "http", "scheme": "bearer" });
    value["security"] = json!([{ "token": [] }]);
    let failure = json!({
        "description": "The error",
        "content": { "application/json": { "schema": {
            "$ref": "#/components/schemas/ErrorBody"
        }}},
    });
    for operation in operations(&mut value) {
        operation["responses"]["default"] = failure.clone();
        parameter_ranges(operation);
        json_parameters(operation);
    }
    for (path, method, description) in CONTENTS {
        let mut refusal = failure.clone();
        refusal["description"] = json!(description);
        value["paths"][path][method]["responses"]["422"] = refusal;
    }
    for (name, any) in alternatives() {
        value["components"]["schemas"][name]["anyOf"] = any;
    }
    for (name, field, pattern) in KEYS {
        let place = format!("/components/schemas/{name}/properties/{field}");
        if let Some(property) = value.pointer_mut(&place) {
            property["propertyNames"] = json!({ "pattern": pattern });
        }
    }
    for (name, field, span) in RANGES {
        let place = format!("/components/schemas/{name}/properties/{field}");
        if let Some(property) = value.pointer_mut(&place) {
            bound(property, *span);
        }
    }
    value
}

/// Numbers in paths are identified by name, with the same meaning on every route.
fn parameter_ranges(operation: &mut Value) {
    let all = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for one in all.into_iter().flatten() {
        let name = one["name"].as_str().unwrap_or_default();
        let span = match name {
            "seq" => Some(SEQ),
            name => RANGES.iter().find(|(_, field, _)| *field == name).map(|(_, _, span)| *span),
        };
        if let Some(span) = span.filter(|_| !one["schema"]["type"].eq("string")) {
            bound(&mut one["schema"], span);
        }
    }
}

/// A parameter that is JSON as text has a content type instead of a schema.
fn json_parameters(operation: &mut Value) {
    let all = operation.get_mut("parameters").and_then(Value::as_array_mut);
    let objects = all.into_iter().flatten().filter(|one| one["name"] == "tags");
    for one in objects.filter_map(Value::as_object_mut) {
        one.remove("schema");
        let schema = json!({ "type": "object", "additionalProperties": { "type": "string" } });
        one.insert("content".into(), json!({ "application/json": { "schema": schema } }));
    }
}

fn bound(schema: &mut Value, span: ValueRange) {
    let number = |value: f64| match value.fract() {
        0.0 => json!(value as u64),
        _ => json!(value),
    };
    schema["minimum"] = number(span.least);
    schema["maximum"] = number(span.most);
}

fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    paths.filter_map(Value::as_object_mut).flat_map(|path| path.values_mut())
}

pub fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let text = serde_json::to_string_pretty(&document());
        text.map(|text| text + "\n").unwrap_or_default()
    })
}

/// The document for people: plain HTML without external resources.
pub fn page() -> String {
    let document = document();
    let mut page = String::from(HEAD);
    let paths = document["paths"].as_object().into_iter().flatten();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            describe(&mut page, path, method, operation);
        }
    }
    page.push_str("<h2>Schemas</h2>\n");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let text = serde_json::to_string_pretty(schema).unwrap_or_default();
        let _ =
            writeln!(page, "<h3 id=\"{0}\">{0}</h3><pre>{1}</pre>", escape(name), escape(&text));
    }
    page.push_str("</main></html>\n");
    page
}

const HEAD: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><title>Stasis</title><style>\
body{font:16px/1.5 system-ui,sans-serif;margin:0}main{max-width:50rem;margin:2rem auto;\
padding:0 1rem}pre,code{font-family:ui-monospace,monospace;font-size:14px}pre{overflow-x:auto;\
padding:.5rem;border:1px solid #8888}h3{margin:2rem 0 0}p,ul{margin:.25rem 0}</style>\
<main><h1>Stasis</h1>\
<p>The same as data: <a href=\"/openapi.json\">openapi.json</a></p><h2>Routes</h2>\n";

fn describe(page: &mut String, path: &str, method: &str, operation: &Value) {
    let said = operation["summary"].as_str().or(operation["description"].as_str());
    let _ = writeln!(
        page,
        "<h3><code>{} {}</code></h3><p>{}</p>",
        escape(&method.to_uppercase()),
        escape(path),
        words(said.unwrap_or_default()),
    );
    parameters(page, operation);
    for (what, schema) in [
        ("takes", &operation["requestBody"]["content"]["application/json"]["schema"]),
        ("gives", &operation["responses"]["200"]["content"]["application/json"]["schema"]),
    ] {
        if let Some(name) = named(schema) {
            let name = escape(name);
            let _ = writeln!(page, "<p>{what} <a href=\"#{name}\">{name}</a></p>");
        }
    }
}

/// Its parameters in the query and in headers; the path shows its own.
fn parameters(page: &mut String, operation: &Value) {
    let all = operation["parameters"].as_array().into_iter().flatten();
    let mut shown = all.filter(|one| one["in"] != "path").peekable();
    if shown.peek().is_none() {
        return;
    }
    page.push_str("<ul>\n");
    for one in shown {
        let [name, place, about] =
            ["name", "in", "description"].map(|key| one[key].as_str().unwrap_or_default());
        let (name, place) = (escape(name), escape(place));
        let _ = writeln!(page, "<li><code>{name}</code> ({place}) {}</li>", words(about));
    }
    page.push_str("</ul>\n");
}

fn named(schema: &Value) -> Option<&str> {
    let one = |schema: &Value| schema["$ref"].as_str().is_some();
    let many = schema["oneOf"].as_array().into_iter().flatten();
    let found = std::iter::once(schema).chain(many).find(|schema| one(schema))?;
    found["$ref"].as_str()?.rsplit('/').next()
}

/// Text with code between backticks.
fn words(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(index, part)| match index % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    });
    parts.collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
