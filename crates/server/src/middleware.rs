//! Middleware of every request: assigns an id, checks, counts and logs it, and writes changes to
//! the audit log.

use crate::app::{App, Phase, RequestOrigin};
use crate::audit::{AuditEntry, ToolCall};
use crate::auth::{Caller, ROOT, unauthorized, unknown};
use crate::connection::Peer;
use crate::failure::{HttpFailure, REQUEST, Result};
use crate::forkd;
use crate::instruments::RequestWatch;
use crate::keyring::random_hex;
use crate::oauth;
use crate::unproven::Ticket;
use crate::v8;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use stasis_api::Problem;
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowOrigin, CorsLayer};

const ID: HeaderName = HeaderName::from_static("x-request-id");
/// Routes without a token: health, documents, and the account page that is always refused.
const OPEN: [&str; 7] = [
    "/",
    "/api-doc/openapi.json",
    "/docs",
    "/health",
    "/healthz",
    "/internal/signup",
    "/openapi.json",
];
/// Headers that pages of allowed origins may send, and read.
const FROM_PAGES: [&str; 14] = [
    "authorization",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "range",
    "traceparent",
    "tracestate",
    "x-forevervm-sdk",
    "x-request-id",
    "x-stasis-tools",
];
const TO_PAGES: [&str; 4] = ["mcp-session-id", "retry-after", "traceparent", "x-request-id"];
/// The query parameter for tokens, because browsers' WebSockets cannot send headers.
const IN_QUERY: &str = "_forevervm_jwt";

/// Puts this middleware before the routes, and CORS before it if other origins are allowed.
pub fn before(router: Router<App>, app: App) -> Router {
    let router = router.layer(from_fn_with_state(app.clone(), pass));
    let router = match app.guard.origins().is_empty() {
        true => router,
        false => router.layer(cors(app.guard.origins().to_vec())),
    };
    router.with_state(app)
}

fn cors(origins: Vec<String>) -> CorsLayer {
    let names = |names: &[&'static str]| -> Vec<HeaderName> {
        names.iter().map(|name| HeaderName::from_static(name)).collect()
    };
    let is_allowed = move |origin: &HeaderValue, _: &Parts| {
        origins.iter().any(|own| own.as_bytes() == origin.as_bytes())
    };
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(is_allowed))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(names(&FROM_PAGES))
        .expose_headers(names(&TO_PAGES))
        .max_age(Duration::from_secs(600))
}

async fn pass(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    REQUEST.scope(id.clone(), watched(app, id, request, next)).await
}

async fn watched(app: App, id: String, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let pattern = request.extensions().get::<MatchedPath>();
    let route = pattern.map_or("unknown", MatchedPath::as_str);
    let mut watch = app.instruments.request(method.as_str(), route);
    // a connection of unknown origin is refused, never treated as the host's own
    let peer = request.extensions().get::<Peer>().copied();
    let from = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    let admitted = admit(&app, peer, &request).and_then(|caller| prove(&request, caller));
    let challenge = oauth::challenge(&app, request.headers(), &path);
    let caller = admitted.as_ref().ok().cloned().flatten();
    let mut response = match admitted {
        Err(failure) if stasis_forkd::is_own(&path) => forkd::refused(failure).into_response(),
        Err(failure) if stasis_mcpv8::is_own_path(&path) => v8::refused(failure).into_response(),
        Err(failure) => failure.into_response(),
        Ok(caller) => answer(caller, &id, &mut watch, request, next).await,
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    let status = response.status().as_u16();
    let ms = watch.answered(&mut response);
    let account = caller.as_ref().map(|caller| caller.account.as_str());
    if changes(&method, status) {
        let call = response.extensions().get::<ToolCall>().cloned().unwrap_or_default();
        app.audit.write(&AuditEntry {
            id: &id,
            account,
            token: caller.as_ref().and_then(|caller| caller.token.as_deref()),
            peer: &from,
            method: method.as_str(),
            path: &path,
            tool: call.tool.as_deref(),
            machine: call.machine.as_deref(),
            status,
        });
    }
    tracing::info!(id, account, peer = from, %method, path, status, ms, "request");
    decorate(response.headers_mut(), &id);
    response
}

/// Answers an authorized request; in a span, if there is a caller and tracing is on.
async fn answer(
    caller: Option<Caller>,
    id: &str,
    watch: &mut RequestWatch,
    mut request: Request,
    next: Next,
) -> Response {
    let account = caller.as_ref().map(|caller| caller.account.clone());
    if let Some(account) = &account {
        watch.admitted(&request, account, id);
    }
    let cause = watch.cause();
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    if let Some(cause) = cause.clone() {
        request.extensions_mut().insert(cause);
    }
    let origin = RequestOrigin { account: account.unwrap_or_default(), cause };
    origin.scope(next.run(request)).await
}

/// Reads change nothing; a WebSocket may.
fn changes(method: &Method, status: u16) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    !reads || status == StatusCode::SWITCHING_PROTOCOLS.as_u16()
}

