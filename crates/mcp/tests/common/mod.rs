//! A service on a loopback port, and a client that speaks plain HTTP and JSON-RPC to it.

#![allow(dead_code)]

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use stasis_mcp::{McpCaller, McpOptions, router};
use stasis_testbed::TestHost;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener};

pub const OLD: &str = "2025-11-25";
pub const NEW: &str = "2026-07-28";
/// Against hangs only.
pub const PATIENCE: Duration = Duration::from_secs(600);

pub struct Service {
    pub bed: TestHost,
    pub address: SocketAddr,
    serving: tokio::task::JoinHandle<()>,
}

impl Service {
    /// The account of a request is what its `x-account` header says, as if a token had been
    /// checked.
    pub async fn start() -> Service {
        Service::with(McpOptions::default()).await
    }

    pub async fn with(options: McpOptions) -> Service {
        // on this thread, which lives as long as the test: what it starts may die with it
        let bed = || TestHost::with(|settings| settings.timeout = Some(PATIENCE));
        let bed = tokio::task::block_in_place(bed);
        Service::over(bed, options).await
    }

    /// Over a host with another template than the default one.
    pub async fn of(template: &str) -> Service {
        let bed = tokio::task::block_in_place(|| TestHost::of(template));
        Service::over(bed, McpOptions::default()).await
    }

    async fn over(bed: TestHost, options: McpOptions) -> Service {
        let forkd = stasis_forkd::Forkd::new(bed.host.clone());
        let v8 = stasis_mcpv8::V8::new(bed.host.clone());
        let router = router(bed.host.clone(), (forkd, v8), options);
        let router = router.layer(axum::middleware::map_request(account));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        Service { bed, address, serving }
    }

    /// Ends the service and starts another one in its place.
    pub async fn restart(self) -> Service {
        self.serving.abort();
        let _ = self.serving.await;
        let bed = self.bed;
        let bed = tokio::task::block_in_place(move || bed.reopen());
        Service::over(bed, McpOptions::default()).await
    }

    /// The same service at a unix socket too.
    pub async fn at_socket(&self) -> std::path::PathBuf {
        let path = self.bed.dir.path().join("mcp.socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let forkd = stasis_forkd::Forkd::new(self.bed.host.clone());
        let v8 = stasis_mcpv8::V8::new(self.bed.host.clone());
        let router = router(self.bed.host.clone(), (forkd, v8), McpOptions::default());
        tokio::spawn(async move { axum::serve(listener, router).await });
        path
    }

    /// A client of the revision without sessions.
    pub fn client(&self) -> Client {
        Client::new(self.address, "/mcp")
    }

    /// A client of the revision without sessions, that can do what `capabilities` says.
    pub fn able(&self, capabilities: Value) -> Client {
        Client { capabilities, ..self.client() }
    }

    /// A client with a session.
    pub async fn session(&self, path: &'static str, account: &'static str) -> Client {
        let client = Client { account, path, ..self.client() };
        self.open(client).await
    }

    /// Opens a session for a client.
    pub async fn open(&self, mut client: Client) -> Client {
        client.version = OLD;
        client.open_session().await;
        client
    }
}

async fn account(mut request: axum::extract::Request) -> axum::extract::Request {
    let name = request.headers().get("x-account").and_then(|name| name.to_str().ok());
    if let Some(name) = name.map(str::to_owned) {
        let may_build = name == "root";
        let may_approve = may_build;
        request.extensions_mut().insert(McpCaller { name, may_build, may_approve });
    }
    request
}

#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub path: &'static str,
    pub account: &'static str,
    pub version: &'static str,
    pub session: Option<String>,
    pub capabilities: Value,
    pub extra: Vec<(&'static str, &'static str)>,
}

/// An answer, taken apart.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub messages: Vec<Value>,
    pub body: String,
}

impl Reply {
    /// The response among the messages.
    pub fn last(&self) -> &Value {
        self.messages.last().unwrap_or_else(|| panic!("{}: {}", self.status, self.body))
    }

    pub fn result(&self) -> &Value {
        let last = self.last();
        assert!(last.get("result").is_some(), "{last}");
        &last["result"]
    }
}

impl Client {
    pub fn new(address: SocketAddr, path: &'static str) -> Client {
        let (version, session, extra) = (NEW, None, Vec::new());
        let (account, capabilities) = ("root", json!({}));
        Client { address, path, account, version, session, capabilities, extra }
    }

