//! The table of all routes.

use crate::app::App;
use crate::failure::HttpFailure;
use crate::{
    approvals, artifacts, branch, events, files, history, instructions, machines, mcp, middleware,
    pages, policies, repl, secrets, store, streams, templates, tokens, transfer, travel, watching,
};
use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use stasis_api::Problem;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

#[derive(OpenApi)]
#[openapi(components(schemas(
    stasis_api::ErrorBody,
    stasis_api::FromClient,
    stasis_api::BuildLine,
    stasis_api::BranchLine
)))]
struct Extra;

pub fn all() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Extra::openapi())
        .merge(pages::routes())
        .merge(machines::routes())
        .merge(instructions::routes())
        .merge(streams::routes())
        .merge(repl::routes())
        .merge(history::routes())
        .merge(files::routes())
        .merge(artifacts::routes())
        .merge(events::routes())
        .merge(watching::routes())
        .merge(travel::routes())
        .merge(transfer::routes())
        .merge(branch::routes())
        .merge(templates::routes())
        .merge(store::routes())
        .merge(tokens::routes())
        .merge(policies::routes())
        .merge(secrets::routes())
        .merge(approvals::routes())
}

pub fn router(app: App) -> Router {
    let (router, _) = all().split_for_parts();
    let router = router
        .merge(mcp::routes(&app))
        .merge(crate::oauth::routes())
        .merge(stasis_forkd::routes::<App>())
        .merge(stasis_mcpv8::routes::<App>())
        .fallback(unknown)
        .method_not_allowed_fallback(not_so);
    middleware::before(router, app)
}

async fn unknown(uri: Uri) -> HttpFailure {
    let said = format!("there is nothing at {:?}", uri.path());
    HttpFailure::about(Problem::NotFound, "request.route", said).hint("/docs lists the routes")
}

async fn not_so(method: Method, uri: Uri) -> Response {
    let said = format!("{:?} does not support {method}", uri.path());
    let failure = HttpFailure::about(Problem::Invalid, "request.method", said);
    let failure = failure.hint("/docs lists the methods of each route");
    (StatusCode::METHOD_NOT_ALLOWED, axum::Json(failure.body())).into_response()
}
