//! MCP on the same service: whose token it is decides whose machines its tools see.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::error::Error;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use stasis_mcp::{Account, McpOptions, Words};
use std::path::Path;
use std::sync::Arc;

/// The gate has checked hosts and origins; MCP's own check must not know fewer.
pub fn routes(app: &App) -> Router<App> {
    let options = McpOptions {
        hosts: app.guard.hosts().to_vec(),
        origins: app.guard.origins().to_vec(),
        words: app.words.clone(),
        ..McpOptions::default()
    };
    let router = stasis_mcp::router(app.host.clone(), options).layer(from_fn(name_account));
    Router::new().merge(router.with_state(()))
}

/// The operator's own words for agents, if there is a file of them.
pub fn words(data: &Path) -> Result<Arc<Words>, Error> {
    let words = Words::read(&data.join("mcp.toml"));
    words.map(Arc::new).map_err(|error| Error::Words(error.to_string()))
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
