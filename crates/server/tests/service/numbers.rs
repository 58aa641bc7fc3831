//! Every number a client can send, taken from the document: each has a range there, and what lies
//! outside of it is refused with one code.

use crate::client::Client;
use crate::server::root;
use serde_json::{Value, json};

/// The least body that each type takes.
fn body_of(schema: &str) -> Value {
    match schema {
        "ExecRequest" => json!({ "instruction": { "code": "1" } }),
        "Complete" => json!({ "code": "x" }),
        "Rollback" => json!({ "seq": null }),
        "LabelRequest" => json!({ "seq": 0, "label": "x" }),
        "ExploreRequest" => json!({ "candidates": [{}], "score": "1" }),
        "SetSecret" => json!({ "hosts": ["api.example.com"], "oauth": {
            "token_url": "https://api.example.com/token", "client_id": "a", "client_secret": "b",
        } }),
        _ => json!({}),
    }
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_number(schema: &Value) -> bool {
    types(schema).iter().any(|kind| ["integer", "number"].contains(kind))
}

/// A number in a body: where it is, and what it may be.
struct Field {
    pointer: Vec<String>,
    least: f64,
    most: f64,
}

fn range(schema: &Value, what: &str) -> (f64, f64) {
    let bound =
        |key: &str| schema[key].as_f64().unwrap_or_else(|| panic!("{what} has no {key}: {schema}"));
    (bound("minimum"), bound("maximum"))
}

/// All numbers in a schema, also those in others that it refers to.
fn fields(document: &Value, schema: &Value, pointer: &[String], found: &mut Vec<Field>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return fields(document, &document["components"]["schemas"][name], pointer, found);
    }
    if is_number(schema) {
        let (least, most) = range(schema, &pointer.join("."));
        return found.push(Field { pointer: pointer.to_vec(), least, most });
    }
    for part in ["oneOf", "anyOf", "allOf"] {
        for one in schema[part].as_array().into_iter().flatten() {
            fields(document, one, pointer, found);
        }
    }
    if schema["items"].is_object() {
        let inside = [pointer, &["0".to_owned()]].concat();
        fields(document, &schema["items"], &inside, found);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        fields(document, property, &[pointer, std::slice::from_ref(name)].concat(), found);
    }
}

/// Puts a value into a body, making what is on the way.
fn put(body: &mut Value, pointer: &[String], value: Value) {
    let Some((first, rest)) = pointer.split_first() else {
        *body = value;
        return;
    };
    match first.as_str() {
        "0" => {
            if !body.is_array() {
                *body = json!([{}]);
            }
            put(&mut body[0], rest, value);
        }
        name => {
            if !body.is_object() {
                *body = json!({});
            }
            put(&mut body[name], rest, value);
        }
    }
}

fn refused(client: &Client, method: &str, path: &str, body: &str) {
    let reply = client.send(method, path, &[], body.as_bytes());
    let what = format!("{method} {path} {body}: {}", reply.text());
    assert_eq!(reply.status, 400, "{what}");
    assert_eq!(reply.json()["code"], "request.range", "{what}");
}

/// Path, method and description of every operation in the document.
fn operations(document: &Value) -> impl Iterator<Item = (&String, &String, &Value)> {
    let paths = document["paths"].as_object().expect("paths").iter();
    paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").iter();
        methods.map(move |(method, operation)| (path, method, operation))
    })
}

#[test]
fn numbers_in_bodies_have_ranges_that_hold() {
    let document = stasis_server::openapi();
    let client = root();
    let name = client.machine();
    client.run(&name, "1");
    let mut count = 0;
    for (path, method, operation) in operations(&document) {
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        let named = body.to_string();
        let schema = named.split("schemas/").nth(1).and_then(|rest| rest.split('"').next());
        let Some(schema) = schema else { continue };
        let mut found = Vec::new();
        fields(&document, body, &[], &mut found);
        let path = path.replace("{name}", &name);
        let method = method.to_uppercase();
        for Field { pointer, least, most } in found {
            let far = [json!(1u64 << 63), json!(-1), json!(most * 2.0 + 1.0), json!(1u64 << 44)];
            let whole = most.fract() == 0.0 && most < 9e15;
            let just = whole.then(|| json!(most as u64 + 1));
            let below = (least > 0.0).then(|| json!(0));
            for value in far.into_iter().chain(just).chain(below) {
                let number = value.as_f64().expect("a number");
                // floating numbers are no whole ones, which is another fault
                if (least..=most).contains(&number) || !(value.is_u64() || value.is_i64()) {
                    continue;
                }
                let mut body = body_of(schema);
                put(&mut body, &pointer, value);
                refused(&client, &method, &path, &body.to_string());
                count += 1;
            }
        }
    }
    assert!(count > 100, "{count} numbers were tried");
    for far in ["1e308", "1e19", "-0.5"] {
        let body = format!("{{\"instruction\":{{\"code\":\"1\",\"timeout_seconds\":{far}}}}}");
        refused(&client, "POST", &format!("/v1/machine/{name}/exec"), &body);
        let body = format!("{{\"limits\":{{\"cpus\":{far}}}}}");
        refused(&client, "POST", "/v1/machine/new", &body);
    }
    assert_eq!(client.run(&name, "1")["value"], "1");
}

#[test]
fn numbers_in_addresses_have_ranges_that_hold() {
    let document = stasis_server::openapi();
    let client = root();
    let name = client.machine();
    client.run(&name, "1");
    let mut count = 0;
    for (path, method, operation) in operations(&document) {
        for one in operation["parameters"].as_array().into_iter().flatten() {
            if !is_number(&one["schema"]) {
                continue;
            }
            let (parameter, place) = (&one["name"], one["in"].as_str().unwrap_or_default());
            let parameter = parameter.as_str().expect("a name");
            let (_, most) = range(&one["schema"], &format!("{method} {path} {parameter}"));
            let more = (most as u64 + 1).to_string();
            let at = |seq: &str| path.replace("{name}", &name).replace("{seq}", seq);
            let address = match place {
                "path" => at(&more),
                "query" => format!("{}?{parameter}={more}", at("0")),
                // one that makes no sense is as good as none
                _ => continue,
            };
            refused(&client, &method.to_uppercase(), &address, "");
            count += 1;
        }
    }
    assert!(count > 15, "{count} numbers were tried");
}

#[test]
fn numbers_that_older_versions_accepted_are_refused() {
    let client = root();
    let new = |body: &Value| client.post("/v1/machine/new", body).code(400);
    for limits in [json!({ "memory_mb": 1u64 << 44 }), json!({ "pids": 1u64 << 40 })] {
        assert_eq!(new(&json!({ "limits": limits })), "request.range");
    }
    let name = client.machine();
    let patch = client.send(
        "PATCH",
        &format!("/v1/machine/{name}"),
        &[],
        b"{\"limits\":{\"memory_mb\":17592186044416}}",
    );
    assert_eq!(patch.code(400), "request.range");
    // surfaces of others: the same numbers in their words
    let spawn = json!({ "snapshot_tag": "python", "memory_limit_mib": 1u64 << 44 });
    let kind = ["content-type: application/json"];
    let spawned = client.send("POST", "/v1/sandboxes", &kind, spawn.to_string().as_bytes());
    assert_eq!(spawned.status, 400, "{}", spawned.text());
    let env = json!({ "A": "x".repeat(200 << 10) });
    assert_eq!(new(&json!({ "env": env })), "request.invalid");
    let scopes = vec!["machines"; 100];
    let made = client.post("/v1/token", &json!({ "scopes": scopes })).good();
    assert_eq!(made["scopes"], json!(["machines"]));
}
