//! mcp-v8's routes on a real service: forms, waiting, streaming, and who may use them.

use crate::client::{Client, Reply};
use crate::server::start;
use serde_json::{Value, json};
use stasis_server::{Listen, Options};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const JSON: &[&str] = &["content-type: application/json"];

struct Service {
    client: Client,
    _data: TempDir,
}

fn service() -> Service {
    let data = stasis_testbed::data_dir_of("javascript");
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let (bound, _) = start(data.path(), Options { listen, ..Options::default() });
    let token = std::fs::read_to_string(data.path().join("token")).expect("the first token");
    let client = Client::new(bound.tcp().expect("an address"), token.trim());
    Service { client, _data: data }
}

fn exec(client: &Client, query: &str, body: &Value) -> Reply {
    client.send("POST", &format!("/api/exec{query}"), JSON, body.to_string().as_bytes())
}

fn ended(client: &Client, id: &str) -> Value {
    let since = Instant::now();
    loop {
        let info = client.get(&format!("/api/executions/{id}")).json();
        if info["status"] != "running" {
            return info;
        }
        assert!(since.elapsed() < Duration::from_secs(120), "{info}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn runs_by_polling_waiting_and_streaming() {
    let Service { client, _data } = service();
    let lines = "for (let i = 1; i <= 250; i++) console.log(i)";
    let reply = exec(&client, "", &json!({ "code": lines, "heap": null, "session": "s" }));
    assert_eq!(reply.status, 202, "{}", reply.text());
    let id = reply.json()["execution_id"].as_str().expect("an id").to_owned();
    let info = ended(&client, &id);
    assert_eq!((&info["status"], &info["artifacts"]), (&json!("completed"), &json!([])));
    let page = |query: &str| client.get(&format!("/api/executions/{id}/output{query}")).json();
    let first = page("");
    assert_eq!((&first["end_line"], &first["next_line_offset"]), (&json!(100), &json!(101)));
    assert_eq!((&first["total_lines"], &first["has_more"]), (&json!(250), &json!(true)));
    assert_eq!(first.as_object().expect("fields").len(), 12);
    assert_eq!(page("?byte_offset=0&byte_limit=4")["data"], "1\n2\n");
    assert_eq!(client.get("/api/executions/none/output").json()["status"], "unknown");
    assert_eq!(client.get("/api/executions/none").status, 404);
    let refused = client.send("POST", &format!("/api/executions/{id}/cancel"), &[], b"");
    assert_eq!((refused.status, &refused.json()["ok"]), (400, &json!(false)));

    let waited = exec(&client, "?wait=60", &json!({ "code": "console.log('at once')" }));
    let body = waited.json();
    assert_eq!((waited.status, &body["output"]), (200, &json!("at once")), "{body}");
    let slow = "console.log('a'); await new Promise((d) => setTimeout(d, 300)); console.log('b')";
    let id = exec(&client, "", &json!({ "code": slow })).json()["execution_id"].clone();
    let id = id.as_str().expect("an id");
    let text = client.get(&format!("/api/executions/{id}/stream")).text();
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[..2], [json!({ "data": "a" }), json!({ "data": "b" })], "{text}");
    assert_eq!(lines[2]["execution"]["status"], "completed");
    let script = ["content-type: text/javascript"];
    let reply = client.send("POST", "/api/exec?wait=60&session=s", &script, b"console.log(7)");
    assert_eq!(reply.json()["output"], "7");
    let log = client.get("/api/sessions/s/log?fields=code").json();
    assert_eq!(log["entries"].as_array().expect("entries").len(), 2);
}

#[test]
fn refusals() {
    let Service { client, _data } = service();
    let page = |header: &str| {
        let headers = ["content-type: text/plain", header];
        client.send("POST", "/api/exec", &headers, b"console.log(1)").status
    };
    assert_eq!(page("origin: https://evil.example"), 403);
    assert_eq!(page("sec-fetch-site: cross-site"), 403);
    assert_eq!(client.get("/api/executions").json()["executions"], json!([]));
    let stranger = Client::new(client.address, "");
    let refused = exec(&stranger, "", &json!({ "code": "1" }));
    assert_eq!((refused.status, refused.json()["error"].is_string()), (401, true));
    let open = stranger.get("/api-doc/openapi.json");
    assert_eq!((open.status, &open.json()["openapi"]), (200, &json!("3.0.3")));
    let status = |headers: &[&str], body: &[u8]| {
        let reply = client.send("POST", "/api/exec", headers, body);
        assert!(reply.json()["error"].is_string(), "{}", reply.text());
        reply.status
    };
    assert_eq!(status(JSON, b"{"), 400);
    assert_eq!(status(JSON, b"{}"), 400);
    assert_eq!(status(&["content-type: multipart/form-data; boundary=x"], b""), 415);
    assert_eq!(status(&["content-type: text/plain"], b"\xff"), 400);
    let heap = json!({ "code": "1", "heap": "0".repeat(64) });
    assert_eq!(exec(&client, "", &heap).status, 404);
    assert_eq!(exec(&client, "?wait=x", &json!({ "code": "1" })).status, 400);
    let stateless = ["x-mcp-v8-mode: stateless"];
    assert_eq!(client.send("GET", "/api/fs/labels", &stateless, b"").status, 400);
    assert_eq!(client.get("/api/artifacts/none").status, 404);
    assert_eq!(client.get("/api/cli").json()["assets"], json!([]));
    assert_eq!(client.get("/api/cli/linux-x86_64").status, 404);
    assert_eq!(client.get("/api/heaps/x/tags").status, 400);
}

/// File trees over HTTP.
struct Trees(Service);

impl Trees {
    /// Runs code among the files of a tree; the tree after it, and what it printed.
    fn run(&self, fs: Option<&str>, code: &str) -> (String, Value) {
        let code = format!("process.chdir('/work'); {code}");
        let body = json!({ "code": code, "fs": fs }).to_string();
        let headers = ["content-type: application/json", "x-mcp-v8-mode: fs"];
        let reply = self.0.client.send("POST", "/api/exec?wait=60", &headers, body.as_bytes());
        let info = reply.json();
        assert_eq!((&info["status"], &info["heap"]), (&json!("completed"), &Value::Null), "{info}");
        (info["fs"].as_str().expect("a tree").to_owned(), info["output"].clone())
    }

    fn write(&self, fs: Option<&str>, text: &str) -> String {
        self.run(fs, &format!("await fs.writeFile('a.txt', {})", json!(text))).0
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let path = format!("/api/fs/{path}");
        let reply = self.0.client.send("POST", &path, JSON, body.to_string().as_bytes());
        (reply.status, reply.json())
    }

    fn get(&self, path: &str) -> Value {
        self.0.client.get(&format!("/api/fs/{path}")).json()
    }
}

#[test]
fn labels_of_file_trees() {
    let trees = Trees(service());
    let (base, ours) = (trees.write(None, "1"), trees.write(None, "2"));
    let other = trees.write(None, "3");
    let pushed = trees.post("push", &json!({ "ca_id": base, "label": "team/main" }));
    assert_eq!(pushed, (200, json!({ "status": "advanced", "label": "team/main", "ca_id": base })));
    let at_base = json!({ "label": "team/main", "ca_id": base });
    assert_eq!(trees.get("labels/team%2Fmain"), at_base);
    let push = json!({ "ca_id": ours, "label": "team/main" });
    let rejected = json!({ "status": "rejected", "label": "team/main", "current": base });
    assert_eq!(trees.post("push", &push), (409, rejected));
    let push = json!({ "ca_id": ours, "label": "team/main", "expected": base, "message": "m" });
    assert_eq!(trees.post("push", &push).0, 200);
    let unlogged = json!({ "label": "team/main", "ca_id": other });
    assert_eq!(trees.post("reset", &unlogged).0, 400);
    assert_eq!(trees.post("reset", &at_base), (200, at_base.clone()));
    let log = trees.get("labels/team%2Fmain/log")["log"].clone();
    let ops: Vec<_> = log.as_array().expect("a log").iter().map(|one| &one["op"]).collect();
    assert_eq!(ops, ["create", "push", "reset"]);
    assert_eq!((&log[1]["message"], &log[1]["from"]), (&json!("m"), &json!(base)));
    assert_eq!(trees.get("labels/team%2Fmain/log?limit=1")["log"][0]["op"], "reset");
    assert_eq!(trees.get("labels")["labels"], json!([{ "name": "team/main", "ca_id": base }]));
}

#[test]
fn merges_of_file_trees() {
    let trees = Trees(service());
    let base = trees.write(None, "1\n2\n3\n");
    let [ours, theirs, other] =
        ["one\n2\n3\n", "1\n2\nthree\n", "eins\n2\n3\n"].map(|text| trees.write(Some(&base), text));
    let merge = |theirs: &str| {
        trees.post("merge", &json!({ "ours": ours, "theirs": theirs, "base": base }))
    };
    let (status, merged) = merge(&theirs);
    assert_eq!((status, &merged["status"]), (200, &json!("merged")), "{merged}");
    let tree = merged["ca_id"].as_str().expect("a tree");
    let (_, printed) = trees.run(Some(tree), "console.log(await fs.readFile('a.txt', 'utf8'))");
    assert_eq!(printed, "one\n2\nthree");
    let (status, clash) = merge(&other);
    assert_eq!((status, &clash["status"]), (200, &json!("conflict")));
    let conflict = &clash["conflicts"][0];
    assert_eq!((&conflict["path"], &conflict["kind"]), (&json!("a.txt"), &json!("text")));
    assert!(conflict["markers"].as_str().expect("a text").contains("<<<<<<<"), "{conflict}");
}

#[test]
fn requests_about_file_trees_that_make_no_sense() {
    let trees = Trees(service());
    let base = trees.write(None, "1");
    for (path, body) in [
        ("push", json!({ "ca_id": "x", "label": "l" })),
        ("push", json!({ "ca_id": "0".repeat(64), "label": "l" })),
        ("push", json!({ "ca_id": base })),
        ("push", json!({ "ca_id": base, "label": "a".repeat(64) })),
        ("push", json!({ "ca_id": base, "label": "l", "message": "m".repeat(5000) })),
        ("labels", json!({ "name": "", "ca_id": base })),
        ("labels", json!({ "name": "l", "ca_id": "../../token" })),
        ("reset", json!({ "label": "none", "ca_id": base })),
        ("merge", json!({ "ours": base, "theirs": "none" })),
        ("merge", json!({ "ours": base, "theirs": base, "prefer": "both" })),
        ("merge", json!([])),
    ] {
        let (status, said) = trees.post(path, &body);
        assert_eq!((status, said["error"].is_string()), (400, true), "{path} {body}: {said}");
    }
    let client = &trees.0.client;
    assert_eq!(client.get("/api/fs/labels/none").status, 404);
    assert_eq!(client.get("/api/fs/labels/none/log").status, 400);
    assert_eq!(trees.get("labels")["labels"], json!([]));
}
