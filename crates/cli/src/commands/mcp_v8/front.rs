//! mcp-v8's port: accepts requests like mcp-v8, and forwards them to the daemon.
//!
//!   client ─► host and origin on the lists? ─► token, if there are keys ─► path ─► daemon
//!
//! Answers are streamed. A request whose host is not on the list, or that a page of another origin
//! sends, is refused before its body is read. If no daemon runs, the front starts one and sends the
//! request to it; `greetings.rs` then opens the client's session again. A request that was under
//! way when the daemon ended may have had an effect: it is repeated only if it is a GET. Otherwise
//! the client gets 502 once the daemon is back, so that its next request is answered.

use super::greetings::{Greetings, SESSION_ID};
use super::host_files::HostFiles;
use crate::client::Client;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use stasis_mcpv8::settings::OWN;
use stasis_server::TokenKeys;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Another header for a token, beside `Authorization`.
const TOKEN: &str = "agent-session";
/// Needs no token.
const OPEN: &str = "/api-doc/openapi.json";
/// Bytes of a request: more than the service takes of any.
const MOST_BYTES: usize = 32 << 20;
/// How often a request is sent when no daemon answers.
const TRIES: usize = 3;
/// Headers of one connection, and those that the front has checked.
const LEFT_OUT: [&str; 8] = [
    TOKEN,
    "connection",
    "content-length",
    "host",
    "origin",
    "sec-fetch-site",
    "transfer-encoding",
    "authorization",
];

pub struct Front {
    pub client: Arc<Client>,
    /// The tool set at `/mcp` and `/sse`.
    pub tools: &'static str,
    /// Settings of this process for all of its clients.
    pub headers: Vec<(&'static str, String)>,
    /// Its host names; any, if there is `*`.
    pub hosts: Vec<String>,
    pub origins: Vec<String>,
    /// Keys that sign tokens; without them no token is required.
    pub keys: Option<Arc<TokenKeys>>,
    /// Sessions of clients, by the ids the clients know.
    pub greetings: Greetings,
    /// Files that its clients may run.
    pub files: HostFiles,
}

/// A request as it goes to the daemon.
pub struct Passed {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub async fn serve(listener: TcpListener, front: Front) -> std::io::Result<()> {
    let router = Router::new().fallback(pass).with_state(Arc::new(front));
    axum::serve(listener, router).await
}

/// mcp-v8 answers 400 to a large body of its own API; its MCP transport answers 413.
fn too_large(is_mcp: bool) -> Response {
    let said = format!("a request has at most {MOST_BYTES} bytes");
    match is_mcp {
        true => (StatusCode::PAYLOAD_TOO_LARGE, said).into_response(),
        false => {
            let body = axum::Json(serde_json::json!({ "error": said }));
            (StatusCode::BAD_REQUEST, body).into_response()
        }
    }
}

async fn pass(State(front): State<Arc<Front>>, request: Request) -> Response {
    if !front.admits(request.headers()) {
        let said = "Forbidden: this host or origin is not allowed";
        return (StatusCode::FORBIDDEN, said).into_response();
    }
    if !front.is_open(&request) && !front.is_authorized(token(request.headers())).await {
        return unauthorized();
    }
    let Some(path) = front.path(request.uri().path()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if path == "/" {
        return (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "/llms.txt")]).into_response();
    }
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let is_mcp = request.uri().path() == "/mcp";
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MOST_BYTES).await else {
        return too_large(is_mcp);
    };
    let mut headers = parts.headers;
    LEFT_OUT.into_iter().for_each(|name| drop(headers.remove(name)));
    // the settings of this process: without its setup, a client would be without its policies
    let own = headers.keys().filter(|name| name.as_str().starts_with(OWN));
    own.cloned().collect::<Vec<_>>().into_iter().for_each(|name| drop(headers.remove(name)));
    let body = if path.starts_with("/api/") { body } else { front.files.body(body).await };
    let path = format!("{path}{query}");
    let passed = Passed { method: parts.method, path, headers, body };
    let sent = match is_mcp {
        true => front.greetings.send(&front, passed).await,
        false => front.send(&passed).await,
    };
    match sent {
        Ok(answer) => back(answer),
        Err(error) => {
            let said = format!(
                "the service ended before it answered: {error}. It was started again; look whether \
                 this request had an effect before you repeat it"
            );
            (StatusCode::BAD_GATEWAY, said).into_response()
        }
    }
}