/// Assigns the connection to the account of a known caller.
fn prove(request: &Request, caller: Option<Caller>) -> Result<Option<Caller>> {
    let ticket = request.extensions().get::<Arc<Ticket>>();
    if let (Some(ticket), Some(own)) = (ticket, &caller)
        && !ticket.prove(&own.account, own.account != ROOT)
    {
        let said = format!("account `{}` has too many connections open", own.account);
        let failure = HttpFailure::about(Problem::TooMany, "account.connections", said);
        return Err(failure.hint("reuse connections, or close the ones you do not need"));
    }
    Ok(caller)
}

/// Whether a request is authorized, and its caller.
fn admit(app: &App, peer: Option<Peer>, request: &Request) -> Result<Option<Caller>> {
    if app.phase() > Phase::Serving {
        return Err(HttpFailure::stopping());
    }
    if is_private(peer)? {
        return Ok(Some(Caller::private()));
    }
    app.guard.check(request.headers())?;
    let path = request.uri().path();
    let open = OPEN.contains(&path) || oauth::is_open(path);
    if open || request.method() == Method::OPTIONS {
        return Ok(None);
    }
    let token = bearer(request.headers()).or_else(|| in_query(request.uri()));
    known(app, token.ok_or_else(unauthorized)?).map(Some)
}

/// The owner of a token: one of ours, or a web token.
fn known(app: &App, token: &str) -> Result<Caller> {
    if let Some(caller) = app.keyring.caller(token) {
        return Ok(caller);
    }
    match &app.jwt {
        Some(jwt) => jwt.caller(token),
        None => Err(unknown()),
    }
}

/// Whether the request comes from the host's own user. A request of unknown origin is refused.
fn is_private(peer: Option<Peer>) -> Result<bool> {
    match peer {
        Some(Peer::Private) => Ok(true),
        Some(Peer::Tcp(_)) => Ok(false),
        None => {
            let failure = HttpFailure::about(
                Problem::Forbidden,
                "request.peer",
                "the client's address is unknown",
            );
            Err(failure.hint("connect to an address that the service listens on"))
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (kind, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    kind.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Only for WebSockets: elsewhere a token in an address ends up in logs.
fn in_query(uri: &Uri) -> Option<&str> {
    let pairs = uri.query().filter(|_| uri.path().ends_with("/repl"))?.split('&');
    pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == IN_QUERY).map(|(_, v)| v)
}

/// Whether the request opens a browser's WebSocket.
pub fn is_browser(uri: &Uri) -> bool {
    in_query(uri).is_some()
}

/// The client's own request id, if it is valid.
fn request_id(headers: &HeaderMap) -> String {
    let plain = |text: &&str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=64).contains(&text.len()) && text.bytes().all(good)
    };
    let given = headers.get(ID).and_then(|id| id.to_str().ok()).filter(plain);
    given.map_or_else(random_hex::<8>, str::to_owned)
}

fn decorate(headers: &mut HeaderMap, id: &str) {
    if let Ok(id) = id.parse() {
        headers.insert(ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_a_peer_is_not_the_hosts_own() {
        assert!(is_private(Some(Peer::Private)).is_ok_and(|private| private));
        let refused = is_private(None).expect_err("no peer");
        assert_eq!((refused.problem, &*refused.code), (Problem::Forbidden, "request.peer"));
    }

    #[test]
    fn a_connection_that_is_not_the_accounts_yet_is_the_one_it_proves() {
        let register = crate::unproven::ConnectionRegister::new(64, 1024);
        let ticket = register.enter(Peer::Private);
        let mut request = Request::new(axum::body::Body::empty());
        request.extensions_mut().insert(ticket);
        assert!(prove(&request, None).is_ok_and(|caller| caller.is_none()));
        assert!(prove(&request, Some(Caller::private())).is_ok_and(|caller| caller.is_some()));
    }
}
