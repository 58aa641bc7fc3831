//! Standard streams in front of a service: each line of JSON-RPC becomes a POST to a unix socket,
//! and what comes back, as JSON or as an event stream, becomes lines.
//!
//!   stdin ──► line ──► POST ──► service        one connection for each message, so that a long
//!   stdout ◄── lines ◄── JSON or events        call holds nobody up
//!
//! A message that cannot be delivered is answered with an error, so that no client waits for ever.

use crate::error::{Error, Result};
use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as Lock, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};

/// Bytes of one line in, and of one message out.
const MAX_LINE: u64 = 64 << 20;
/// For answers that are still on their way when the client has closed its end.
const GRACE: Duration = Duration::from_secs(5);
const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
/// The first revision without sessions.
const STATELESS: &str = "2026-07-28";

/// Connects the process's standard streams to the service at a socket, until standard input ends.
pub async fn proxy(socket: &Path, path: &str) -> Result<()> {
    let input = tokio::io::BufReader::new(tokio::io::stdin());
    proxy_streams(input, tokio::io::stdout(), socket, path).await
}

/// The same for any pair of streams.
pub async fn proxy_streams(
    input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    socket: &Path,
    path: &str,
) -> Result<()> {
    let wire = Arc::new(Wire {
        socket: socket.to_owned(),
        path: path.to_owned(),
        output: Mutex::new(output),
        known: Lock::default(),
    });
    let mut tasks = JoinSet::new();
    let ended = forward_lines(input, &wire, &mut tasks).await;
    let rest = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GRACE, rest).await;
    tasks.shutdown().await;
    wire.close_session().await;
    ended
}

async fn forward_lines<W: AsyncWrite + Unpin + Send + 'static>(
    mut input: impl AsyncBufRead + Unpin,
    wire: &Arc<Wire<W>>,
    tasks: &mut JoinSet<()>,
) -> Result<()> {
    loop {
        let mut line = Vec::new();
        let read = (&mut input).take(MAX_LINE).read_until(b'\n', &mut line).await;
        let read = read.map_err(|source| Error::Io { doing: "read a message".into(), source })?;
        if read as u64 == MAX_LINE && !line.ends_with(b"\n") {
            return Err(Error::Invalid(format!("a message is at most {MAX_LINE} bytes")));
        }
        if read == 0 {
            return Ok(());
        }
        if !line.trim_ascii().is_empty() {
            wire.take(line, tasks).await;
        }
        while tasks.try_join_next().is_some() {}
    }
}

struct Wire<W> {
    socket: PathBuf,
    path: String,
    output: Mutex<W>,
    known: Lock<Known>,
}

/// What was learnt on the way.
#[derive(Default)]
struct Known {
    session: Option<String>,
    version: Option<String>,
    /// Requests without an answer yet, by their ids as text.
    open: HashMap<String, AbortHandle>,
}