/// The daemon's answer, and the client's own id of its session if it has another one.
pub struct DaemonAnswer {
    pub answer: reqwest::Response,
    pub session: Option<HeaderValue>,
}

impl From<reqwest::Response> for DaemonAnswer {
    fn from(answer: reqwest::Response) -> DaemonAnswer {
        DaemonAnswer { answer, session: None }
    }
}

fn back(answer: DaemonAnswer) -> Response {
    let DaemonAnswer { answer, session } = answer;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let mut response = Response::new(Body::from_stream(answer.bytes_stream()));
    *response.status_mut() = status;
    let kept = |name: &HeaderName| !LEFT_OUT.contains(&name.as_str());
    for (name, value) in headers.iter().filter(|(name, _)| kept(name)) {
        let value: &HeaderValue = value;
        response.headers_mut().append(name, value.clone());
    }
    if let Some(session) = session {
        response.headers_mut().insert(SESSION_ID, session);
    }
    response
}

/// The token of a request, in either header.
fn token(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    bearer.map(|(_, token)| token.trim()).or_else(|| text(TOKEN)).map(str::to_owned)
}

fn unauthorized() -> Response {
    let said = "a valid Bearer token is required";
    let body = serde_json::json!({ "error": "unauthorized", "message": said });
    let head = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, head, axum::Json(body)).into_response()
}

impl Front {
    /// Sends a request to the daemon, which is started if there is none.
    pub async fn send(&self, passed: &Passed) -> reqwest::Result<DaemonAnswer> {
        let mut tries = 1;
        loop {
            let mut sent = self.client.forward(passed.method.clone(), &passed.path);
            for (name, value) in &passed.headers {
                sent = sent.header(name, value);
            }
            for (name, value) in &self.headers {
                sent = sent.header(*name, value);
            }
            let error = match sent.body(passed.body.clone()).send().await {
                Ok(answer) => return Ok(answer.into()),
                Err(error) => error,
            };
            let is_repeatable = error.is_connect() || passed.method == Method::GET;
            if tries == TRIES || !self.is_back().await || !is_repeatable {
                return Err(error);
            }
            tries += 1;
        }
    }

    /// Whether the daemon answers again. One that is ending may take connections until it is gone.
    async fn is_back(&self) -> bool {
        for _ in 0..TRIES {
            if !self.client.is_back().await {
                return false;
            }
            if self.client.forward(Method::GET, "/health").send().await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Whether a request may be answered without a token.
    fn is_open(&self, request: &Request) -> bool {
        self.keys.is_none() || request.method() == Method::OPTIONS || request.uri().path() == OPEN
    }

    /// Whether a token is signed with one of the keys.
    async fn is_authorized(&self, token: Option<String>) -> bool {
        match (&self.keys, token) {
            (Some(keys), Some(token)) => keys.admits(&token).await,
            _ => false,
        }
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or(""));
        let host = text(header::HOST).unwrap_or_default().to_ascii_lowercase();
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let bare =
            host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(&*host, |(b, _)| b);
        let bare = bare.trim_matches(['[', ']']);
        let is_known =
            |own: &String| own == "*" || *own == host || own.trim_matches(['[', ']']) == bare;
        let own_page = |origin: &str| {
            let of = |scheme: &str| origin.strip_prefix(scheme).is_some_and(|own| own == host);
            of("http://") || of("https://")
        };
        let is_foreign = text(header::ORIGIN).is_some_and(|origin| {
            !own_page(origin) && !self.origins.iter().any(|own| own == origin || own == "*")
        });
        self.hosts.iter().any(is_known) && !is_foreign
    }

    /// The service's path for a path of mcp-v8.
    fn path(&self, path: &str) -> Option<String> {
        let tools = self.tools;
        match path {
            "/" => Some("/".into()),
            "/mcp" => Some(format!("/mcp/{tools}")),
            "/sse" => Some(format!("/sse/{tools}")),
            "/docs" => Some("/llms.txt".into()),
            _ if path == format!("/sse/{tools}/messages") => Some(path.into()),
            // clients cannot override this process's settings
            _ if path.starts_with("/api/setup") => None,
            _ if stasis_mcpv8::is_own_path(path) => Some(path.into()),
            _ => None,
        }
    }
}