    async fn open_session(&mut self) {
        let hello = json!({
            "protocolVersion": OLD, "capabilities": self.capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        });
        let reply = self.request("initialize", hello).await;
        assert_eq!(reply.result()["protocolVersion"], OLD);
        let session = reply.headers.get("mcp-session-id").expect("a session");
        self.session = Some(session.to_str().expect("text").to_owned());
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(ready).await.status, StatusCode::ACCEPTED);
    }

    /// Asks about a task until it is over.
    pub async fn over(&self, id: &str) -> Value {
        let asking = async {
            loop {
                let now = self.request("tasks/get", json!({ "taskId": id })).await.result().clone();
                if now["status"] != "working" {
                    return now;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("an end in time")
    }

    /// Opens the stream a GET gives.
    pub async fn listen(&self, path: &str) -> Events {
        let mut sender = self.connect().await;
        let mut request = Request::get(path)
            .header("accept", "text/event-stream")
            .header("host", self.address.to_string())
            .header("x-account", self.account);
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", OLD);
        }
        let request = request.body(Full::<Bytes>::default()).expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        Events { _sender: Some(sender), ..Events::of(response) }
    }

    /// Ends the session, or tries to; the status of the answer.
    pub async fn end_session(&self) -> StatusCode {
        let mut sender = self.connect().await;
        let request = Request::delete(self.path)
            .header("host", self.address.to_string())
            .header("x-account", self.account)
            .header("mcp-protocol-version", self.version)
            .header("mcp-session-id", self.session.as_deref().unwrap_or_default());
        let request = request.body(Full::<Bytes>::default()).expect("a request");
        sender.send_request(request).await.expect("an answer").status()
    }

    async fn connect(&self) -> hyper::client::conn::http1::SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.address).await.expect("connect");
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.expect("shake hands");
        tokio::spawn(connection);
        sender
    }

    pub async fn send(&self, message: &Value) -> Response<Incoming> {
        self.send_text(message.to_string(), message).await
    }

    /// Sends any bytes, with the headers that a message would have.
    pub async fn send_text(&self, body: impl Into<Bytes>, message: &Value) -> Response<Incoming> {
        let mut sender = self.connect().await;
        let mut request = Request::post(self.path)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("x-account", self.account)
            .header("mcp-protocol-version", self.version);
        if !self.extra.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in &self.extra {
            request = request.header(*name, *value);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        if self.version == NEW {
            let method = message["method"].as_str().unwrap_or_default();
            request = request.header("mcp-method", method);
            let params = &message["params"];
            let names = ["name", "uri", "taskId"].map(|key| params[key].as_str());
            if let Some(name) = names.into_iter().flatten().next() {
                request = request.header("mcp-name", name);
            }
        }
        let request = request.body(Full::<Bytes>::from(body.into())).expect("a request");
        sender.send_request(request).await.expect("an answer")
    }

    pub async fn post(&self, message: Value) -> Reply {
        self.post_text(message.to_string(), &message).await
    }

    pub async fn post_text(&self, body: impl Into<Bytes>, message: &Value) -> Reply {
        let exchange = async {
            let response = self.send_text(body, message).await;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            let body = String::from_utf8(body.to_vec()).expect("text");
            let lines = body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line));
            let messages = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
            Reply { status, headers, messages, body }
        };
        tokio::time::timeout(PATIENCE, exchange).await.expect("an answer in time")
    }

    /// A request of this client's revision.
    pub fn message(&self, id: u64, method: &str, mut params: Value) -> Value {
        if self.version == NEW {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = NEW.into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                self.capabilities.clone();
            params["_meta"]["io.modelcontextprotocol/clientInfo"] =
                json!({ "name": "test", "version": "1" });
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    pub async fn request(&self, method: &str, params: Value) -> Reply {
        self.post(self.message(1, method, params)).await
    }

    /// The result of a tool.
    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request("tools/call", params).await.result().clone()
    }

    /// Runs code on a machine.
    pub async fn run(&self, machine: &str, code: &str) -> Value {
        self.call("run_code", json!({ "machine": machine, "code": code })).await
    }
}

/// A stream of events.
pub struct Events {
    body: Incoming,
    text: String,
    /// The connection ends with it.
    _sender: Option<hyper::client::conn::http1::SendRequest<Full<Bytes>>>,
}

impl Events {
    pub fn of(response: Response<Incoming>) -> Events {
        assert_eq!(response.status(), StatusCode::OK);
        Events { body: response.into_body(), text: String::new(), _sender: None }
    }

    /// The next event's data.
    pub async fn next(&mut self) -> String {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
                let data: Vec<_> = lines.map(|line| line.trim_start()).collect();
                let (data, rest) = (data.join("\n"), rest.to_owned());
                self.text = rest;
                if !data.is_empty() {
                    return data;
                }
                continue;
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("in time");
            let frame = frame.expect("the stream goes on").expect("a frame");
            let bytes = frame.into_data().unwrap_or_default();
            self.text += &String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        }
    }

    /// The next message for which this holds.
    pub async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Ok(message) = serde_json::from_str(&self.next().await)
                && wanted(&message)
            {
                return message;
            }
        }
    }
}

pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}
