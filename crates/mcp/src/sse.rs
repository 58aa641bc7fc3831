//! The first HTTP transport, for older clients: one event stream down, and messages up by POST to
//! an address that the stream's first event names.
//!
//!   GET /sse ──► endpoint, message, message, ...     the session lives as long as this stream
//!   POST /sse/messages?session_id=... ──► 202        whose answer comes down the stream
//!
//! A client that disconnects cancels its calls: the code is interrupted, and the state is kept.

use crate::http::{McpCaller, McpRoutes};
use crate::legacy;
use crate::notes::news;
use crate::server::Server;
use crate::sets::ToolSet;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{Stream, StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage, serve_server_with_ct};
use rmcp::transport::Transport;
use rmcp::transport::common::server_side_http::session_id;
use serde::Deserialize;
use serde_json::{Value, json};
use stasis_mcpv8::V8Settings;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Queued messages in either direction.
const BACKLOG: usize = 16;
/// Maximum wait of a message for a busy session.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum messages in one batch, which revision 2025-03-26 has.
const MAX_BATCH: usize = 100;

/// The senders of open streams.
#[derive(Default)]
pub struct SseSenders(Mutex<HashMap<String, Post>>);

#[derive(Clone)]
struct Post {
    account: McpCaller,
    sender: mpsc::Sender<ClientJsonRpcMessage>,
}

impl SseSenders {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Post>> {
        self.0.lock()
    }

    fn count(&self, account: &McpCaller) -> usize {
        self.all().values().filter(|post| post.account == *account).count()
    }
}

pub fn routes(mounts: Arc<McpRoutes>) -> Router {
    let at = |tools: Option<ToolSet>, path: String| {
        let messages = format!("{path}/messages");
        let down = messages.clone();
        let open = get(move |State(mounts), request| open(mounts, tools, down, request));
        let post = post(move |State(mounts), query, request| take(mounts, query, request));
        Router::new().route(&path, open).route(&messages, post)
    };
    let named = ToolSet::PUBLIC.map(|(name, tools)| at(Some(tools), format!("/sse/{name}")));
    let all = named.into_iter().fold(at(None, "/sse".into()), Router::merge);
    all.with_state(mounts)
}

async fn open(
    mounts: Arc<McpRoutes>,
    tools: Option<ToolSet>,
    messages: String,
    request: Request,
) -> Response {
    let tools = match mounts.choose(tools, request.headers()) {
        Ok(tools) => tools,
        Err(words) => return (StatusCode::BAD_REQUEST, words).into_response(),
    };
    if let Err(refusal) = mounts.admits(request.headers()) {
        return refusal.into_response();
    }
    let Some(account) = mounts.options().account(request.extensions()) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    if mounts.posts.count(&account) >= mounts.options().max_sessions {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many streams: close some").into_response();
    }
    let setup = match mounts.setup(tools, &account, request.headers()).await {
        Ok(setup) => setup,
        Err(words) => return (StatusCode::BAD_REQUEST, words).into_response(),
    };
    let server = mounts.server(tools, &account, setup);
    let settings = V8Settings::of(request.headers());
    let session = Session::open(&mounts.posts, account, server, settings);
    let endpoint = Event::default().event("endpoint");
    let endpoint = endpoint.data(format!("{messages}?session_id={}", session.id));
    let events = stream::iter([Ok::<_, Infallible>(endpoint)]).chain(session.events());
    let keep_alive = KeepAlive::new().interval(Duration::from_secs(15));
    Sse::new(events).keep_alive(keep_alive).into_response()
}

/// One stream, and everything that ends with it.
struct Session {
    id: String,
    posts: Arc<SseSenders>,
    receiver: mpsc::Receiver<String>,
    ended: CancellationToken,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.posts.all().remove(&self.id);
        self.ended.cancel();
    }
}

impl Session {
    fn open(
        posts: &Arc<SseSenders>,
        account: McpCaller,
        mut server: Server,
        settings: V8Settings,
    ) -> Session {
        let id = session_id().to_string();
        let (sender, incoming) = mpsc::channel(BACKLOG);
        let (outgoing, receiver) = mpsc::channel(BACKLOG);
        let notes = server.notes.insert(Arc::default()).clone();
        let session = settings.session.clone().or_else(|| Some(id.clone()));
        notes.open_with(V8Settings { session, ..settings });
        posts.all().insert(id.clone(), Post { account, sender });
        let ended = CancellationToken::new();
        tokio::spawn(pass_on_news(server.clone(), notes, outgoing.clone(), ended.clone()));
        tokio::spawn(serve(server, Wire { incoming, outgoing }, ended.clone()));
        Session { id, posts: posts.clone(), receiver, ended }
    }

    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        stream::unfold(self, async |mut session| {
            let message = session.receiver.recv().await?;
            Some((Ok(Event::default().event("message").data(message)), session))
        })
    }
}

