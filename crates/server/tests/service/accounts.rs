//! Authorization: tokens, scopes, accounts, hosts, origins.

use crate::client::Client;
use crate::server::{root, shared};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

fn token(new: Value) -> (Client, String) {
    let made = root().post("/v1/token", &new).good();
    let text = made["token"].as_str().expect("a token");
    (Client::new(shared().address, text), made["id"].as_str().expect("an id").to_owned())
}

#[test]
fn only_health_and_documents_need_no_token() {
    let nobody = Client::new(shared().address, "");
    let health = nobody.get("/health").good();
    assert_eq!((&health["status"], &health["templates_ready"]), (&json!("ok"), &json!(true)));
    let known = shared().token.split_once('.').expect("a dot").0.to_owned();
    for wrong in ["", "x", ".", "a.b", &format!("{known}.wrong"), &format!("{known}.")] {
        let client = Client::new(shared().address, wrong);
        for path in ["/v1/whoami", "/metrics", "/v1/machine/list", "/v1/lineage"] {
            let reply = client.get(path);
            assert_eq!(reply.code(401), "token.unknown", "{wrong:?} {path}");
            assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
        }
    }
    for page in ["/", "/docs"] {
        let page = nobody.get(page);
        assert!(page.status == 200 && page.head.contains("content-type: text/html"));
    }
    assert_eq!(nobody.get("/openapi.json").good(), stasis_server::openapi());
    assert_eq!(root().get("/v1/whoami").good()["account"], "root");
    let signup = nobody.post("/internal/signup", &json!({ "email": "a@b.example" }));
    assert_eq!(signup.code(403), "account.signup");
}

#[test]
fn the_first_token_is_for_its_owner_only() {
    root();
    let file = std::fs::metadata(shared().data.join("token")).expect("the token's file");
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
}

#[test]
fn accounts_do_not_see_each_other() {
    let (one, _) = token(json!({ "account": "one" }));
    let (other, _) = token(json!({ "account": "other" }));
    let name = one.machine();
    let seq = one.submit(&name, "1");
    let machine = format!("/v1/machine/{name}");
    for path in ["", "/exec", &format!("/exec/{seq}"), &format!("/exec/{seq}/result")] {
        let reply = other.get(&format!("{machine}{path}"));
        assert_eq!(reply.code(404), "machine.not_found", "{path}");
    }
    let code = json!({ "instruction": { "code": "1" } });
    assert_eq!(other.post(&format!("{machine}/exec"), &code).code(404), "machine.not_found");
    assert_eq!(other.delete(&machine).code(404), "machine.not_found");
    assert_eq!(other.get("/v1/machine/list").good()["machines"], json!([]));
    let own = one.get("/v1/machine/list").good();
    assert_eq!(own["machines"].as_array().map(Vec::len), Some(1));
}

/// Every scope, as errors list them.
const SCOPES: &str = "scopes are machines, templates, tokens, host, secrets, approve";

#[test]
fn a_token_does_what_its_scopes_say_until_it_is_revoked() {
    let (client, id) = token(json!({ "account": "scoped", "name": "ci" }));
    assert_eq!(client.get("/v1/whoami").good()["scopes"], json!(["machines"]));
    for (method, path) in [
        ("GET", "/metrics"),
        ("GET", "/v1/token"),
        ("POST", "/v1/token"),
        ("DELETE", "/v1/token/x"),
        ("DELETE", "/v1/template/python"),
    ] {
        let reply = client.send(method, path, &[], b"");
        assert_eq!(reply.code(403), "token.scope", "{method} {path}");
        assert!(reply.text().contains(SCOPES), "{}", reply.text());
    }
    let unknown = root().post("/v1/token", &json!({ "scopes": ["machine"] }));
    assert_eq!(unknown.status, 400);
    assert!(unknown.text().contains(SCOPES), "{}", unknown.text());
    let list = root().get("/v1/token").good().to_string();
    let secret = client.token.split_once('.').expect("a dot").1;
    assert!(list.contains(&id) && !list.contains(secret));
    root().delete(&format!("/v1/token/{id}")).good();
    assert_eq!(client.get("/v1/whoami").code(401), "token.unknown");
    assert_eq!(root().delete(&format!("/v1/token/{id}")).code(404), "token.not_found");
}

