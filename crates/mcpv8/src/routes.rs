//! mcp-v8's routes: parse, call, render. Failures are `{"error": ...}`.
//!
//!   request ─► not from a page of elsewhere ─► V8Carrier::caller ─► V8Carrier::block ─► V8
//!
//! A web page can send a POST to any address without permission, so a request from another origin
//! is refused before its body is read.

use crate::error::{Error, Result};
use crate::exec::{ExecBody, ExecQuery};
use crate::heaps::HeapTags;
use crate::settings::V8Settings;
use crate::texts::{GUIDE, openapi};
use crate::{ExecutionInfo, PageRequest, V8};
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{Stream, StreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stasis_api::Chunk;
use stasis_machine::Machine;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type RouteAnswer = Result<Response>;

/// Maximum wait of a request for its execution.
const LONGEST_WAIT: f64 = 300.0;

/// Services behind these routes.
pub trait V8Carrier: Clone + Send + Sync + 'static {
    fn v8(&self) -> &V8;

    /// The caller of a request, as noted by the service; refused without the scope for machines.
    fn v8_caller(&self, noted: &Extensions) -> Result<V8Caller>;

    /// Maximum length of a body in bytes, and time for it to arrive.
    fn v8_body_bounds(&self) -> (usize, Duration);

    /// Runs a blocking job, through the fair queue.
    fn v8_block<T: Send + 'static>(
        &self,
        job: impl FnOnce(&V8) -> Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send;

    /// The output of an instruction as it arrives.
    fn v8_follow(
        &self,
        machine: Arc<Machine>,
        seq: u64,
    ) -> impl Stream<Item = Result<V8Event>> + Send + 'static;
}

/// The account of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct V8Caller {
    pub account: String,
}

/// Events of an instruction.
pub enum V8Event {
    Lines(Vec<Chunk>),
    Over,
}

pub fn routes<S: V8Carrier>() -> Router<S> {
    Router::new()
        .route("/llms.txt", get(guide))
        .route("/api/version", get(version))
        .route("/api/exec", post(exec::<S>))
        .route("/api/executions", get(list_executions::<S>))
        .route("/api/executions/{id}", get(get_execution::<S>))
        .route("/api/executions/{id}/output", get(output::<S>))
        .route("/api/executions/{id}/stream", get(stream_output::<S>))
        .route("/api/executions/{id}/cancel", post(cancel::<S>))
        .route("/api/artifacts", get(list_artifacts::<S>))
        .route("/api/artifacts/{*key}", get(get_artifact::<S>))
        .route("/api/sessions", get(list_sessions::<S>))
        .route("/api/sessions/fork", post(fork_session::<S>))
        .route("/api/sessions/{session}/log", get(session_log::<S>))
        .route("/api/heaps/{heap}/tags", get(heap_tags::<S>).put(set_heap_tags::<S>))
        .route("/api/heaps/query", post(query_heaps::<S>))
        .route("/api/cli", get(cli_index))
        .route("/api/cli/{platform}", get(cli_download))
        .route("/api-doc/openapi.json", get(document))
        .merge(crate::fs_routes::routes())
        .merge(crate::setup_routes::routes())
}

/// Whether a path is one of these, whose clients expect another form of failures.
pub fn is_own_path(path: &str) -> bool {
    path.starts_with("/api/") || path == "/api-doc/openapi.json" || path == "/llms.txt"
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(json!({ "error": self.message }))).into_response()
    }
}

impl<S: V8Carrier> FromRequestParts<S> for V8Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, carrier: &S) -> Result<V8Caller> {
        check_page(&parts.headers)?;
        carrier.v8_caller(&parts.extensions)
    }
}

/// Refuses requests of other sites' pages.
fn check_page(headers: &HeaderMap) -> Result<()> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let own = |origin: &str| {
        let host = text("host").unwrap_or_default();
        let bare = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        bare.is_some_and(|bare| bare.eq_ignore_ascii_case(host))
    };
    let is_foreign = text("origin").is_some_and(|origin| !own(origin))
        || text("sec-fetch-site").is_some_and(|site| site == "cross-site" || site == "same-site");
    match is_foreign {
        true => Err(Error::new(403, "a page of another origin may not use this service")),
        false => Ok(()),
    }
}

/// Runs a blocking call for an account.
pub(crate) async fn call<S: V8Carrier, T: Send + 'static>(
    carrier: &S,
    caller: V8Caller,
    job: impl FnOnce(&V8, &str) -> Result<T> + Send + 'static,
) -> Result<T> {
    carrier.v8_block(move |v8| job(v8, &caller.account)).await
}

