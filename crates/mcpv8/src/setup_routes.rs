//! Routes by which a front process sends its setup.

use crate::routes::{RouteAnswer, call, ok, parsed, read};
use crate::{V8Caller, V8Carrier, V8Setup};
use axum::Router;
use axum::extract::{Request, State};
use axum::routing::post;
use serde_json::json;

pub(crate) fn routes<S: V8Carrier>() -> Router<S> {
    Router::new()
        .route("/api/setup", post(put_setup::<S>))
        .route("/api/setup/files", post(put_file::<S>))
}

async fn put_file<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    request: Request,
) -> RouteAnswer {
    let bytes = read(&carrier, request.into_body()).await?;
    let file = call(&carrier, caller, move |v8, account| v8.put_setup_file(account, &bytes));
    ok(json!({ "file": file.await? }))
}

async fn put_setup<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    request: Request,
) -> RouteAnswer {
    let setup: V8Setup = parsed(&read(&carrier, request.into_body()).await?)?;
    let kept = call(&carrier, caller, move |v8, account| v8.put_setup(account, setup)).await?;
    let (id, setup) = kept;
    ok(json!({ "setup": id, "wasm": setup.wasm, "skills": setup.skills.len() }))
}
