//! Bad input through every route there is: each is answered with a failure that has a code, and
//! never with one of ours.

use crate::client::{Client, Reply};
use crate::server::{fresh_data, root, shared, start};
use crate::worker::Worker;
use serde_json::{Value, json};
use stasis_server::{Listen, Options};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Routes from the document itself, so that none is left out.
fn routes() -> Vec<(String, String)> {
    let document = stasis_server::openapi();
    let paths = document["paths"].as_object().expect("paths").clone();
    let each = |(path, methods): (String, Value)| {
        let methods = methods.as_object().expect("methods").clone();
        methods.into_iter().map(move |(method, _)| (method.to_uppercase(), path.clone()))
    };
    paths.into_iter().flat_map(each).collect()
}

fn fill(path: &str, name: &str, seq: &str) -> String {
    path.replace("{name}", name).replace("{seq}", seq).replace("{id}", name)
}

fn is_decent(reply: &Reply, what: &str) {
    let said = format!("{what}: {} {}", reply.head, reply.text());
    assert!((400..500).contains(&reply.status), "{said}");
    let body: Value = serde_json::from_slice(&reply.body).expect(&said);
    let has = |key: &str| body[key].as_str().is_some_and(|text| !text.is_empty());
    assert!(has("code") && has("message") && has("id"), "{said}");
    assert!(!reply.head.contains("transfer-encoding"), "{said}");
}

#[test]
fn names_that_are_none() {
    let client = root();
    let names = [
        "no-such-machine",
        "..%2f..%2fetc",
        "%00",
        "a%00b",
        "%ff%fe",
        "-",
        "a@1",
        "%2e%2e",
        &"x".repeat(5000),
    ];
    for (method, path) in routes().into_iter().filter(|(_, path)| path.contains("{name}")) {
        for name in names {
            let path = fill(&path, name, "0");
            let reply = client.send(&method, &path, &[], b"{\"instruction\":{\"code\":\"1\"}}");
            is_decent(&reply, &format!("{method} {path}"));
        }
    }
}

#[test]
fn numbers_that_are_none() {
    let client = root();
    let name = client.machine();
    let numbers =
        ["0", "-1", "+1", "1.0", "x", "%00", "4294967295", "99999999999999999999", "0x0", "%ff"];
    for (method, path) in routes().into_iter().filter(|(_, path)| path.contains("{seq}")) {
        for seq in numbers {
            let path = fill(&path, &name, seq);
            is_decent(&client.send(&method, &path, &[], b""), &format!("{method} {path}"));
        }
    }
}

#[test]
fn bodies_that_are_none() {
    let client = root();
    let name = client.machine();
    let bodies: [&[u8]; 8] =
        [b"{", b"[]", b"1", b"\"text\"", b"\xff\xfe", b"\0\0\0", b"{\"a\": \"\xff\"}", b"nul"];
    let objects: [&[u8]; 4] = [
        b"{\"instruction\": 5, \"tags\": [], \"recipe\": {}, \"seq\": {}, \"code\": []}",
        b"{\"instruction\": {\"code\": null}, \"recipe\": 1, \"tags\": 1, \"seq\": \"x\"}",
        b"{\"tags\": {\"a\": 1}, \"instruction\": [], \"recipe\": [], \"seq\": -1, \"account\": 2}",
        b"{\"tags\": \"\\u0000\", \"scopes\": {}, \"code\": 1, \"repair\": 1, \"count\": \"\"}",
    ];
    let takes =
        ["new", "list", "exec", "build", "token", "rollback", "branch", "complete", "check"];
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let posts = routes().into_iter().filter(|(method, path)| {
        method == "PATCH" || method == "POST" && takes.contains(&last(path).as_str())
    });
    for (method, path) in posts {
        for body in bodies.into_iter().chain(objects) {
            let path = fill(&path, &name, "0");
            let what = format!("{method} {path} {}", String::from_utf8_lossy(body));
            is_decent(&client.send(&method, &path, &[], body), &what);
        }
    }
    assert_eq!(client.run(&name, "1")["value"], "1");
}