pub(crate) fn ok(value: Value) -> RouteAnswer {
    Ok(Json(value).into_response())
}

pub(crate) async fn read<S: V8Carrier>(carrier: &S, body: Body) -> Result<Bytes> {
    let (longest, patience) = carrier.v8_body_bounds();
    let read = tokio::time::timeout(patience, axum::body::to_bytes(body, longest)).await;
    let read = read.map_err(|_| Error::new(408, "the body arrived too slowly"))?;
    read.map_err(|_| Error::invalid("the body is too large, or broke off"))
}

pub(crate) fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| Error::invalid(format!("the body: {error}")))
}

async fn guide() -> Response {
    let kind = (header::CONTENT_TYPE, "text/markdown; charset=utf-8");
    ([kind, (header::X_CONTENT_TYPE_OPTIONS, "nosniff")], GUIDE).into_response()
}

async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

async fn document() -> Json<Value> {
    Json(openapi())
}

async fn cli_index() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION"), "assets": [] }))
}

async fn cli_download() -> Error {
    Error::missing("there is no client program to download; use any HTTP client")
}

async fn exec<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    query: std::result::Result<Query<ExecQuery>, axum::extract::rejection::QueryRejection>,
    request: Request,
) -> RouteAnswer {
    let Query(query) = query.map_err(|error| Error::invalid(error.body_text()))?;
    let (parts, body) = request.into_parts();
    let bytes = read(&carrier, body).await?;
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let wanted = ExecBody::of(kind, &bytes, &query)?.request();
    let wanted = V8Settings::of(&parts.headers).fill(wanted);
    let own = caller.clone();
    let id = call(&carrier, caller, move |v8, account| v8.run(account, wanted)).await?;
    let wait = query.wait.filter(|wait| *wait > 0.0).map(|wait| wait.min(LONGEST_WAIT));
    if let Some(wait) = wait
        && let Some((info, output)) =
            ended(&carrier, &own, &id, Duration::from_secs_f64(wait)).await?
    {
        let mut answer = json!(info);
        answer["output"] = output.into();
        return ok(answer);
    }
    Ok((StatusCode::ACCEPTED, Json(json!({ "execution_id": id }))).into_response())
}

/// An execution and its output, if it finishes within a time.
async fn ended<S: V8Carrier>(
    carrier: &S,
    caller: &V8Caller,
    id: &str,
    patience: Duration,
) -> Result<Option<(ExecutionInfo, String)>> {
    if let Some(open) = carrier.v8().open_execution(&caller.account, id)
        && tokio::time::timeout(patience, open.over()).await.is_err()
    {
        return Ok(None);
    }
    let id = id.to_owned();
    call(carrier, caller.clone(), move |v8, account| v8.finished(account, &id)).await.map(Some)
}

async fn list_executions<S: V8Carrier>(State(carrier): State<S>, caller: V8Caller) -> RouteAnswer {
    let all = call(&carrier, caller, |v8, account| v8.executions(account)).await?;
    ok(json!({ "executions": all }))
}

async fn get_execution<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    Path(id): Path<String>,
) -> RouteAnswer {
    let found = call(&carrier, caller, move |v8, account| v8.execution(account, &id)).await?;
    ok(json!(found))
}

async fn output<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    Path(id): Path<String>,
    query: std::result::Result<Query<PageRequest>, axum::extract::rejection::QueryRejection>,
) -> RouteAnswer {
    let Query(wanted) = query.map_err(|error| Error::invalid(error.body_text()))?;
    let page = call(&carrier, caller, move |v8, account| v8.output(account, &id, &wanted)).await?;
    ok(json!(page))
}

/// Lines as they arrive, then the execution, one JSON object per line.
async fn stream_output<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    Path(id): Path<String>,
) -> RouteAnswer {
    let own = id.clone();
    call(&carrier, caller.clone(), move |v8, account| v8.execution(account, &own)).await?;
    let open = carrier.v8().open_execution(&caller.account, &id);
    let place = match &open {
        Some(open) => open.place().await,
        None => None,
    };
    let live = place.is_some();
    let lines = match place {
        Some((machine, seq)) => carrier.v8_follow(machine, seq).map(line_of).left_stream(),
        None => stream::empty().right_stream(),
    };
    let last = stream::once(async move {
        if let Some(open) = open {
            open.over().await;
        }
        let end = call(&carrier, caller, move |v8, account| v8.finished(account, &id)).await;
        match end {
            Ok((info, output)) => {
                let before = if live { String::new() } else { data_lines(&output) };
                format!("{before}{}\n", json!({ "execution": info }))
            }
            Err(error) => format!("{}\n", json!({ "error": error.message })),
        }
    });
    let body = lines.chain(last).map(Ok::<String, Infallible>);
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(body)).into_response())
}

