//! OAuth metadata for MCP clients (RFC 9728): the page that names the issuer of tokens, and the
//! header of a refusal that points to it. Only if web tokens are configured.

use crate::app::App;
use crate::auth::Scope;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// The protected resource, unless the address names one of ours.
const RESOURCE: &str = "/mcp";

pub fn routes() -> Router<App> {
    let own = || get(metadata);
    Router::new().route(WELL_KNOWN, own()).route(&format!("{WELL_KNOWN}/{{*path}}"), own())
}

/// Whether a path can be requested without a token.
pub fn is_open(path: &str) -> bool {
    path.strip_prefix(WELL_KNOWN).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// This service's address, as the client wrote it.
fn origin(app: &App, headers: &HeaderMap) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let scheme = if app.secure { "https" } else { "http" };
    Some(format!("{scheme}://{host}"))
}

async fn metadata(State(app): State<App>, request: Request) -> Response {
    let (Some(jwt), Some(origin)) = (&app.jwt, origin(&app, request.headers())) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let path = request.uri().path().strip_prefix(WELL_KNOWN).filter(|path| !path.is_empty());
    let about = json!({
        "resource": format!("{origin}{}", path.unwrap_or(RESOURCE)),
        "authorization_servers": [jwt.issuer()],
        "scopes_supported": Scope::all(),
        "bearer_methods_supported": ["header"],
        "resource_name": "Stasis",
    });
    Json(about).into_response()
}

/// The header of a refusal, which says how to authenticate.
pub fn challenge(app: &App, request: &HeaderMap, path: &str) -> HeaderValue {
    let mut parts = vec!["Bearer realm=\"stasis\"".to_owned()];
    // a request without a token is not an error of the client
    let sent = request.contains_key(header::AUTHORIZATION);
    parts.extend(sent.then(|| "error=\"invalid_token\"".to_owned()));
    parts.extend(pointer(app, request, path));
    value(&parts)
}

/// The same for a token without the required scope.
pub fn too_little(app: &App, request: &HeaderMap, path: &str, scope: Scope) -> HeaderValue {
    let mut parts = vec![
        "Bearer realm=\"stasis\"".to_owned(),
        "error=\"insufficient_scope\"".to_owned(),
        format!("scope=\"{}\"", scope.word()),
    ];
    parts.extend(pointer(app, request, path));
    value(&parts)
}

/// The address of the page that names the issuer.
fn pointer(app: &App, request: &HeaderMap, path: &str) -> Option<String> {
    let origin = app.jwt.as_ref().and_then(|_| origin(app, request))?;
    let own = if path.starts_with(RESOURCE) || path.starts_with("/sse") { path } else { "" };
    Some(format!("resource_metadata=\"{origin}{WELL_KNOWN}{own}\""))
}

fn value(parts: &[String]) -> HeaderValue {
    let text = parts.join(", ");
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("Bearer"))
}