#[test]
fn fields_that_are_not_there_are_named() {
    let client = root();
    let name = client.machine();
    let exec = format!("/v1/machine/{name}/exec");
    let hint = |reply: &Reply| reply.json()["hint"].as_str().expect("a hint").to_owned();
    for (path, body, meant) in [
        ("/v1/machine/new", json!({ "memory": 512 }), "`memory_mb`"),
        ("/v1/machine/list", json!({ "tag": { "a": "b" } }), "`tags`"),
        (&exec, json!({ "instruction": { "code": "1", "timeout": 5 } }), "`timeout_seconds`"),
        (&exec, json!({ "instruction": { "code": "1" }, "interupt": true }), "`interrupt`"),
    ] {
        let reply = client.post(path, &body);
        assert_eq!(reply.code(400), "request.field", "{path} {body}");
        assert!(hint(&reply).starts_with(meant), "{path} {body}: {}", hint(&reply));
    }
    let reply = client.get("/v1/machine/list?limt=5");
    assert_eq!(reply.code(400), "request.field");
    assert!(hint(&reply).starts_with("`limit`"), "{}", hint(&reply));
    let past = client.get(&exec).good();
    assert_eq!(past["instructions"], json!([]), "nothing was done");
}

/// Where the document lists status 422, it means content that no schema describes.
#[test]
fn content_that_cannot_be_used_is_422() {
    let client = root();
    let name = client.machine();
    client.run(&name, "x = 1");
    let path = |rest: &str| format!("/v1/machine/{name}/{rest}");
    for rest in ["file", "file/stat", "file/watch", "files", "at/0/file", "at/0/files"] {
        let reply = client.get(&path(&format!("{rest}?path=a/../b%00")));
        assert_eq!(reply.status, 422, "{rest}: {}", reply.text());
    }
    let other = client.machine();
    client.run(&other, "x = 1");
    let adopt = json!({ "from": format!("{other}@0"), "files": ["a/../b"] });
    let reply = client.post(&path("adopt"), &adopt);
    assert_eq!(reply.status, 422, "{}", reply.text());
    let reply = client.post("/v1/template/build", &json!({ "recipe": "name = 1" }));
    assert_eq!(reply.status, 422, "{}", reply.text());
}

#[test]
fn deep_and_long_bodies() {
    let client = root();
    let name = client.machine();
    let deep = "[".repeat(100_000);
    is_decent(&client.send("POST", "/v1/machine/new", &[], deep.as_bytes()), "deep");
    let long = format!("{{\"tags\":{{\"a\":\"{}\"}}}}", "x".repeat(2 << 20));
    let reply = client.send("POST", "/v1/machine/new", &[], long.as_bytes());
    assert_eq!(reply.code(413), "request.too_large");
    let code = json!({ "instruction": { "code": "#".repeat(20 << 20) } });
    let reply = client.post(&format!("/v1/machine/{name}/exec"), &code);
    assert_eq!(reply.code(400), "request.invalid");
    for wrong in [json!(-1), json!("5"), json!({}), json!(true)] {
        let body = json!({ "instruction": { "code": "1", "timeout_seconds": wrong } });
        is_decent(&client.post(&format!("/v1/machine/{name}/exec"), &body), "a timeout");
    }
    let key = format!("idempotency-key: {}", "k".repeat(300));
    let body = b"{\"instruction\":{\"code\":\"1\"}}";
    is_decent(&client.send("POST", &format!("/v1/machine/{name}/exec"), &[&key], body), "a key");
}

#[test]
fn code_with_nul_bytes_is_an_error_of_the_code() {
    let client = root();
    let name = client.machine();
    assert!(client.run(&name, "a\0b")["error"].is_string());
    assert_eq!(client.run(&name, "'\\0' * 2")["value"], "'\\x00\\x00'");
}

