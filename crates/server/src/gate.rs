//! What happens to every request on its way in and out: it gets an id, is checked, counted, logged
//! and, if it changes things, written to the audit log.

use crate::app::{App, Asker, Phase};
use crate::audit::Entry;
use crate::auth::{Caller, ROOT, unauthorized};
use crate::connection::Peer;
use crate::failure::{Failure, REQUEST, Result};
use crate::forkd;
use crate::keyring::random_hex;
use crate::oauth;
use crate::trace::RequestSpan;
use crate::unproven::Ticket;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use stasis_api::Problem;
use std::sync::Arc;
use std::time::Instant;

const ID: HeaderName = HeaderName::from_static("x-request-id");
/// Asked without a token: whether the service lives, and the way to an account that is not one.
const OPEN: [&str; 3] = ["/health", "/healthz", "/internal/signup"];
/// Where browsers put a token, because their WebSockets cannot send headers.
const IN_QUERY: &str = "_forevervm_jwt";

pub async fn pass(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    REQUEST.scope(id.clone(), watched(app, id, request, next)).await
}

async fn watched(app: App, id: String, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let pattern = request.extensions().get::<MatchedPath>();
    let route = pattern.map_or_else(|| "unknown".into(), |path| path.as_str().to_owned());
    // one that nobody knows anything about is refused, never taken for the host's own
    let peer = request.extensions().get::<Peer>().copied();
    let foreign = app.guard.foreign(request.headers()).and_then(|text| text.parse().ok());
    let from = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    let admitted = admit(&app, peer, &request).and_then(|caller| prove(&request, caller));
    let challenge = oauth::challenge(&app, request.headers(), &path);
    let caller = admitted.as_ref().ok().cloned().flatten();
    let mut response = match admitted {
        Err(failure) if forkd::is_own(&path) => forkd::Refusal::from(failure).into_response(),
        Err(failure) => failure.into_response(),
        Ok(_) if method == Method::OPTIONS && foreign.is_some() => preflight(),
        Ok(caller) => answer(&app, caller, (&id, &route), request, next).await,
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    let status = response.status().as_u16();
    app.metrics.answered(method.as_str(), &route, status, start.elapsed());
    let account = caller.as_ref().map(|caller| caller.account.as_str());
    if changes(&method, status) {
        app.audit.write(&Entry {
            id: &id,
            account,
            token: caller.as_ref().and_then(|caller| caller.token.as_deref()),
            peer: &from,
            method: method.as_str(),
            path: &path,
            status,
        });
    }
    let ms = start.elapsed().as_secs_f64() * 1000.0;
    tracing::info!(id, account, peer = from, %method, path, status, ms, "request");
    decorate(response.headers_mut(), &id, foreign);
    response
}

/// Answers a request that may come in; in a span, if there is a caller and somebody traces.
async fn answer(
    app: &App,
    caller: Option<Caller>,
    (id, route): (&str, &str),
    mut request: Request,
    next: Next,
) -> Response {
    let account = caller.as_ref().map(|caller| caller.account.clone());
    let traced = app.traces.as_ref().zip(account.as_deref());
    let span = traced.map(|(traces, account)| traces.request(&request, route, account, id));
    let cause = span.as_ref().and_then(RequestSpan::cause);
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    if let Some(cause) = cause.clone() {
        request.extensions_mut().insert(cause);
    }
    let asker = Asker { account: account.unwrap_or_default(), cause };
    let mut response = asker.scope(next.run(request)).await;
    if let Some(span) = span {
        span.answered(&mut response);
    }
    response
}

/// Things that were read change nothing; a WebSocket may.
fn changes(method: &Method, status: u16) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    !reads || status == StatusCode::SWITCHING_PROTOCOLS.as_u16()
}

/// A caller that is known makes the connection one of its account's.
fn prove(request: &Request, caller: Option<Caller>) -> Result<Option<Caller>> {
    let ticket = request.extensions().get::<Arc<Ticket>>();
    if let (Some(ticket), Some(own)) = (ticket, &caller)
        && !ticket.prove(&own.account, own.account != ROOT)
    {
        let said = format!("account `{}` has too many connections open", own.account);
        let failure = Failure::about(Problem::TooMany, "account.connections", said);
        return Err(failure.hint("use connections again, or close those that are not needed"));
    }
    Ok(caller)
}

/// Whether a request may come in, and whose it is.
fn admit(app: &App, peer: Option<Peer>, request: &Request) -> Result<Option<Caller>> {
    if app.phase() > Phase::Serving {
        return Err(Failure::stopping());
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
    let known = |token: &str| {
        let jwt = || app.jwt.as_ref().and_then(|jwt| jwt.caller(token));
        app.keyring.caller(token).or_else(jwt)
    };
    let caller = token.and_then(known);
    caller.map(Some).ok_or_else(unauthorized)
}

/// Whether the host's own user asks. A request that nobody knows the origin of is refused.
fn is_private(peer: Option<Peer>) -> Result<bool> {
    match peer {
        Some(Peer::Private) => Ok(true),
        Some(Peer::Tcp(_)) => Ok(false),
        None => {
            let failure =
                Failure::about(Problem::Forbidden, "request.peer", "it is not known who asks");
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

/// Whether a browser's WebSocket asks.
pub fn is_browser(uri: &Uri) -> bool {
    in_query(uri).is_some()
}

/// The client's own id, if it is a decent one.
fn request_id(headers: &HeaderMap) -> String {
    let plain = |text: &&str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=64).contains(&text.len()) && text.bytes().all(good)
    };
    let given = headers.get(ID).and_then(|id| id.to_str().ok()).filter(plain);
    given.map_or_else(|| random_hex(8).unwrap_or_default(), str::to_owned)
}

fn decorate(headers: &mut HeaderMap, id: &str, foreign: Option<HeaderValue>) {
    if let Ok(id) = id.parse() {
        headers.insert(ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(origin) = foreign {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let shown =
            HeaderValue::from_static("mcp-session-id, retry-after, traceparent, x-request-id");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, shown);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
}

/// What a browser asks before a page of another origin may ask.
fn preflight() -> Response {
    let allowed = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, idempotency-key, last-event-id, mcp-method, mcp-name, \
             mcp-protocol-version, mcp-session-id, range, traceparent, tracestate, \
             x-forevervm-sdk, x-request-id, x-stasis-tools",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, allowed).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_a_peer_is_not_the_hosts_own() {
        assert!(is_private(Some(Peer::Private)).is_ok_and(|private| private));
        let refused = is_private(None).expect_err("nobody");
        assert_eq!((refused.problem, &*refused.code), (Problem::Forbidden, "request.peer"));
    }

    #[test]
    fn a_connection_that_is_not_the_accounts_yet_is_the_one_it_proves() {
        let register = crate::unproven::Register::new(64, 1024);
        let ticket = register.enter(Peer::Private);
        let mut request = Request::new(axum::body::Body::empty());
        request.extensions_mut().insert(ticket);
        assert!(prove(&request, None).is_ok_and(|caller| caller.is_none()));
        assert!(prove(&request, Some(Caller::private())).is_ok_and(|caller| caller.is_some()));
    }
}
