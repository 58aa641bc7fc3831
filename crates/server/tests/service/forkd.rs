//! forkd's routes: statuses, forms, and what the original lacks.

use crate::client::Client;
use crate::server::{fresh_data, root, shared};
use crate::worker::Worker;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

const JSON: &[&str] = &["content-type: application/json"];

fn post(client: &Client, path: &str, body: &Value) -> (u16, Value) {
    let reply = client.send("POST", path, JSON, body.to_string().as_bytes());
    (reply.status, serde_json::from_slice(&reply.body).unwrap_or(Value::Null))
}

fn spawn(client: &Client, tag: &str) -> String {
    let (status, made) = post(client, "/v1/sandboxes", &json!({ "snapshot_tag": tag }));
    assert_eq!(status, 201, "{made}");
    made[0]["id"].as_str().expect("an id").to_owned()
}

#[test]
fn statuses_and_bodies_of_refusals() {
    let client = root();
    let kind = |headers: &[&str], body: &str| {
        let reply = client.send("POST", "/v1/sandboxes", headers, body.as_bytes());
        (reply.status, reply.json()["error"].is_string())
    };
    assert_eq!(kind(&[], "{}"), (415, true));
    assert_eq!(kind(JSON, "{"), (400, true));
    assert_eq!(kind(JSON, "{}"), (422, true));
    assert_eq!(kind(JSON, r#"{"snapshot_tag": "no/such"}"#), (400, true));
    assert_eq!(kind(JSON, r#"{"snapshot_tag": "nosuch", "unknown": 1}"#), (404, true));
    let (status, said) =
        post(&client, "/v1/snapshots", &json!({ "tag": "t", "kernel": "/k", "rootfs": "/r" }));
    assert_eq!(status, 400);
    assert!(said["error"].as_str().expect("a word").contains("recipe"), "{said}");
    let (status, _) = post(&client, "/v1/snapshots/nosuch/compact", &json!({ "to": "other" }));
    assert_eq!(status, 500);
    let ask = json!({ "name": "w", "snapshot_tag": "nosuch" });
    assert_eq!(post(&client, "/v1/workspaces", &ask).0, 500);
    assert_eq!(client.get("/v1/snapshots/nosuch/info").status, 404);
    let both = client.delete("/v1/snapshots/nosuch?cascade=true&force=true");
    assert_eq!(both.status, 400);
    let alone = Client::new(shared().forkd, "");
    assert_eq!(alone.get("/healthz").json(), json!({ "ok": true }));
    assert_eq!(alone.get("/v1/machine/list").status, 401);
    let own = Client::new(shared().forkd, &shared().token);
    assert_eq!(own.get("/v1/machine/list").status, 404);
    assert_eq!(own.get("/version").json()["api"], "v1");
    assert!(own.get("/metrics").text().contains("forkd_branch_concurrency_cap"));
}

#[test]
fn commands_with_input_environment_directory_terminal_stream_and_jobs() {
    let client = root();
    let id = spawn(&client, "python");
    let run = |body: Value| {
        let (status, done) = post(&client, &format!("/v1/sandboxes/{id}/exec"), &body);
        assert_eq!(status, 200, "{done}");
        done
    };
    let done = run(json!({ "args": ["sh", "-c", "cat; echo $WORD; pwd"], "stdin": "in\n",
        "env": { "WORD": "set" }, "cwd": "/tmp" }));
    assert_eq!(done["stdout"], "in\nset\n/tmp\n");
    let done = run(json!({ "args": ["sh", "-c", "test -t 0 && echo terminal"], "tty": true }));
    assert_eq!((&done["stdout"], &done["exit_code"]), (&json!("terminal\r\n"), &json!(0)));
    let done = run(json!({ "args": ["sh", "-c", "kill -9 $$"] }));
    assert_eq!(done["exit_code"], 137);
    let done = run(json!({ "args": ["true"], "cwd": "/no/such" }));
    assert_eq!(done["kind"], "not_found");
    let body = json!({ "args": ["sh", "-c", "echo one; echo two >&2; exit 4"], "stream": true });
    let reply =
        client.send("POST", &format!("/v1/sandboxes/{id}/exec"), JSON, body.to_string().as_bytes());
    let text = reply.text();
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.contains(&json!({ "stream": "stdout", "data": "one" })), "{text}");
    assert!(lines.contains(&json!({ "stream": "stderr", "data": "two" })), "{text}");
    assert_eq!(lines.last().expect("an end")["exit_code"], 4);

    let job = run(json!({ "args": ["sh", "-c", "echo begun; sleep 600"], "background": true }));
    let path = format!("/v1/sandboxes/{id}/jobs/{}", job["job"].as_str().expect("a number"));
    let begun = || {
        let seen = client.get(&path).good();
        assert_eq!(seen["running"], true);
        seen["stdout"] == "begun\n"
    };
    while !begun() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = client.delete(&path).good();
    assert_eq!((&ended["running"], &ended["exit_code"]), (&json!(false), &json!(137)));
    assert_eq!(ended["stdout"], "begun\n");
    assert_eq!(client.get(&format!("/v1/sandboxes/{id}/jobs/99")).status, 404);
}

/// The value of code in a sandbox, as forkd shows it.
fn evaluated(client: &Client, id: &str, code: &str) -> String {
    let (_, said) = post(client, &format!("/v1/sandboxes/{id}/eval"), &json!({ "code": code }));
    said["result"].as_str().unwrap_or_else(|| panic!("{code}: {said}")).to_owned()
}

#[test]
fn chains_workspaces_and_deletion() {
    let client = root();
    let id = spawn(&client, "python");
    let eval = |id: &str, code: &str| evaluated(&client, id, code);
    eval(&id, "n = 1");
    let keep = |id: &str, tag: &str, parent: &str| {
        let body = json!({ "tag": tag, "mode": "diff", "parent_tag": parent });
        post(&client, &format!("/v1/sandboxes/{id}/branch"), &body).0
    };
    assert_eq!(keep(&id, "chain-1", "python"), 201);
    assert_eq!(keep(&id, "chain-x", "wrong"), 400);
    let second = spawn(&client, "chain-1");
    eval(&second, "n += 1");
    assert_eq!(keep(&second, "chain-2", "chain-1"), 201);
    let info = client.get("/v1/snapshots/chain-2/info").good();
    assert_eq!(info["ancestors"], json!(["python", "chain-1"]));
    assert_eq!(client.delete("/v1/snapshots/chain-1").status, 409);
    assert_eq!(post(&client, "/v1/snapshots/chain-2/compact", &json!({ "to": "flat" })).0, 200);
    assert_eq!(client.delete("/v1/snapshots/chain-1?force=true").status, 204);
    assert_eq!(eval(&spawn(&client, "chain-2"), "n"), "2");
    assert_eq!(eval(&spawn(&client, "flat"), "n"), "2");

    let ask = json!({ "name": "desk", "snapshot_tag": "chain-2" });
    let (status, desk) = post(&client, "/v1/workspaces", &ask);
    assert_eq!((status, &desk["status"]), (201, &json!("running")));
    assert_eq!(post(&client, "/v1/workspaces", &ask).0, 409);
    let live = desk["live_sandbox_id"].as_str().expect("an id").to_owned();
    eval(&live, "n = 40");
    let path = "/v1/workspaces/desk";
    assert_eq!(post(&client, &format!("{path}/suspend"), &json!({})).1["status"], "suspended");
    assert_eq!(client.get(&format!("/v1/sandboxes/{live}")).status, 404);
    assert_eq!(post(&client, &format!("{path}/suspend"), &json!({})).0, 400);
    let (_, back) = post(&client, &format!("{path}/resume"), &json!({}));
    let live = back["live_sandbox_id"].as_str().expect("an id");
    assert_eq!(eval(live, "n + 2"), "42");
    assert_eq!(client.delete(path).status, 204);
    assert_eq!(client.get(path).status, 404);
}

/// Sends a request and does not wait for the answer.
fn begin(client: &Client, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(client.address).expect("a connection");
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        client.address,
        client.token,
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream
}

/// The service is killed while a branch and a suspension are under way: whatever became of them,
/// everything there is works, and what was kept before is as it was.
#[test]
fn killed_in_the_middle_of_a_branch_and_a_suspension() {
    let data = fresh_data("forkd-killed");
    let mut worker = Worker::start(&data);
    let id = spawn(&worker.client, "python");
    let ask = json!({ "name": "desk", "snapshot_tag": "python" });
    let (status, desk) = post(&worker.client, "/v1/workspaces", &ask);
    assert_eq!(status, 201, "{desk}");
    let mut live = desk["live_sandbox_id"].as_str().expect("an id").to_owned();
    let eval = |client: &Client, id: &str, code: &str| {
        let path = format!("/v1/sandboxes/{id}/eval");
        let (_, said) = post(client, &path, &json!({ "code": code }));
        said["result"].as_str().unwrap_or_else(|| panic!("{code}: {said}")).to_owned()
    };
    let soak = std::env::var_os("STASIS_SOAK").is_some();
    let delays: &[u64] = if soak { &[0, 1, 2, 4, 8, 16, 32, 64, 128] } else { &[0, 10, 40] };
    for (round, delay) in delays.iter().enumerate() {
        let client = &worker.client;
        eval(client, &id, &format!("n = {round}"));
        eval(client, &live, &format!("n = {round}"));
        // what was kept under a tag is on disk
        for (from, tag) in [(&id, "kept"), (&live, "desk")] {
            let body = json!({ "tag": format!("{tag}-{round}") });
            let path = format!("/v1/sandboxes/{from}/branch");
            assert_eq!(post(client, &path, &body).0, 201);
        }
        let body = json!({ "tag": format!("half-{round}") });
        let branch = begin(client, &format!("/v1/sandboxes/{id}/branch"), &body);
        let suspend = begin(client, "/v1/workspaces/desk/suspend", &json!({}));
        std::thread::sleep(Duration::from_millis(*delay));
        drop(worker);
        drop((branch, suspend));

        worker = Worker::start(&data);
        let client = &worker.client;
        assert_eq!(eval(client, &id, "n"), round.to_string());
        let desk = client.get("/v1/workspaces/desk").good();
        if desk["status"] == "suspended" {
            let (status, said) = post(client, "/v1/workspaces/desk/resume", &json!({}));
            assert_eq!(status, 200, "{said}");
        }
        let desk = client.get("/v1/workspaces/desk").good();
        live = desk["live_sandbox_id"].as_str().expect("an id").to_owned();
        assert_eq!(eval(client, &live, "n"), round.to_string());
        let tags = client.get("/v1/snapshots").good();
        let tags: Vec<&str> =
            tags.as_array().expect("a list").iter().filter_map(|one| one["tag"].as_str()).collect();
        for tag in tags.iter().filter(|tag| tag.ends_with(&format!("-{round}"))) {
            let child = spawn(client, tag);
            assert_eq!(eval(client, &child, "n"), round.to_string(), "{tag}");
        }
        assert!(tags.contains(&format!("kept-{round}").as_str()), "{tags:?}");
        let machines = client.get("/v1/sandboxes").good();
        assert!(machines.as_array().expect("a list").iter().any(|one| one["id"] == *id));
    }
}