#[test]
fn machines_that_cannot_be() {
    let client = root();
    let many: serde_json::Map<_, _> = (0..65).map(|n| (n.to_string(), json!("x"))).collect();
    for wrong in [
        json!({ "name": "new" }),
        json!({ "name": "a/b" }),
        json!({ "name": "a\0" }),
        json!({ "name": "" }),
        json!({ "memory_mb": 1 }),
        json!({ "memory_mb": -1 }),
        json!({ "memory_mb": 1.5 }),
        json!({ "template": "no-such-template" }),
        json!({ "tags": many }),
        json!({ "env": { "A=B": "" } }),
        json!({ "env": { "A": "\0" } }),
        json!({ "expires_at": "tomorrow" }),
        json!({ "durability": "forever" }),
    ] {
        is_decent(&client.post("/v1/machine/new", &wrong), &wrong.to_string());
    }
}

#[test]
fn requests_that_are_none() {
    let client = root();
    let raw = |text: &str| client.raw(text.as_bytes());
    assert_eq!(raw("NONSENSE\r\n\r\n").status, 400);
    assert_eq!(raw("GET / HTTP/9.9\r\n\r\n").status, 400);
    let long =
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    assert_eq!(raw(&long).status, 431);
    for path in
        ["/nothing", "/v1", "/v1/machine", "/v1/machine/a/b/c/d", "/%00", "/../../etc/passwd"]
    {
        assert_eq!(client.get(path).code(404), "request.route", "{path}");
    }
    let put = client.send("PUT", "/v1/machine/list", &[], b"");
    assert_eq!(put.code(405), "request.method");
    client.get("//v1/whoami").good();
}

#[test]
fn queries_that_are_none() {
    let client = root();
    let name = client.machine();
    let seq = client.submit(&name, "1");
    for path in [
        "/v1/machine/list?limit=x".to_owned(),
        "/v1/machine/list?tags=x".into(),
        "/v1/machine/list?state=x".into(),
        "/v1/machine/list?cursor=x".into(),
        format!("/v1/machine/{name}/exec?from=-1"),
        format!("/v1/machine/{name}/exec/{seq}/output?from=x"),
        format!("/v1/machine/{name}/exec/{seq}/stream-result?from=%00"),
    ] {
        is_decent(&client.get(&path), &path);
    }
    let far = |from: &str| client.get(&format!("/v1/machine/{name}/exec/{seq}/output?from={from}"));
    far("4294967295").good();
    assert_eq!(far("18446744073709551615").code(400), "request.range");
}

/// Values that the document excludes: empty texts, and lists in place of objects.
#[test]
fn requests_outside_the_document_are_refused() {
    let client = root();
    let name = client.machine();
    let document = stasis_server::openapi();
    let at = |verb: &str| format!("/v1/machine/{name}/{verb}");
    for (path, body, schema, field) in [
        ("/v1/compare", json!({ "left": "", "right": name }), "CompareRequest", "left"),
        ("/v1/compare", json!({ "left": name, "right": "" }), "CompareRequest", "right"),
        (&at("adopt"), json!({ "from": "", "variables": ["x"] }), "AdoptRequest", "from"),
        (&at("explore"), json!({ "candidates": [{}], "score": "" }), "ExploreRequest", "score"),
        ("/v1/token", json!({ "account": "" }), "NewToken", "account"),
    ] {
        is_decent(&client.post(path, &body), &format!("{path} {body}"));
        let said = &document["components"]["schemas"][schema]["properties"][field];
        assert!(said["pattern"].is_string(), "{schema}.{field}: {said}");
    }
    is_decent(&client.post("/v1/token", &json!({ "scopes": [""] })), "an empty scope");
    let scopes = &document["components"]["schemas"]["NewToken"]["properties"]["scopes"];
    assert_eq!(
        scopes["items"]["enum"],
        json!(["machines", "templates", "tokens", "host", "secrets", "approve"])
    );
    for rule in [json!([1]), json!([1, 60, true]), json!("last=1")] {
        let new = client.post("/v1/machine/new", &json!({ "retention": rule }));
        assert_eq!(new.code(400), "request.json", "{rule}");
        let body = json!({ "retention": rule }).to_string();
        let set = client.send("PATCH", &format!("/v1/machine/{name}"), &[], body.as_bytes());
        assert_eq!(set.code(400), "request.json", "{rule}");
    }
    let parameter = |path: &str, name: &str| {
        let methods = document["paths"][path].as_object().expect("methods").values();
        let all = methods.flat_map(|one| one["parameters"].as_array().cloned().unwrap_or_default());
        let own: Vec<Value> = all.filter(|one| one["name"] == name).collect();
        assert_eq!(own.len(), 1, "{path}");
        own[0].clone()
    };
    let mode = parameter("/v1/machine/{name}/file", "mode");
    assert!(mode["schema"]["pattern"].is_string(), "{mode}");
    let tags = parameter("/v1/machine/list", "tags");
    assert_eq!(tags["content"]["application/json"]["schema"]["type"], "object", "{tags}");
    is_decent(&client.get("/v1/machine/list?tags="), "empty tags");
    for mode in ["", "8", "+644", "06440"] {
        for path in
            [format!("file?path=a&mode={mode}"), format!("file?path=a&target=b&mode={mode}")]
        {
            is_decent(&client.send("PUT", &at(&path), &[], b"x"), &path);
        }
    }
    client.send("PUT", &at("file?path=a&mode=0600"), &[], b"x").good();
}

