//! MCP on the same service: whose token it is decides whose machines its tools see.

use crate::app::App;
use crate::auth::{Caller, Scope};
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use stasis_mcp::{Account, McpOptions};

/// The gate has checked hosts and origins; MCP's own check must not know fewer.
pub fn routes(app: &App) -> Router<App> {
    let options = McpOptions {
        hosts: app.guard.hosts().to_vec(),
        origins: app.guard.origins().to_vec(),
        ..McpOptions::default()
    };
    let router = stasis_mcp::router(app.host.clone(), options).layer(from_fn(name_account));
    Router::new().merge(router.with_state(()))
}

async fn name_account(mut request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    let Some(caller) = caller else { return crate::auth::unauthorized().into_response() };
    if let Err(failure) = caller.need(Scope::Machines) {
        return failure.into_response();
    }
    request.extensions_mut().insert(Account(caller.account));
    next.run(request).await
}
