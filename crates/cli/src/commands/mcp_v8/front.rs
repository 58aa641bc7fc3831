//! mcp-v8's port: takes requests as mcp-v8 does, and hands them to the daemon.
//!
//!   client ─► host and origin on the lists? ─► token, if there are keys ─► path ─► daemon
//!
//! Everything is streamed both ways. A request whose host is not on the list, or that a page of
//! another origin sends, is refused before its body is read. If the daemon does not answer, the
//! client gets 502.

use crate::client::Client;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use stasis_server::TokenKeys;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Another place for a token, beside `Authorization`.
const TOKEN: &str = "agent-session";
/// Needs no token.
const OPEN: &str = "/api-doc/openapi.json";
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
    /// The set of tools that `/mcp` and `/sse` stand for.
    pub tools: &'static str,
    /// Settings of this process for all of its clients.
    pub headers: Vec<(&'static str, String)>,
    /// Hosts it is called by; all, if there is `*`.
    pub hosts: Vec<String>,
    pub origins: Vec<String>,
    /// Keys that tokens are signed with; nobody needs one without.
    pub keys: Option<Arc<TokenKeys>>,
}

pub async fn serve(listener: TcpListener, front: Front) -> std::io::Result<()> {
    let router = Router::new().fallback(pass).with_state(Arc::new(front));
    axum::serve(listener, router).await
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
    let (parts, body) = request.into_parts();
    let mut sent = front.client.forward(parts.method, &format!("{path}{query}"));
    for (name, value) in &parts.headers {
        if !LEFT_OUT.contains(&name.as_str()) {
            sent = sent.header(name, value);
        }
    }
    for (name, value) in &front.headers {
        if !parts.headers.contains_key(*name) {
            sent = sent.header(*name, value);
        }
    }
    match sent.body(reqwest::Body::wrap_stream(body.into_data_stream())).send().await {
        Ok(answer) => back(answer),
        Err(error) => (StatusCode::BAD_GATEWAY, format!("the service did not answer: {error}"))
            .into_response(),
    }
}

fn back(answer: reqwest::Response) -> Response {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let mut response = Response::new(Body::from_stream(answer.bytes_stream()));
    *response.status_mut() = status;
    let kept = |name: &HeaderName| !LEFT_OUT.contains(&name.as_str());
    for (name, value) in headers.iter().filter(|(name, _)| kept(name)) {
        let value: &HeaderValue = value;
        response.headers_mut().append(name, value.clone());
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

    /// Where the service has what mcp-v8 has at a path.
    fn path(&self, path: &str) -> Option<String> {
        let tools = self.tools;
        match path {
            "/" => Some("/".into()),
            "/mcp" => Some(format!("/mcp/{tools}")),
            "/sse" => Some(format!("/sse/{tools}")),
            "/docs" => Some("/llms.txt".into()),
            _ if path == format!("/sse/{tools}/messages") => Some(path.into()),
            // what this process was started with is not for its clients to say
            _ if path.starts_with("/api/setup") => None,
            _ if stasis_mcpv8::is_own_path(path) => Some(path.into()),
            _ => None,
        }
    }
}