async fn serve(server: Server, wire: Wire, ended: CancellationToken) {
    match serve_server_with_ct(server, wire, ended).await {
        Ok(running) => drop(running.waiting().await),
        Err(error) => tracing::debug!(%error, "a stream ended before it was greeted"),
    }
}

async fn pass_on_news(
    server: Server,
    notes: Arc<crate::notes::Notes>,
    outgoing: mpsc::Sender<String>,
    ended: CancellationToken,
) {
    let mut news = Box::pin(news(server, notes));
    loop {
        let one = tokio::select! {
            one = news.next() => one,
            () = ended.cancelled() => return,
        };
        let Some(one) = one else { return };
        let message: ServerJsonRpcMessage = JsonRpcMessage::notification(one);
        let Ok(text) = serde_json::to_string(&message) else { continue };
        tokio::select! {
            sent = outgoing.send(text) => if sent.is_err() { return },
            () = ended.cancelled() => return,
        }
    }
}

/// The library's end of a stream.
struct Wire {
    incoming: mpsc::Receiver<ClientJsonRpcMessage>,
    outgoing: mpsc::Sender<String>,
}

impl Transport<RoleServer> for Wire {
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let text = serde_json::to_string(&legacy::with_tasks(message))?;
            outgoing.send(text).await.map_err(|_| std::io::ErrorKind::BrokenPipe.into())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> std::io::Result<()> {
        self.incoming.close();
        Ok(())
    }
}

#[derive(Deserialize)]
struct Address {
    session_id: String,
}

async fn take(mounts: Arc<McpRoutes>, Query(at): Query<Address>, request: Request) -> Response {
    if let Err(refusal) = mounts.admits(request.headers()) {
        return refusal.into_response();
    }
    let Some(account) = mounts.options().account(request.extensions()) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let post = mounts.posts.all().get(&at.session_id).cloned();
    let Some(post) = post.filter(|post| post.account == account) else {
        return (StatusCode::NOT_FOUND, "there is no such session").into_response();
    };
    let Ok(body) = read(request, mounts.options().max_body).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let messages = match parse(&body) {
        Ok(messages) => messages,
        Err(odd) => return odd.into_response(),
    };
    for message in messages {
        let sent = tokio::time::timeout(PATIENCE, post.sender.send(message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return (StatusCode::SERVICE_UNAVAILABLE, "the session is busy").into_response();
        }
    }
    (StatusCode::ACCEPTED, "Accepted").into_response()
}

async fn read(request: Request<Body>, max: usize) -> Result<Bytes, axum::Error> {
    axum::body::to_bytes(request.into_body(), max).await
}

/// The messages of a body: one, or a batch.
fn parse(body: &[u8]) -> Result<Vec<ClientJsonRpcMessage>, Odd> {
    let parsed: Value = serde_json::from_slice(body).map_err(|_| Odd(-32700, "not JSON"))?;
    let all = match parsed {
        Value::Array(all) if all.is_empty() || all.len() > MAX_BATCH => {
            return Err(Odd(-32600, "a batch has 1 to 100 messages"));
        }
        Value::Array(all) => all,
        one => vec![one],
    };
    all.into_iter().map(message).collect()
}

fn message(mut message: Value) -> Result<ClientJsonRpcMessage, Odd> {
    legacy::mark(&mut message);
    serde_json::from_value(message).map_err(|_| Odd(-32600, "not a message of this protocol"))
}

/// Why a body is invalid: a JSON-RPC code and a message.
struct Odd(i32, &'static str);

impl IntoResponse for Odd {
    fn into_response(self) -> Response {
        let error = json!({ "code": self.0, "message": self.1 });
        let body = json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string();
        let kind = [(header::CONTENT_TYPE, "application/json")];
        (StatusCode::BAD_REQUEST, kind, body).into_response()
    }
}
