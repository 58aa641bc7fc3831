//! Health, the caller's account, and the documentation pages.

use crate::app::App;
use crate::auth::Caller;
use crate::failure::{HttpFailure, Result};
use crate::openapi;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse};
use stasis_api::{Health, Problem, Whoami};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const FRONT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><title>Stasis</title><style>\
body{font:16px/1.5 system-ui,sans-serif}main{max-width:40rem;margin:4rem auto;padding:0 1rem}\
</style><main><h1>Stasis</h1><p>This service runs stateful code machines.</p><ul>\
<li><a href=\"/docs\">/docs</a>: every route with its parameters and responses</li>\
<li><a href=\"/openapi.json\">/openapi.json</a>: the same for programs</li>\
<li><a href=\"/health\">/health</a>: whether the service is up</li></ul>\
<p>Everything else needs a token: <code>authorization: Bearer id.secret</code>. \
<code>stasis token new</code> creates one.</p></main></html>\n";

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(crate::metrics::show))
        .routes(routes!(front))
        .routes(routes!(document))
        .routes(routes!(docs))
        .routes(routes!(whoami))
        .routes(routes!(signup))
}

/// Report the health of the service. Needs no token.
#[utoipa::path(get, path = "/health", tag = "service", security(()),
    responses((status = 200, body = Health)))]
async fn health(State(app): State<App>) -> Result<Json<Health>> {
    let host = app.host.clone();
    let templates_ready = app.on_record(move || Ok(host.template(None).is_ok())).await?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Json(Health { status: "ok".into(), version, templates_ready }))
}

/// Describe this service, with links to its documents. Needs no token.
#[utoipa::path(get, path = "/", tag = "service", security(()),
    responses((status = 200, body = String, content_type = "text/html")))]
async fn front() -> Html<&'static str> {
    Html(FRONT)
}

/// Get this document. Needs no token.
#[utoipa::path(get, path = "/openapi.json", tag = "service", security(()),
    responses((status = 200, body = Object)))]
async fn document() -> Result<impl IntoResponse> {
    Ok(([(header::CONTENT_TYPE, "application/json")], openapi::text()))
}

/// Show this document as a page. Needs no token.
#[utoipa::path(get, path = "/docs", tag = "service", security(()),
    responses((status = 200, body = String, content_type = "text/html")))]
async fn docs() -> Html<String> {
    Html(openapi::page())
}

/// Describe the token of this request.
#[utoipa::path(get, path = "/v1/whoami", tag = "service",
    responses((status = 200, body = Whoami)))]
async fn whoami(caller: Caller) -> Json<Whoami> {
    Json(Whoami { account: caller.account, scopes: caller.scopes.to_vec() })
}

/// Always refused: the operator creates the accounts of this service.
#[utoipa::path(post, path = "/internal/signup", tag = "service", security(()),
    responses((status = 403, body = stasis_api::ErrorBody)))]
async fn signup() -> HttpFailure {
    let said = "the operator creates the accounts of this service";
    HttpFailure::about(Problem::Forbidden, "account.signup", said)
        .hint("`stasis token new` creates a token")
}