#[test]
fn a_caller_grants_only_its_own_scopes() {
    let (client, _) = token(json!({ "account": "giver", "scopes": ["machines", "tokens"] }));
    let more = json!({ "scopes": ["host"] });
    assert_eq!(client.post("/v1/token", &more).code(403), "token.scope");
    let elsewhere = json!({ "account": "root" });
    assert_eq!(client.post("/v1/token", &elsewhere).code(403), "token.scope");
    client.post("/v1/token", &json!({})).good();
    for wrong in [json!({ "scopes": ["x"] }), json!({ "account": "a b" }), json!({ "x": 1 })] {
        assert_eq!(client.post("/v1/token", &wrong).status, 400, "{wrong}");
    }
}

#[test]
fn other_hosts_and_origins_are_refused() {
    let client = root();
    let port = shared().address.port();
    for host in ["host: localhost", "host: LocalHost:1", "host: 127.0.0.1", "host: [::1]:80"] {
        client.send("GET", "/v1/whoami", &[host], b"").good();
    }
    for host in ["host: evil.example", "host: evil.example:7717", "host:"] {
        let reply = client.send("GET", "/health", &[host], b"");
        assert_eq!(reply.code(403), "request.host", "{host}");
    }
    let own = format!("origin: http://127.0.0.1:{port}");
    client.send("GET", "/v1/whoami", &[&own], b"").good();
    for origin in ["origin: null", "origin: https://evil.example", "origin: http://localhost:1"] {
        let reply = client.send("GET", "/health", &[origin], b"");
        assert_eq!(reply.code(403), "request.origin", "{origin}");
    }
    let allowed = "origin: https://app.example";
    let asked = client.send("OPTIONS", "/v1/machine/new", &[allowed], b"");
    assert_eq!(asked.status, 200);
    assert!(asked.head.contains("access-control-allow-origin: https://app.example"));
    assert!(asked.head.contains("x-forevervm-sdk"));
    let refused = client.send("GET", "/v1/machine/nobody", &[allowed], b"");
    assert!(refused.head.contains("access-control-allow-origin: https://app.example"));
    let shown = refused.head.lines().find(|line| line.contains("access-control-expose-headers"));
    assert!(
        shown.is_some_and(|line| line.contains("retry-after") && line.contains("x-request-id"))
    );
}

#[test]
fn requests_are_numbered_counted_and_written_down() {
    let client = root();
    let given = client.send("POST", "/v1/machine/new", &["x-request-id: mine-1"], b"");
    assert!(given.head.contains("x-request-id: mine-1"), "{}", given.head);
    let odd = client.send("GET", "/v1/whoami", &["x-request-id: a b\"c"], b"");
    assert!(!odd.head.contains("a b"), "{}", odd.head);
    let log = std::fs::read_to_string(shared().data.join("audit.jsonl")).expect("the audit log");
    let line = log.lines().find(|line| line.contains("mine-1")).expect("a line");
    let line: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((&line["account"], &line["path"]), (&json!("root"), &json!("/v1/machine/new")));
    assert!(!log.contains(shared().token.split_once('.').expect("a dot").1));
    let lab = json!({ "machine": "no-such-lab" });
    client.tool("list_variables", lab, &["x-request-id: mine-2"]);
    let log = std::fs::read_to_string(shared().data.join("audit.jsonl")).expect("the audit log");
    let line = log.lines().find(|line| line.contains("mine-2")).expect("a line");
    let line: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(
        (&line["tool"], &line["machine"]),
        (&json!("list_variables"), &json!("no-such-lab"))
    );
    let name = client.machine();
    client.run(&name, "1");
    let metrics = client.get("/metrics").text();
    let number = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<u64>().ok()).unwrap_or_else(|| panic!("no {name}"))
    };
    assert!(number("stasis_resident_memory_bytes") > 1 << 20, "{metrics}");
    assert_eq!(number("stasis_machines_ending"), 0, "{metrics}");
    for known in [
        "stasis_machines{state=\"ready\"}",
        "stasis_instructions_total",
        "stasis_instruction_seconds_bucket",
        "stasis_http_requests_total{method=\"POST\",route=\"/v1/machine/{name}/exec\"",
    ] {
        assert!(metrics.contains(known), "{known}\n{metrics}");
    }
}
