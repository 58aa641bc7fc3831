//! The routes of file trees and their labels: `/api/fs/*`. Failures are `{"error": ...}` with 400,
//! or 404 for an unknown label; a rejected push is a 409.

use crate::error::{Error, Result};
use crate::fs_tools::NO_FS;
use crate::label_use::LabelUse;
use crate::routes::{RouteAnswer, call, ok, parsed, read};
use crate::settings::V8Settings;
use crate::{FsLabel, FsMerge, FsPush, FsReset, V8, V8Caller, V8Carrier};
use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub fn routes<S: V8Carrier>() -> Router<S> {
    Router::new()
        .route("/api/fs/labels", get(labels::<S>).post(set_label::<S>))
        .route("/api/fs/labels/{label}", get(resolve::<S>))
        .route("/api/fs/labels/{label}/log", get(log::<S>))
        .route("/api/fs/push", post(push::<S>))
        .route("/api/fs/reset", post(reset::<S>))
        .route("/api/fs/merge", post(merge::<S>))
}

fn allowed(headers: &HeaderMap) -> Result<()> {
    match V8Settings::allows_files(headers) {
        true => Ok(()),
        false => Err(Error::invalid(NO_FS)),
    }
}

/// A failure with the status in mcp-v8's document.
fn documented(error: Error) -> Error {
    match error.status < 500 {
        true => Error::invalid(error.message),
        false => error,
    }
}

/// Parses a body and executes its request.
async fn posted<S: V8Carrier, T: DeserializeOwned + LabelUse + Send + 'static>(
    carrier: S,
    caller: V8Caller,
    request: Request,
    work: impl FnOnce(&V8, &str, T) -> Result<Value> + Send + 'static,
) -> Result<Value> {
    allowed(request.headers())?;
    let setup = V8Settings::of(request.headers()).setup;
    let wanted: T = parsed(&read(&carrier, request.into_body()).await?)?;
    let done = call(&carrier, caller, move |v8, account| {
        v8.permit(account, setup.as_deref(), &wanted)?;
        work(v8, account, wanted)
    });
    done.await.map_err(documented)
}

async fn labels<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    headers: HeaderMap,
) -> RouteAnswer {
    allowed(&headers)?;
    ok(call(&carrier, caller, |v8, account| v8.fs_labels(account)).await?)
}

async fn resolve<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    headers: HeaderMap,
    Path(label): Path<String>,
) -> RouteAnswer {
    allowed(&headers)?;
    ok(call(&carrier, caller, move |v8, account| v8.fs_pull(account, &label)).await?)
}

#[derive(Debug, Deserialize)]
struct LogQuery {
    limit: Option<u64>,
}

async fn log<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    headers: HeaderMap,
    Path(label): Path<String>,
    query: std::result::Result<Query<LogQuery>, axum::extract::rejection::QueryRejection>,
) -> RouteAnswer {
    allowed(&headers)?;
    let Query(LogQuery { limit }) = query.map_err(|error| Error::invalid(error.body_text()))?;
    let found = call(&carrier, caller, move |v8, account| v8.fs_log(account, &label, limit)).await;
    ok(found.map_err(documented)?)
}

async fn set_label<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    request: Request,
) -> RouteAnswer {
    let label = |v8: &V8, account: &str, own: FsLabel| v8.fs_label(account, own);
    ok(posted(carrier, caller, request, label).await?)
}

async fn push<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    request: Request,
) -> RouteAnswer {
    let push = |v8: &V8, account: &str, own: FsPush| v8.fs_push(account, own);
    let done = posted(carrier, caller, request, push).await?;
    match done["status"] == "rejected" {
        true => Ok((StatusCode::CONFLICT, axum::Json(done)).into_response()),
        false => ok(done),
    }
}

async fn reset<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    request: Request,
) -> RouteAnswer {
    let reset = |v8: &V8, account: &str, own: FsReset| v8.fs_reset(account, own);
    ok(posted(carrier, caller, request, reset).await?)
}

async fn merge<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    request: Request,
) -> RouteAnswer {
    let merge = |v8: &V8, account: &str, own: FsMerge| v8.fs_merge(account, &own);
    ok(posted(carrier, caller, request, merge).await?)
}