#[test]
fn a_client_that_leaves_takes_nothing_with_it() {
    let server = shared();
    let client = Client::new(server.address, &server.token);
    let name = client.machine();
    let seq = client.submit(&name, "import time; time.sleep(0.5); 'there'");
    for rest in ["result", "wait", "stream-result", "events"] {
        let mut gone = TcpStream::connect(server.address).expect("a connection");
        let head = format!(
            "GET /v1/machine/{name}/exec/{seq}/{rest} HTTP/1.1\r\nhost: localhost\r\n\
             authorization: Bearer {}\r\n\r\n",
            server.token
        );
        gone.write_all(head.as_bytes()).expect("sent");
    }
    let result = client.get(&format!("/v1/machine/{name}/exec/{seq}/result")).good();
    assert_eq!(result["result"]["value"], "'there'");
}

/// Routes without a token.
const OPEN: [&str; 5] = ["/", "/docs", "/health", "/internal/signup", "/openapi.json"];

#[test]
fn tokens_that_are_none() {
    let client = root();
    let name = client.machine();
    let token = |body: Value| client.post("/v1/token", &body).good();
    let revoked = token(json!({}));
    client.delete(&format!("/v1/token/{}", revoked["id"].as_str().expect("an id"))).good();
    let secret = |made: &Value| made["token"].as_str().expect("a token").to_owned();
    let (id, _) = client.token.split_once('.').expect("a dot");
    let wrong = [
        String::new(),
        "x".into(),
        format!("{id}."),
        format!("{id}.{}", "0".repeat(48)),
        format!("{} ", "é".repeat(100)),
        secret(&revoked),
    ];
    let other = token(json!({ "account": "somebody-else" }));
    let other = Client::new(client.address, &secret(&other));
    for (method, path) in routes().into_iter().filter(|(_, path)| !OPEN.contains(&path.as_str())) {
        let at = fill(&path, &name, "0");
        for token in &wrong {
            let reply = Client::new(client.address, token).send(&method, &at, &[], b"{}");
            assert_eq!(reply.code(401), "token.unknown", "{method} {path} {token:?}");
        }
        if path.starts_with("/v1/machine/{name}") && !path.ends_with("/repl") {
            let reply = other.send(&method, &at, &[], b"{\"instruction\":{\"code\":\"1\"}}");
            assert_eq!(reply.code(404), "machine.not_found", "{method} {path}");
        }
    }
    assert_eq!(client.run(&name, "1")["value"], "1");
}

#[test]
fn bodies_that_are_too_long_for_every_route_that_reads_one() {
    let client = root();
    let name = client.machine();
    let document = stasis_server::openapi();
    let reads = |method: &str, path: &str| {
        let operation = &document["paths"][path][method.to_lowercase()];
        operation["requestBody"]["content"].get("application/json").is_some()
    };
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(33 << 20));
    for (method, path) in routes().into_iter().filter(|(method, path)| reads(method, path)) {
        let at = fill(&path, &name, "0");
        let reply = client.send(&method, &at, &[], long.as_bytes());
        assert_eq!(reply.code(413), "request.too_large", "{method} {path}");
    }
    assert_eq!(client.run(&name, "1")["value"], "1");
}

