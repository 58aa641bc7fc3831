//! Standard streams in front of a service: each line of JSON-RPC becomes a POST, and the response,
//! JSON or an event stream, becomes lines.
//!
//!   stdin ──► line ──► POST ──► service        several at a time: a long call delays no
//!   stdout ◄── lines ◄── JSON or events        other; notifications have their own stream
//!
//! A message that cannot be delivered is answered with an error, so that no client waits for ever.
//! A restarted service does not know the client's session: the proxy repeats the initialization for
//! the client.

mod events;
mod upstream;

pub use upstream::Upstream;

use crate::error::{Error, Result};
use events::SseParser;
use parking_lot::{Mutex as Lock, MutexGuard};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};

/// Maximum bytes of one line in, and of one message out.
const MAX_LINE: u64 = 64 << 20;
/// Time for pending answers after the client has closed its end.
const GRACE: Duration = Duration::from_secs(5);
/// Delay before a broken notification stream is reopened.
const AGAIN: Duration = Duration::from_secs(1);
const SESSION: &str = "mcp-session-id";
/// The first revision without sessions.
const STATELESS: &str = "2026-07-28";

type Sent<T> = std::result::Result<T, String>;

/// Connects the process's standard streams to a service, until standard input ends. A trait object,
/// so that all of it is compiled with this crate.
pub fn proxy(upstream: Upstream) -> Pin<Box<dyn Future<Output = Result<()>>>> {
    let input = tokio::io::BufReader::new(tokio::io::stdin());
    Box::pin(proxy_streams(input, tokio::io::stdout(), upstream))
}

/// The same for any pair of streams.
pub async fn proxy_streams(
    input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    upstream: Upstream,
) -> Result<()> {
    let wire = Arc::new(Wire { upstream, output: Mutex::new(output), known: Lock::default() });
    let mut tasks = JoinSet::new();
    let ended = forward_lines(input, &wire, &mut tasks).await;
    let news = {
        let mut known = wire.known();
        known.is_leaving = true;
        known.news.take()
    };
    news.inspect(AbortHandle::abort);
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
    upstream: Upstream,
    output: Mutex<W>,
    known: Lock<Known>,
}

/// State learnt from the messages.
#[derive(Default)]
struct Known {
    session: Option<String>,
    version: Option<String>,
    /// The client's `initialize` request.
    greeting: Option<Value>,
    /// Unanswered requests, by their ids as text.
    open: HashMap<String, AbortHandle>,
    /// The notification stream.
    news: Option<AbortHandle>,
    /// Whether the client ever requested resources.
    has_resources: bool,
    /// Whether the client has closed its end, and only waits for answers.
    is_leaving: bool,
}

impl Known {
    /// Whether a message is for this client. Clients that have stopped reading report unrequested
    /// or late notifications as an error of the server.
    fn wants(&self, message: &Value) -> bool {
        match message["method"].as_str() {
            Some("notifications/resources/list_changed") => self.has_resources && !self.is_leaving,
            Some(_) if message.get("id").is_none() => !self.is_leaving,
            _ => true,
        }
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Wire<W> {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Forwards one message. The first one is awaited, because it selects the revision.
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
        let of_resources = |method: &str| method.starts_with("resources/");
        if message["method"].as_str().is_some_and(of_resources) {
            self.known().has_resources = true;
        }
        let (wire, id) = (self.clone(), message.get("id").cloned());
        if message["method"] == "initialize" {
            wire.known().greeting = Some(message.clone());
            wire.deliver(message).await;
            return self.listen(tasks);
        }
        // held, so that a quick answer finds the entry it removes
        let mut known = self.known();
        let task = tasks.spawn(async move { wire.deliver(message).await });
        if let Some(id) = id {
            known.open.insert(id.to_string(), task);
        }
    }

    /// Without a session a request is cancelled by closing its connection, and only so.
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
        if let Err(words) = self.exchange(message).await
            && let Some(id) = &id
        {
            self.put(&problem(id, -32000, &words)).await;
        }
        if let Some(id) = id {
            self.known().open.remove(&id.to_string());
        }
    }

