//! The service itself: whether it lives, who one is, what it offers.

use crate::app::App;
use crate::auth::Caller;
use crate::failure::{Failure, Result};
use crate::openapi;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse};
use stasis_api::{Health, Problem, Whoami};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(crate::metrics::show))
        .routes(routes!(document))
        .routes(routes!(docs))
        .routes(routes!(whoami))
        .routes(routes!(signup))
}

/// Whether the service lives. Needs no token.
#[utoipa::path(get, path = "/health", tag = "service", security(()),
    responses((status = 200, body = Health)))]
async fn health(State(app): State<App>) -> Result<Json<Health>> {
    let templates_ready = app.host.template(None).is_ok();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Json(Health { status: "ok".into(), version, templates_ready }))
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "service",
    responses((status = 200, body = Object)))]
async fn document() -> Result<impl IntoResponse> {
    Ok(([(header::CONTENT_TYPE, "application/json")], openapi::text()))
}

/// This document as a page.
#[utoipa::path(get, path = "/docs", tag = "service",
    responses((status = 200, body = String, content_type = "text/html")))]
async fn docs() -> Html<String> {
    Html(openapi::page())
}

/// Whose token it is.
#[utoipa::path(get, path = "/v1/whoami", tag = "service",
    responses((status = 200, body = Whoami)))]
async fn whoami(caller: Caller) -> Json<Whoami> {
    Json(Whoami { account: caller.account, scopes: caller.scopes.to_vec() })
}

/// Always refused: accounts are made by whoever runs the service.
#[utoipa::path(post, path = "/internal/signup", tag = "service", security(()),
    responses((status = 403, body = stasis_api::ErrorBody)))]
async fn signup() -> Failure {
    let said = "accounts of this service are made by whoever runs it";
    Failure::about(Problem::Forbidden, "account.signup", said)
        .hint("`stasis token new` makes a token")
}
