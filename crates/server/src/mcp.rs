//! MCP on the same service: the token's account decides which machines the tools see.

use crate::app::App;
use crate::audit::ToolCall;
use crate::auth::{Caller, Scope};
use crate::error::Error;
use crate::extract::late;
use crate::failure::HttpFailure;
use crate::oauth;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use stasis_api::Problem;
use stasis_mcp::{CallLimiter, McpCaller, McpOptions, ToolTexts};
use std::path::Path;
use std::sync::Arc;

/// The middleware has checked hosts and origins, so MCP's own check must accept them all.
pub fn routes(app: &App) -> Router<App> {
    let options = McpOptions {
        hosts: app.guard.hosts().to_vec(),
        origins: app.guard.origins().to_vec(),
        words: app.words.clone(),
        limiter: limiter(app),
        anonymous: None,
        ..McpOptions::default()
    };
    let surfaces = (app.forkd.clone(), app.v8.clone());
    let router = stasis_mcp::router(app.host.clone(), surfaces, options);
    let router = router.layer(from_fn_with_state(app.clone(), name_account));
    Router::new().merge(router.with_state(()))
}

/// MCP calls share the fair queue of all other requests.
fn limiter(app: &App) -> CallLimiter {
    let queue = app.queue.clone();
    CallLimiter::new(move |account: String| {
        let queue = queue.clone();
        async move { queue.take(&account).await.map_err(|failure| failure.message) }
    })
}

/// The operator's own texts for agents, if the file exists.
pub fn words(data: &Path) -> Result<Arc<ToolTexts>, Error> {
    let words = ToolTexts::read(&data.join("mcp.toml"));
    words.map(Arc::new).map_err(|error| Error::Words(error.to_string()))
}

async fn name_account(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    let Some(caller) = caller else { return crate::auth::unauthorized().into_response() };
    if let Err(failure) = caller.need(Scope::Machines) {
        let (headers, path) = (request.headers(), request.uri().path());
        let how = oauth::too_little(&app, headers, path, Scope::Machines);
        return ([(header::WWW_AUTHENTICATE, how)], failure).into_response();
    }
    let (may_build, may_approve) = (caller.may(Scope::Templates), caller.may(Scope::Approve));
    request.extensions_mut().insert(McpCaller { name: caller.account, may_build, may_approve });
    match whole(&app, request).await {
        Ok((request, call)) => {
            let mut response = next.run(request).await;
            response.extensions_mut().insert(call);
            response
        }
        Err(failure) => failure.into_response(),
    }
}

/// A request with its complete body, which must arrive in time.
async fn whole(app: &App, request: Request) -> Result<(Request, ToolCall), HttpFailure> {
    let (parts, body) = request.into_parts();
    let read = axum::body::to_bytes(body, McpOptions::default().max_body);
    let bytes = tokio::time::timeout(app.patience, read).await.map_err(|_| late())?;
    let bytes = bytes.map_err(|_| {
        let said = "the body is too long, or broke off";
        HttpFailure::about(Problem::TooLarge, "request.too_large", said).hint("send a smaller body")
    })?;
    let call = ToolCall::of(&bytes);
    Ok((Request::from_parts(parts, Body::from(bytes)), call))
}
