//! Input that no honest client sends: it is refused with a message or answered with an error, and
//! affects no other client.

use crate::common::{Client, Events, PATIENCE, Service, text};
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use hyper::StatusCode;
use serde_json::{Value, json};
use stasis_mcp::McpOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bodies that are no message of the protocol.
fn garbage() -> Vec<Vec<u8>> {
    let text = [
        "",
        " ",
        "{",
        "null",
        "7",
        "\"tools/list\"",
        "[]",
        "[[]]",
        "{}",
        "{\"jsonrpc\":\"2.0\"}",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}",
        "{\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} trailing",
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
        "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},7]",
    ];
    let mut all: Vec<Vec<u8>> = text.iter().map(|text| text.as_bytes().to_vec()).collect();
    all.push(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}".to_vec());
    all.push("[".repeat(1 << 20).into_bytes());
    let deep = format!("{}{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    all.push(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{deep}}}").into(),
    );
    all
}

/// Messages that can be read and make no sense: each has an answer that is an error.
fn nonsense() -> Vec<(&'static str, Value)> {
    let call = |arguments: Value| json!({ "name": "run_code", "arguments": arguments });
    vec![
        ("nothing/like/this", json!({})),
        ("tools/call", json!({})),
        ("tools/call", json!({ "name": 7 })),
        ("tools/call", json!({ "name": "no_such_tool", "arguments": {} })),
        ("tools/call", json!({ "name": "x".repeat(100_000), "arguments": {} })),
        ("tools/call", call(json!([]))),
        ("tools/call", call(json!("code"))),
        ("resources/read", json!({ "uri": "stasis://machine/../../etc/passwd" })),
        ("resources/read", json!({ "uri": "file:///etc/passwd" })),
        ("resources/read", json!({ "uri": 7 })),
        ("prompts/get", json!({ "name": "none" })),
        ("tasks/get", json!({ "taskId": "run_code:../x@0" })),
        ("tasks/cancel", json!({ "taskId": "run_code:none@18446744073709551616" })),
        ("completion/complete", json!({ "ref": 7 })),
    ]
}