    async fn exchange(&self, message: Value) -> Sent<()> {
        let message = &self.upstream.edited(message).await?;
        let mut response = self.post(message).await?;
        if response.status() == StatusCode::NOT_FOUND && self.greet_again(message).await? {
            response = self.post(message).await?;
        }
        if let Some(session) = header(&response, SESSION) {
            self.known().session = Some(session);
        }
        let events = header(&response, "content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        match (response.status(), events) {
            (StatusCode::ACCEPTED | StatusCode::NO_CONTENT, _) => Ok(()),
            (_, true) => self.events(response).await,
            (_, false) => self.whole(message, response).await,
        }
    }

    async fn post(&self, message: &Value) -> Sent<Response> {
        let headers = self.headers(message);
        self.upstream.post(message, &headers).await
    }

    fn headers(&self, message: &Value) -> Vec<(&'static str, String)> {
        let known = self.known();
        let own = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
        let version = own.or(known.version.as_deref());
        let version = version.map(|version| ("mcp-protocol-version", version.to_owned()));
        let session = known.session.clone().filter(|_| own.is_none());
        let mut all: Vec<_> = version.into_iter().collect();
        all.extend(session.map(|session| (SESSION, session)));
        if own.is_some_and(|version| version >= STATELESS) {
            all.extend(
                routing_headers(message).into_iter().map(|(name, at)| (name, at.to_owned())),
            );
        }
        all
    }

    /// Initializes a session with a service that does not know the client's. Whether there was one.
    async fn greet_again(&self, message: &Value) -> Sent<bool> {
        let greeting = {
            let mut known = self.known();
            let lost = known.session.take().is_some() && message["method"] != "initialize";
            known.greeting.clone().filter(|_| lost)
        };
        let Some(greeting) = greeting else { return Ok(false) };
        let response = self.post(&greeting).await?;
        let session = header(&response, SESSION);
        // its answer is that of the first time
        let _ = response.bytes().await;
        self.known().session = session;
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.post(&ready).await?;
        Ok(true)
    }

    /// Follows the notifications of a session, if the service created one.
    fn listen(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let wire = self.clone();
        let mut known = self.known();
        if known.session.is_some() && known.news.is_none() {
            known.news = Some(tasks.spawn(async move { wire.follow_news().await }));
        }
    }

    async fn follow_news(&self) {
        loop {
            let headers = self.headers(&Value::Null);
            if let Ok(response) = self.upstream.get(&headers).await
                && response.status() == StatusCode::OK
            {
                let _ = self.events(response).await;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// A complete answer. One that is not JSON-RPC becomes a JSON-RPC error.
    async fn whole(&self, message: &Value, response: Response) -> Sent<()> {
        let status = response.status();
        let body = upstream::read(response, MAX_LINE as usize).await?;
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
    async fn events(&self, mut response: Response) -> Sent<()> {
        let mut events = SseParser::default();
        let broken = |error: reqwest::Error| format!("the answer broke off: {error}");
        while let Some(bytes) = response.chunk().await.map_err(broken)? {
            for data in events.feed(&bytes)? {
                if let Ok(message) = serde_json::from_str::<Value>(&data) {
                    self.learn(&message);
                    self.put(&message).await;
                }
            }
        }
        Ok(())
    }

    /// The answer to `initialize` contains the session's revision.
    fn learn(&self, message: &Value) {
        let version = message["result"]["protocolVersion"].as_str();
        if let Some(version) = version {
            self.known().version = Some(version.to_owned());
        }
    }

    async fn put(&self, message: &Value) {
        if !self.known().wants(message) {
            return;
        }
        let mut output = self.output.lock().await;
        let line = format!("{message}\n");
        // a client that no longer reads has exited: standard input ends next
        let _ = output.write_all(line.as_bytes()).await;
        let _ = output.flush().await;
    }

    async fn close_session(&self) {
        let headers = self.headers(&Value::Null);
        let Some(_) = self.known().session.take() else { return };
        let _ = tokio::time::timeout(GRACE, self.upstream.delete(&headers)).await;
    }
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}

/// Headers that revision 2026-07-28 requires beside the body.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_go_to_those_who_asked_and_stay() {
        let changed = json!({ "method": "notifications/resources/list_changed" });
        let progress = json!({ "method": "notifications/progress" });
        let answer = json!({ "id": 1, "result": {} });
        let wants = |known: &Known| [&changed, &progress, &answer].map(|one| known.wants(one));
        let mut known = Known::default();
        assert_eq!(wants(&known), [false, true, true]);
        known.has_resources = true;
        assert_eq!(wants(&known), [true, true, true]);
        known.is_leaving = true;
        assert_eq!(wants(&known), [false, false, true]);
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