#[test]
fn ten_megabytes_of_code_run() {
    let client = root();
    let name = client.machine();
    let code = format!("x = '{}'\nlen(x)", "é".repeat(5 << 20));
    assert_eq!(client.run(&name, &code)["value"], (5 << 20).to_string());
}

#[test]
fn bodies_that_do_not_come() {
    let data = fresh_data("slow");
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let patience = Duration::from_millis(300);
    let (bound, running) = start(&data, Options { listen, patience, ..Options::default() });
    let token = std::fs::read_to_string(data.join("token")).expect("a token");
    let client = Client::new(bound.tcp().expect("an address"), token.trim());
    let name = client.machine();
    for (method, path) in [
        ("POST", "/v1/machine/new".to_owned()),
        ("POST", format!("/v1/machine/{name}/exec")),
        ("PATCH", format!("/v1/machine/{name}")),
        ("PUT", format!("/v1/machine/{name}/file?path=/tmp/slow")),
        ("POST", "/v1/import".into()),
        ("POST", "/mcp".into()),
        ("POST", "/v1/sandboxes".into()),
    ] {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\nconnection: close\r\n\
             content-length: 100\r\n\r\n{{",
            client.token
        );
        let reply = client.raw(head.as_bytes());
        if path == "/v1/sandboxes" {
            // in the form of forkd's refusals
            assert_eq!(reply.status, 408, "{}", reply.text());
            continue;
        }
        is_decent(&reply, &format!("{method} {path}"));
        if path != "/v1/import" {
            assert_eq!(reply.code(400), "request.slow", "{method} {path}");
        }
    }
    let gone = client.get(&format!("/v1/machine/{name}/file/stat?path=/tmp/slow"));
    assert_eq!(gone.code(404), "file.not_found");
    assert_eq!(client.run(&name, "1")["value"], "1");
    bound.stop.stop();
    running.join().expect("a thread").expect("a good end");
}

/// Output without end, while a client asks for all of it and reads none.
#[test]
fn much_output_and_clients_that_never_read() {
    let data = fresh_data("output");
    let worker = Worker::start(&data);
    let client = &worker.client;
    let name = client.machine();
    client.run(&name, "import sys");
    let before = worker.resident_mib();
    let megabytes = if std::env::var_os("STASIS_SOAK").is_some() { 1024 } else { 64 };
    let code = format!(
        "for _ in range({megabytes}): sys.stdout.write('0123456789abcde\\n' * 65536)\n'all'"
    );
    let body = json!({ "instruction": { "code": code, "timeout_seconds": 600 } });
    let seq =
        client.post(&format!("/v1/machine/{name}/exec"), &body).good()["instruction_seq"].clone();
    let silent: Vec<TcpStream> = ["stream-result", "events", "output", "result"]
        .into_iter()
        .map(|rest| {
            let mut stream = TcpStream::connect(client.address).expect("a connection");
            let head = format!(
                "GET /v1/machine/{name}/exec/{seq}/{rest} HTTP/1.1\r\nhost: localhost\r\n\
                 authorization: Bearer {}\r\n\r\n",
                client.token
            );
            stream.write_all(head.as_bytes()).expect("sent");
            stream
        })
        .collect();
    let result = client.get(&format!("/v1/machine/{name}/exec/{seq}/result")).good();
    assert_eq!(result["result"]["value"], "'all'");
    assert_eq!(client.run(&name, "1 + 1")["value"], "2");
    let outputs = client.get(&format!("/v1/machine/{name}/exec/{seq}/output")).body.len();
    assert!(outputs < 64 << 20, "{outputs} bytes of output");
    let grown = worker.resident_mib().saturating_sub(before);
    assert!(grown < 512, "{grown} MiB");
    drop(silent);
}
