//! Limits of a client, and the effect of a cancellation.

use crate::common::{Client, PATIENCE, Service, text};
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Incoming;
use serde_json::{Value, json};
use stasis_api::Status;
use stasis_mcp::McpOptions;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

#[tokio::test(flavor = "multi_thread")]
async fn foreign_origins_and_hosts_are_refused() {
    let service = Service::start().await;
    for (name, value) in [("origin", "https://evil.example"), ("host", "evil.example")] {
        let mut client = service.client();
        client.extra.push((name, value));
        let reply = client.request("tools/list", json!({})).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{name}");
    }
    let allowed =
        McpOptions { origins: vec!["https://good.example:443".into()], ..McpOptions::default() };
    let service = Service::with(allowed).await;
    let mut client = service.client();
    client.extra.push(("origin", "https://good.example"));
    assert_eq!(client.request("tools/list", json!({})).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_do_not_see_each_other() {
    let service = Service::start().await;
    let anna = service.session("/mcp", "anna").await;
    let made = anna.call("create_machine", json!({ "name": "secret" })).await;
    assert_eq!(made["isError"], false);
    let mut bert = service.session("/mcp", "bert").await;
    for (tool, arguments) in [
        ("run_code", json!({ "machine": "secret", "code": "1" })),
        ("delete_machine", json!({ "machine": "secret" })),
        ("show_history", json!({ "machine": "secret" })),
        ("branch_machine", json!({ "machine": "secret" })),
    ] {
        let result = bert.call(tool, arguments).await;
        assert!(text(&result).starts_with("error[machine.not_found]"), "{tool}: {result}");
    }
    let list = bert.call("list_machines", json!({})).await;
    assert_eq!(list["structuredContent"]["machines"], json!([]));
    let read = bert.request("resources/read", json!({ "uri": "stasis://machine/secret" })).await;
    assert!(read.last().get("error").is_some(), "{}", read.last());
    bert.session = anna.session.clone();
    let reply = bert.request("tools/list", json!({})).await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND, "another account's session");
    bert.session = Some("forged".into());
    assert_eq!(bert.request("tools/list", json!({})).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_counted_and_garbage_is_refused() {
    let few = McpOptions { max_sessions: 1, max_body: 10_000, ..McpOptions::default() };
    let service = Service::with(few).await;
    let client = service.session("/mcp", "root").await;
    let mut second = client.clone();
    second.session = None;
    let reply = second.request("initialize", json!({})).await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    for garbage in [json!([]), json!(7), json!({ "jsonrpc": "2.0" }), json!([[[[]]]])] {
        let reply = client.post(garbage.clone()).await;
        assert!(reply.status.is_client_error(), "{garbage}: {}", reply.status);
    }
    let huge = client.call_status("run_code", json!({ "code": "x".repeat(20_000) })).await;
    assert_eq!(huge, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(client.call("list_machines", json!({})).await["isError"], false);
}

impl Client {
    async fn call_status(&self, tool: &str, arguments: Value) -> StatusCode {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await.status
    }
}

const SLEEPER: &str = "import time\nkept = 1\nprint('started', flush=True)\ntime.sleep(600)";

/// A machine whose sleeper is waiting to be given up.
async fn sleeper(client: &Client, name: &str) -> Value {
    let made = client.call("create_machine", json!({ "name": name })).await;
    assert_eq!(made["isError"], false, "{made}");
    let arguments = json!({ "machine": name, "code": SLEEPER, "timeout_seconds": 500 });
    let params = json!({
        "name": "run_code", "arguments": arguments, "_meta": { "progressToken": "p" },
    });
    client.message(77, "tools/call", params)
}

/// The answer to a sleeper's call, from where it says that it has started.
async fn started(client: &Client, message: &Value) -> Incoming {
    let mut body = client.send(message).await.into_body();
    let mut seen = String::new();
    while !seen.contains("started") {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("progress in time");
        let frame = frame.expect("more to come").expect("a frame");
        seen += &String::from_utf8_lossy(frame.data_ref().expect("data"));
    }
    assert!(seen.contains("notifications/progress"), "{seen}");
    body
}

async fn is_interrupted(service: &Service, client: &Client, name: &str) {
    let machine = service.bed.host.machine(name).expect("the machine");
    let start = Instant::now();
    while machine.instruction(0).expect("an instruction").status != Status::Interrupted {
        assert!(start.elapsed() < PATIENCE, "{name}: {:?}", machine.instruction(0));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(client.run(name, "kept").await["structuredContent"]["value"], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_interrupts_and_keeps_the_state() {
    let service = Service::start().await;
    let client = service.session("/mcp", "root").await;
    let message = sleeper(&client, "told").await;
    let _body = started(&client, &message).await;
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 77 },
    });
    assert_eq!(client.post(cancel).await.status, StatusCode::ACCEPTED);
    is_interrupted(&service, &client, "told").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_up_on_a_call_without_session_interrupts() {
    let service = Service::start().await;
    let client = service.client();
    let message = sleeper(&client, "left").await;
    drop(started(&client, &message).await);
    is_interrupted(&service, &client, "left").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_through_a_socket() {
    let service = Service::start().await;
    let socket = service.at_socket().await;
    let (near, far) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(far);
    let proxy = tokio::spawn(async move {
        let http = reqwest::Client::builder().unix_socket(socket).build().expect("a client");
        let upstream = stasis_mcp::Upstream::new(http, "http://localhost/mcp");
        stasis_mcp::proxy_streams(BufReader::new(input), output, upstream).await
    });
    let (lines, mut client) = tokio::io::split(near);
    let mut lines = BufReader::new(lines).lines();
    let mut ask = async |message: Value| {
        client.write_all(format!("{message}\n").as_bytes()).await.expect("write");
        if message.get("id").is_none() {
            return Value::Null;
        }
        loop {
            let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("in time");
            let said: Value =
                serde_json::from_str(&line.expect("read").expect("a line")).expect("JSON");
            // news may come in between
            if said.get("id").is_some() {
                return said;
            }
        }
    };
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } } });
    assert_eq!(ask(hello).await["result"]["protocolVersion"], "2025-06-18");
    ask(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let call = json!({ "jsonrpc": "2.0", "id": "two", "method": "tools/call", "params": {
        "name": "run_code", "arguments": { "code": "6 * 7" } } });
    let answer = ask(call).await;
    assert_eq!(
        (&answer["id"], &answer["result"]["structuredContent"]["value"]),
        (&"two".into(), &"42".into())
    );
    let stateless = service.client().message(3, "tools/list", json!({}));
    assert!(ask(stateless).await["result"]["tools"].is_array());
    assert_eq!(ask(json!({ "id": 4 })).await["id"], 4, "garbage is answered");
    client.shutdown().await.expect("shut down");
    drop((client, lines));
    let ended = tokio::time::timeout(PATIENCE, proxy).await.expect("an end in time");
    ended.expect("no panic").expect("a good end");
}