impl<W: AsyncWrite + Unpin + Send + 'static> Wire<W> {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Sends one message on its way. The first one is waited for: it settles how to go on.
    async fn take(self: &Arc<Self>, line: Vec<u8>, tasks: &mut JoinSet<()>) {
        let message: Value = match serde_json::from_slice(&line) {
            Ok(message) => message,
            Err(error) => {
                let words = format!("not JSON: {error}");
                return self.put(&problem(&Value::Null, -32700, &words)).await;
            }
        };
        if self.cancels(&message) {
            return;
        }
        let (wire, id) = (self.clone(), message.get("id").cloned());
        if message["method"] == "initialize" {
            return wire.deliver(message).await;
        }
        // held, so that a quick answer finds the entry it takes away
        let mut known = self.known();
        let task = tasks.spawn(async move { wire.deliver(message).await });
        if let Some(id) = id {
            known.open.insert(id.to_string(), task);
        }
    }

    /// Without a session a request is cancelled by hanging up, and only so.
    fn cancels(&self, message: &Value) -> bool {
        let mut known = self.known();
        if message["method"] != "notifications/cancelled" || known.session.is_some() {
            return false;
        }
        let task = known.open.remove(&message["params"]["requestId"].to_string());
        task.inspect(AbortHandle::abort).is_some()
    }

    async fn deliver(&self, message: Value) {
        let id = message.get("id").cloned();
        if let Err(words) = self.exchange(&message).await
            && let Some(id) = &id
        {
            self.put(&problem(id, -32000, &words)).await;
        }
        if let Some(id) = id {
            self.known().open.remove(&id.to_string());
        }
    }

    async fn exchange(&self, message: &Value) -> std::result::Result<(), String> {
        let request = self.request(message).map_err(|error| error.to_string())?;
        let response = self.send(request).await?;
        if let Some(session) = header(&response, SESSION) {
            self.known().session = Some(session);
        }
        let events = header(&response, "content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        match (response.status(), events) {
            (StatusCode::ACCEPTED | StatusCode::NO_CONTENT, _) => Ok(()),
            (_, true) => self.events(response.into_body()).await,
            (status, false) => self.whole(message, status, response.into_body()).await,
        }
    }

    fn request(
        &self,
        message: &Value,
    ) -> std::result::Result<Request<Full<Bytes>>, hyper::http::Error> {
        let known = self.known();
        let own = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(version) = own.or(known.version.as_deref()) {
            request = request.header(VERSION, version);
        }
        if let Some(session) = known.session.as_ref().filter(|_| own.is_none()) {
            request = request.header(SESSION, session);
        }
        if own.is_some_and(|version| version >= STATELESS) {
            for (name, value) in routing_headers(message) {
                request = request.header(name, value);
            }
        }
        request.body(Full::from(message.to_string()))
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> std::result::Result<Response<Incoming>, String> {
        let socket = self.socket.display();
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|error| format!("connect to {socket}: {error}"))?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| format!("{socket}: {error}"))?;
        // ends when the answer was read or dropped
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| format!("{socket}: {error}"))
    }

    /// An answer in one piece. What is no JSON-RPC becomes an error of it.
    async fn whole(
        &self,
        message: &Value,
        status: StatusCode,
        body: Incoming,
    ) -> std::result::Result<(), String> {
        let body = http_body_util::Limited::new(body, MAX_LINE as usize).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        match serde_json::from_slice::<Value>(&body) {
            Ok(answer) if answer.get("jsonrpc").is_some() => {
                self.learn(&answer);
                self.put(&answer).await;
                Ok(())
            }
            _ if message.get("id").is_none() => Ok(()),
            _ => {
                let words: String = String::from_utf8_lossy(&body).chars().take(500).collect();
                Err(format!("the service answered {status}: {words}"))
            }
        }
    }

    /// An answer as events: each one's data is a message.
    async fn events(&self, mut body: Incoming) -> std::result::Result<(), String> {
        let mut events = Events::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| format!("the answer broke off: {error}"))?;
            let Some(bytes) = frame.data_ref() else { continue };
            for data in events.feed(bytes)? {
                if let Ok(message) = serde_json::from_str::<Value>(&data) {
                    self.learn(&message);
                    self.put(&message).await;
                }
            }
        }
        Ok(())
    }

    /// The answer to `initialize` says which revision the session speaks.
    fn learn(&self, message: &Value) {
        let version = message["result"]["protocolVersion"].as_str();
        if let Some(version) = version {
            self.known().version = Some(version.to_owned());
        }
    }

    async fn put(&self, message: &Value) {
        let mut output = self.output.lock().await;
        let line = format!("{message}\n");
        // a client that no longer reads has gone: standard input says so next
        let _ = output.write_all(line.as_bytes()).await;
        let _ = output.flush().await;
    }

    async fn close_session(&self) {
        let Some(session) = self.known().session.take() else { return };
        let request = Request::builder()
            .method(Method::DELETE)
            .uri(&self.path)
            .header("host", "localhost")
            .header(SESSION, session)
            .body(Full::default());
        if let Ok(request) = request {
            let _ = tokio::time::timeout(GRACE, self.send(request)).await;
        }
    }
}

fn header(response: &Response<Incoming>, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}

/// What revision 2026-07-28 wants to see beside the body.
fn routing_headers(message: &Value) -> Vec<(&'static str, &str)> {
    let Some(method) = message["method"].as_str() else { return Vec::new() };
    let params = &message["params"];
    let name = match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params["taskId"].as_str(),
        _ => None,
    };
    let name = name.map(|name| ("mcp-name", name));
    [("mcp-method", method)].into_iter().chain(name).collect()
}

fn problem(id: &Value, code: i32, words: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": words } })
}

/// Takes an event stream apart.
#[derive(Default)]
struct Events {
    line: Vec<u8>,
    data: Vec<String>,
    bytes: usize,
}

impl Events {
    /// The data of events that are complete now.
    fn feed(&mut self, bytes: &[u8]) -> std::result::Result<Vec<String>, String> {
        self.bytes += bytes.len();
        let mut complete = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                complete.extend(self.end_line(String::from_utf8_lossy(&line).trim_end()));
            }
        }
        match self.bytes as u64 > MAX_LINE {
            true => Err(format!("an event is at most {MAX_LINE} bytes")),
            false => Ok(complete),
        }
    }

    fn end_line(&mut self, line: &str) -> Option<String> {
        if let Some(data) = line.strip_prefix("data:") {
            self.data.push(data.strip_prefix(' ').unwrap_or(data).to_owned());
        }
        if !line.is_empty() {
            return None;
        }
        self.bytes = 0;
        Some(std::mem::take(&mut self.data).join("\n")).filter(|data| !data.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_in_any_pieces() {
        let stream = "id: 0\r\nretry: 3000\r\ndata:\r\n\r\n: ping\n\ndata: {\"a\":\ndata: 1}\n\n";
        for size in [1, 2, 7, 1000] {
            let mut events = Events::default();
            let pieces = stream.as_bytes().chunks(size);
            let all: Vec<_> = pieces.flat_map(|piece| events.feed(piece).expect("fed")).collect();
            assert_eq!(all, ["{\"a\":\n1}"], "in pieces of {size}");
        }
    }

    #[test]
    fn headers_say_what_the_body_says() {
        let call = json!({ "method": "tools/call", "params": { "name": "run_code" } });
        assert_eq!(
            routing_headers(&call),
            [("mcp-method", "tools/call"), ("mcp-name", "run_code")]
        );
        let list = json!({ "method": "tools/list", "params": { "name": "x" } });
        assert_eq!(routing_headers(&list), [("mcp-method", "tools/list")]);
    }
}