/// Arguments that a tool cannot take: a result that says so.
fn wrong_types() -> Vec<(&'static str, Value)> {
    vec![
        ("run_code", json!({})),
        ("run_code", json!({ "code": 7 })),
        ("run_code", json!({ "code": "1", "machine": ["a"] })),
        ("run_code", json!({ "code": "1", "machine": "../../x" })),
        ("run_code", json!({ "code": "1", "machine": "x".repeat(10_000) })),
        ("run_code", json!({ "code": "1", "timeout_seconds": -1 })),
        ("run_code", json!({ "code": "1", "timeout_seconds": 1e300 })),
        ("run_code", json!({ "code": "1", "langauge": "python" })),
        ("create_machine", json!({ "name": "a/b" })),
        ("create_machine", json!({ "tags": { "a": 7 } })),
        ("list_machines", json!({ "limit": -1 })),
        ("read_file", json!({ "machine": "none", "path": "\u{0}" })),
        ("show_history", json!({ "machine": "none", "from": 1e30 })),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages_are_refused() {
    let service = Service::start().await;
    let session = service.session("/mcp", "root").await;
    let mut events = service.client().listen("/sse").await;
    let posts = Client { path: events.next().await.leak(), ..service.client() };
    let like = json!({ "method": "ping" });
    for client in [session.clone(), service.client(), posts] {
        for body in garbage() {
            let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
            let reply = client.post_text(body, &like).await;
            let refused = reply.status.is_client_error()
                || reply.messages.last().is_some_and(|last| last.get("error").is_some());
            assert!(refused, "{} {shown}: {} {}", client.path, reply.status, reply.body);
        }
    }
    assert_eq!(session.run_fresh("6 * 7").await, "42", "the session is as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_answered() {
    let service = Service::start().await;
    let session = service.session("/mcp", "root").await;
    for client in [session, service.client()] {
        for (method, params) in nonsense() {
            let shown = params.to_string().chars().take(80).collect::<String>();
            let reply = client.request(method, params).await;
            let refused = reply.status.is_client_error() || reply.last().get("error").is_some();
            assert!(refused, "{method} {shown}: {} {}", reply.status, reply.body);
            assert!(reply.body.len() < 4000, "{method} {shown}: {} bytes", reply.body.len());
        }
        for (tool, arguments) in wrong_types() {
            let shown = arguments.to_string().chars().take(80).collect::<String>();
            let result = client.call(tool, arguments).await;
            assert_eq!(result["isError"], true, "{tool} {shown}: {result}");
            assert!(text(&result).starts_with("error["), "{tool} {shown}: {result}");
        }
        // unrequested answers, and notifications about nothing
        for message in [
            json!({ "jsonrpc": "2.0", "id": 99, "result": {} }),
            json!({ "jsonrpc": "2.0", "id": 99, "error": { "code": 1, "message": "x" } }),
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": { "requestId": 12345 } }),
            json!({ "jsonrpc": "2.0", "method": "notifications/none", "params": {} }),
        ] {
            let reply = client.post(message.clone()).await;
            assert!(!reply.status.is_server_error(), "{message}: {}", reply.status);
        }
        assert_eq!(client.run_fresh("6 * 7").await, "42");
    }
}

impl Client {
    async fn run_fresh(&self, code: &str) -> Value {
        let result = self.call("run_code", json!({ "code": code })).await;
        result["structuredContent"]["value"].clone()
    }

    async fn lists(&self) -> StatusCode {
        self.request("tools/list", json!({})).await.status
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_belong_to_one_account_and_end_once() {
    let service = Service::start().await;
    let anna = service.session("/mcp", "anna").await;
    let bert = Client { account: "bert", ..anna.clone() };
    assert_eq!(bert.lists().await, StatusCode::NOT_FOUND);
    // ending what is not there is no failure, and ends nothing
    bert.end_session().await;
    assert!(bert.try_listen().await.is_client_error(), "nor its news be heard");
    let elsewhere = Client { path: "/mcp/forkd", ..anna.clone() };
    assert_eq!(elsewhere.lists().await, StatusCode::NOT_FOUND, "a session has its tools");
    assert_eq!(anna.lists().await, StatusCode::OK);
    for forged in ["", "forged", "../../x", "00000000-0000-0000-0000-000000000000"] {
        let forged = Client { session: Some(forged.into()), ..anna.clone() };
        assert!(forged.lists().await.is_client_error());
    }
    assert!(anna.end_session().await.is_success());
    assert_eq!(anna.lists().await, StatusCode::NOT_FOUND, "replayed after its end");
    assert!(anna.try_listen().await.is_client_error());
}

impl Client {
    /// The status of the stream a GET gives.
    async fn try_listen(&self) -> StatusCode {
        let mut stream = TcpStream::connect(self.address).await.expect("connect");
        let head = format!(
            "GET {} HTTP/1.1\r\nhost: {}\r\nx-account: {}\r\naccept: text/event-stream\r\n\
             mcp-session-id: {}\r\nmcp-protocol-version: {}\r\nconnection: close\r\n\r\n",
            self.path,
            self.address,
            self.account,
            self.session.as_deref().unwrap_or_default(),
            self.version
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        status(&mut stream).await
    }
}

/// The status of an answer on a bare connection.
async fn status(stream: &mut TcpStream) -> StatusCode {
    let mut head = [0; 12];
    let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut head)).await;
    read.expect("in time").expect("an answer");
    let code = String::from_utf8_lossy(&head[9..]).into_owned();
    code.parse().expect("a status")
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_too_long() {
    let few = McpOptions { max_body: 100_000, ..McpOptions::default() };
    let service = Service::with(few).await;
    let session = service.session("/mcp", "root").await;
    let mut events = service.client().listen("/sse").await;
    let posts = Client { path: events.next().await.leak(), ..service.client() };
    for client in [&session, &service.client(), &posts] {
        let huge = client.message(1, "tools/call", json!({ "name": "x".repeat(200_000) }));
        // told before all of it is read, or not at all
        let like = json!({ "method": "tools/call" });
        let reply = client.post_text(huge.to_string(), &like).await;
        assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE, "{}", client.path);
        assert_eq!(client.endless().await, StatusCode::PAYLOAD_TOO_LARGE, "{}", client.path);
    }
    assert_eq!(session.run_fresh("1 + 1").await, "2");
}

impl Client {
    /// A body in chunks that never ends.
    async fn endless(&self) -> StatusCode {
        let mut stream = TcpStream::connect(self.address).await.expect("connect");
        let session = self.session.as_ref().map(|id| format!("mcp-session-id: {id}\r\n"));
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: {}\r\n\
             mcp-method: ping\r\n{}transfer-encoding: chunked\r\n\r\n",
            self.path,
            self.address,
            self.version,
            session.unwrap_or_default()
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
        for _ in 0..100 {
            // the service may have answered and hung up
            if stream.write_all(chunk.as_bytes()).await.is_err() {
                break;
            }
        }
        status(&mut stream).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_delays_no_other() {
    let service = Service::start().await;
    let other = service.session("/mcp", "root").await;
    let code = "for n in range(20000): print('x' * 100, flush=True)\nkept = n";
    let sleepy = [service.session("/mcp", "root").await, service.client()];
    let mut open = Vec::new();
    for (n, client) in sleepy.iter().enumerate() {
        let name = format!("noisy-{n}");
        other.call("create_machine", json!({ "name": name })).await;
        let params = json!({ "name": "run_code", "_meta": { "progressToken": n },
            "arguments": { "machine": name, "code": code, "timeout_seconds": 600 } });
        // the answer begins, and is not read to its end
        open.push(client.send(&client.message(50, "tools/call", params)).await);
    }
    let ended = async |name: &str| {
        let machine = service.bed.host.machine(name).expect("the machine");
        let waiting = tokio::task::spawn_blocking(move || machine.wait(0).expect("an end"));
        let end = tokio::time::timeout(PATIENCE, waiting).await.expect("in time");
        assert_eq!(end.expect("no panic").status, stasis_api::Status::Done, "{name}");
    };
    for n in 0..sleepy.len() {
        ended(&format!("noisy-{n}")).await;
        let kept = other.run(&format!("noisy-{n}"), "kept").await;
        assert_eq!(kept["structuredContent"]["value"], "19999");
    }
    // one that wakes up late has its answer still
    for response in open {
        let body = tokio::time::timeout(PATIENCE, response.into_body().collect()).await;
        let body = body.expect("in time").expect("a body").to_bytes();
        let end = String::from_utf8_lossy(&body[body.len().saturating_sub(100_000)..]).into_owned();
        assert!(end.contains("\"structuredContent\""), "{}", &end[end.len() - 200..]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_sessions_are_enough() {
    let service = Service::start().await;
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "greedy", "version": "1" } });
    let greedy = Client { account: "greedy", version: "2025-11-25", ..service.client() };
    let open = |_: usize| {
        let (greedy, hello) = (greedy.clone(), hello.clone());
        async move { greedy.request("initialize", hello).await }
    };
    let opened: Vec<_> = stream::iter(0..1100).map(open).buffer_unordered(16).collect().await;
    let (good, bad): (Vec<_>, Vec<_>) =
        opened.into_iter().partition(|reply| reply.status == StatusCode::OK);
    // simultaneous requests may be a few more
    assert!((1000..1016).contains(&good.len()), "{} sessions", good.len());
    assert!(bad.iter().all(|reply| reply.status == StatusCode::SERVICE_UNAVAILABLE));
    // neither others, nor what needs no session, nor the account itself once some have ended
    let other = service.session("/mcp", "other").await;
    assert_eq!(other.run_fresh("1 + 1").await, "2");
    let stateless = Client { account: "greedy", ..service.client() };
    assert_eq!(stateless.run_fresh("1 + 1").await, "2");
    for reply in &good[..20] {
        let id = reply.headers["mcp-session-id"].to_str().expect("text").to_owned();
        let session = Client { session: Some(id), ..greedy.clone() };
        assert!(session.end_session().await.is_success());
    }
    assert_eq!(open(0).await.status, StatusCode::OK);
}

/// Blocking work waits for the account's permit, as the embedding service decides.
#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_for_their_turn() {
    let free = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
    let own = free.clone();
    let limiter = stasis_mcp::CallLimiter::new(move |account: String| {
        let own = own.clone();
        async move {
            match account.as_str() {
                "greedy" => own.acquire_owned().await.map(Some).map_err(|error| error.to_string()),
                "unwanted" => Err("too many".to_owned()),
                _ => Ok(None),
            }
        }
    });
    let service = Service::with(McpOptions { limiter, ..McpOptions::default() }).await;
    let of = |account| Client { account, ..service.client() };
    let held = free.clone().acquire_owned().await.expect("the turn");
    let greedy = of("greedy");
    let mut calling = tokio::spawn(async move { greedy.call("list_machines", json!({})).await });
    assert_eq!(of("root").run_fresh("1 + 1").await, "2", "others go on");
    let refused = of("unwanted").call("list_machines", json!({})).await;
    assert!(text(&refused).starts_with("error[service.overloaded]: too many\n"), "{refused}");
    let early = tokio::time::timeout(std::time::Duration::from_millis(50), &mut calling).await;
    assert!(early.is_err(), "it has no turn yet");
    drop(held);
    assert_eq!(calling.await.expect("no panic")["isError"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_subscriptions_are_counted() {
    let few = McpOptions { max_sessions: 3, ..McpOptions::default() };
    let service = Service::with(few).await;
    let mut streams: Vec<Events> = Vec::new();
    for _ in 0..3 {
        streams.push(service.client().listen("/sse").await);
    }
    let fourth = Client { path: "/sse", ..service.client() };
    assert_eq!(fourth.try_listen().await, StatusCode::SERVICE_UNAVAILABLE);
    let other = Client { account: "other", ..fourth.clone() };
    assert_eq!(other.try_listen().await, StatusCode::OK);
    drop(streams.pop());
    let patience = std::time::Instant::now() + PATIENCE;
    while fourth.try_listen().await != StatusCode::OK {
        assert!(std::time::Instant::now() < patience, "a stream that ended still counts");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let session = service.session("/mcp", "root").await;
    let subscribe = async |n: u32| {
        let uri = json!({ "uri": format!("stasis://machine/m{n}") });
        session.request("resources/subscribe", uri).await.last().get("error").is_none()
    };
    let mut taken = 0;
    while taken < 1100 && subscribe(taken).await {
        taken += 1;
    }
    assert_eq!(taken, 1000);
    assert!(!subscribe(5000).await);
}