fn line_of(event: Result<V8Event>) -> String {
    match event {
        Ok(V8Event::Lines(chunks)) => {
            chunks.iter().map(|chunk| json!({ "data": chunk.data }).to_string() + "\n").collect()
        }
        // its machine may be removed already; the execution that follows has its end
        Ok(V8Event::Over) | Err(_) => String::new(),
    }
}

fn data_lines(output: &str) -> String {
    output.lines().map(|line| json!({ "data": line }).to_string() + "\n").collect()
}

async fn cancel<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    Path(id): Path<String>,
) -> RouteAnswer {
    match call(&carrier, caller, move |v8, account| v8.cancel(account, &id)).await {
        Ok(()) => ok(json!({ "ok": true })),
        Err(error) if error.status < 500 => {
            let said = json!({ "ok": false, "error": error.message });
            Ok((StatusCode::BAD_REQUEST, Json(said)).into_response())
        }
        Err(error) => Err(error),
    }
}

async fn list_artifacts<S: V8Carrier>(State(carrier): State<S>, caller: V8Caller) -> RouteAnswer {
    let all = call(&carrier, caller, |v8, account| v8.artifacts(account)).await?;
    ok(json!({ "artifacts": all }))
}

async fn get_artifact<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    Path(key): Path<String>,
) -> RouteAnswer {
    let found = call(&carrier, caller, move |v8, account| v8.artifact(account, &key)).await?;
    let (meta, bytes) = found;
    let kind = HeaderValue::from_str(&meta.mime_type);
    let kind = kind.unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    let mut response = Body::from(bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

async fn list_sessions<S: V8Carrier>(State(carrier): State<S>, caller: V8Caller) -> RouteAnswer {
    let all = call(&carrier, caller, |v8, account| v8.sessions(account)).await?;
    ok(json!({ "sessions": all }))
}

#[derive(Debug, Deserialize)]
struct LogQuery {
    fields: Option<String>,
}

async fn session_log<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    Path(session): Path<String>,
    Query(query): Query<LogQuery>,
) -> RouteAnswer {
    let log = call(&carrier, caller, move |v8, account| {
        v8.session_fields(account, &session, query.fields.as_deref())
    });
    ok(json!({ "entries": log.await? }))
}

#[derive(Debug, Deserialize)]
struct ForkBody {
    from: String,
    to: String,
}

async fn fork_session<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    request: Request,
) -> RouteAnswer {
    let ForkBody { from, to } = parsed(&read(&carrier, request.into_body()).await?)?;
    call(&carrier, caller, move |v8, account| v8.fork_session(account, &from, &to)).await?;
    ok(json!({ "ok": true }))
}

async fn heap_tags<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    Path(heap): Path<String>,
) -> RouteAnswer {
    let tags = call(&carrier, caller, move |v8, account| v8.heap_tags(account, &heap)).await?;
    ok(json!({ "tags": tags }))
}

#[derive(Debug, Deserialize)]
struct TagsBody {
    tags: HeapTags,
}

async fn set_heap_tags<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    Path(heap): Path<String>,
    request: Request,
) -> RouteAnswer {
    let TagsBody { tags } = parsed(&read(&carrier, request.into_body()).await?)?;
    call(&carrier, caller, move |v8, account| v8.set_heap_tags(account, &heap, tags)).await?;
    ok(json!({ "ok": true }))
}

async fn query_heaps<S: V8Carrier>(
    State(carrier): State<S>,
    caller: V8Caller,
    request: Request,
) -> RouteAnswer {
    let TagsBody { tags } = parsed(&read(&carrier, request.into_body()).await?)?;
    let found = call(&carrier, caller, move |v8, account| v8.heaps_with(account, &tags)).await?;
    let one = |(heap, tags)| json!({ "heap": heap, "tags": tags });
    ok(json!({ "results": found.into_iter().map(one).collect::<Vec<_>>() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (header::HeaderName::from_static(name), value.parse().expect("a value"))
            })
            .collect()
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let host = ("host", "localhost:3000");
        for fine in [vec![], vec![host], vec![host, ("origin", "http://localhost:3000")]] {
            assert!(check_page(&headers(&fine)).is_ok(), "{fine:?}");
        }
        for bad in [
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost:3001"),
            ("sec-fetch-site", "cross-site"),
        ] {
            let refused = check_page(&headers(&[host, bad])).expect_err("a page");
            assert_eq!(refused.status, 403, "{bad:?}");
        }
    }
}
