//! forkd's routes, as its clients know them: parse, call, render. Failures are `{"error": ...}`
//! with the statuses of the original.
//!
//!   request ─► route ─► Carrier::caller ─► Carrier::block ─► Forkd
//!
//! The embedding service identifies the caller, queues requests fairly and follows instructions
//! (`Carrier`); everything specific to forkd is here.

use crate::error::{Error, Result};
use crate::{
    BRANCHES_AT_ONCE, CreateSnapshot, CreateWorkspace, Forkd, SandboxBranchRequest, SandboxCommand,
    Spawn,
};
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use futures_util::{Stream, StreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stasis_api::{Chunk, Instruction, Stream as OutputStream};
use stasis_machine::Machine;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

type Answer = Result<Response>;

/// The service's part of forkd's routes.
pub trait Carrier: Clone + Send + Sync + 'static {
    fn forkd(&self) -> &Forkd;

    /// The caller of a request, as noted by the service; refused without the scope for machines.
    fn caller(&self, noted: &Extensions) -> Result<ForkdCaller>;

    /// The longest body in bytes, and how long it may take to come.
    fn body_bounds(&self) -> (usize, Duration);

    /// Runs a blocking job, through the fair queue.
    fn block<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Forkd) -> Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send;

    /// The output of an instruction as it comes, then its end.
    fn follow(
        &self,
        machine: Arc<Machine>,
        seq: u64,
    ) -> impl Stream<Item = Result<ForkdEvent>> + Send + 'static;
}

/// A caller of forkd's surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkdCaller {
    pub account: String,
    /// Whether they may build templates.
    pub may_build: bool,
}

/// News of an instruction that is being followed.
pub enum ForkdEvent {
    Chunks(Vec<Chunk>),
    Over(Box<Instruction>),
}

/// Routes that forkd's clients use, on the service's own listeners.
pub fn routes<S: Carrier>() -> Router<S> {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/version", get(version))
        .route("/v1/snapshots", get(list_snapshots::<S>).post(create_snapshot::<S>))
        .route("/v1/snapshots/{tag}", delete(delete_snapshot::<S>))
        .route("/v1/snapshots/{tag}/info", get(snapshot_info::<S>))
        .route("/v1/snapshots/{tag}/compact", post(compact::<S>))
        .route("/v1/sandboxes", get(list_sandboxes::<S>).post(spawn::<S>))
        .route("/v1/sandboxes/{id}", get(get_sandbox::<S>).delete(kill_sandbox::<S>))
        .route("/v1/sandboxes/{id}/exec", post(exec::<S>))
        .route("/v1/sandboxes/{id}/jobs/{job}", get(job::<S>).delete(kill_job::<S>))
        .route("/v1/sandboxes/{id}/eval", post(eval::<S>))
        .route("/v1/sandboxes/{id}/ping", post(ping::<S>))
        .route("/v1/sandboxes/{id}/branch", post(branch::<S>))
        .route("/v1/workspaces", get(list_workspaces::<S>).post(create_workspace::<S>))
        .route("/v1/workspaces/{name}", get(get_workspace::<S>).delete(delete_workspace::<S>))
        .route("/v1/workspaces/{name}/suspend", post(suspend::<S>))
        .route("/v1/workspaces/{name}/resume", post(resume::<S>))
}

/// The same for a separate address, with forkd's metrics.
pub fn routes_alone<S: Carrier>() -> Router<S> {
    routes().route("/metrics", get(metrics::<S>))
}

/// Whether a path is one of forkd's, whose clients read failures in another form.
pub fn is_own(path: &str) -> bool {
    let below = ["/v1/snapshots", "/v1/sandboxes", "/v1/workspaces"];
    let inside = |dir: &&str| {
        path.strip_prefix(*dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    ["/healthz", "/version"].contains(&path) || below.iter().any(inside)
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(json!({ "error": self.message }))).into_response()
    }
}

impl<S: Carrier> FromRequestParts<S> for ForkdCaller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, carrier: &S) -> Result<ForkdCaller> {
        carrier.caller(&parts.extensions)
    }
}

/// A JSON body, refused with the statuses of the original.
struct Body1<T>(T);

impl<T: DeserializeOwned, S: Carrier> FromRequest<S> for Body1<T> {
    type Rejection = Error;

    async fn from_request(request: Request, carrier: &S) -> Result<Self> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.trim().starts_with("application/json")) {
            return Err(Error::new(415, "expected `Content-Type: application/json`"));
        }
        let (longest, patience) = carrier.body_bounds();
        let read = axum::body::to_bytes(request.into_body(), longest);
        let read = tokio::time::timeout(patience, read).await;
        let read = read.map_err(|_| Error::new(408, "the body arrived too slowly"))?;
        let bytes = read.map_err(|_| Error::new(413, "the body is too large"))?;
        serde_json::from_slice(&bytes).map(Body1).map_err(|error| {
            let status = if error.is_data() { 422 } else { 400 };
            Error::new(status, format!("the body: {error}"))
        })
    }
}

/// Runs a blocking call for an account.
async fn call<S: Carrier, T: Send + 'static>(
    carrier: &S,
    caller: ForkdCaller,
    job: impl FnOnce(&Forkd, &str) -> Result<T> + Send + 'static,
) -> Result<T> {
    carrier.block(move |forkd| job(forkd, &caller.account)).await
}

fn ok<T: Serialize>(status: StatusCode, value: T) -> Answer {
    Ok((status, Json(value)).into_response())
}

async fn healthz() -> Json<Value> {
    Json(json!({ "ok": true }))
}

async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION"), "api": "v1" }))
}

async fn metrics<S: Carrier>(State(carrier): State<S>, caller: ForkdCaller) -> Answer {
    let counts = call(&carrier, caller, |forkd, account| {
        let snapshots = forkd.list_snapshots(account)?.len();
        Ok((snapshots, forkd.list_sandboxes(account).len(), forkd.in_flight()))
    });
    let (snapshots, sandboxes, branches) = counts.await?;
    let version = env!("CARGO_PKG_VERSION");
    let gauges = [
        ("forkd_snapshots_total", snapshots),
        ("forkd_sandboxes_active", sandboxes),
        ("forkd_branches_in_flight", branches),
        ("forkd_branch_concurrency_cap", BRANCHES_AT_ONCE),
    ];
    let mut text: String = gauges
        .iter()
        .map(|(name, count)| format!("# TYPE {name} gauge\n{name} {count}\n"))
        .collect();
    text +=
        &format!("# TYPE forkd_build_info gauge\nforkd_build_info{{version=\"{version}\"}} 1\n");
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

async fn list_snapshots<S: Carrier>(State(carrier): State<S>, caller: ForkdCaller) -> Answer {
    ok(
        StatusCode::OK,
        call(&carrier, caller, |forkd, account| forkd.list_snapshots(account)).await?,
    )
}

async fn create_snapshot<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Body1(ask): Body1<CreateSnapshot>,
) -> Answer {
    let made = carrier.block(move |forkd| forkd.create_snapshot(&caller, &ask));
    ok(StatusCode::CREATED, made.await?)
}

#[derive(Debug, Deserialize)]
struct Delete {
    #[serde(default)]
    cascade: bool,
    #[serde(default)]
    force: bool,
}

async fn delete_snapshot<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(tag): Path<String>,
    Query(how): Query<Delete>,
) -> Answer {
    call(&carrier, caller, move |forkd, account| {
        forkd.delete_snapshot(account, &tag, how.cascade, how.force)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn snapshot_info<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(tag): Path<String>,
) -> Answer {
    let info = call(&carrier, caller, move |forkd, account| forkd.snapshot_info(account, &tag));
    ok(StatusCode::OK, info.await?)
}

#[derive(Debug, Deserialize)]
struct Compact {
    to: String,
}

async fn compact<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(tag): Path<String>,
    Body1(ask): Body1<Compact>,
) -> Answer {
    let made = call(&carrier, caller, move |forkd, account| forkd.compact(account, &tag, &ask.to));
    ok(StatusCode::OK, made.await?)
}

async fn list_sandboxes<S: Carrier>(State(carrier): State<S>, caller: ForkdCaller) -> Answer {
    let all = call(&carrier, caller, |forkd, account| Ok(forkd.list_sandboxes(account)));
    ok(StatusCode::OK, all.await?)
}

async fn spawn<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Body1(ask): Body1<Spawn>,
) -> Answer {
    let made = call(&carrier, caller, move |forkd, account| forkd.spawn(account, &ask));
    ok(StatusCode::CREATED, made.await?)
}

async fn get_sandbox<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(id): Path<String>,
) -> Answer {
    let found = call(&carrier, caller, move |forkd, account| forkd.get_sandbox(account, &id));
    ok(StatusCode::OK, found.await?)
}

async fn kill_sandbox<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(id): Path<String>,
) -> Answer {
    call(&carrier, caller, move |forkd, account| forkd.kill_sandbox(account, &id)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn exec<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(id): Path<String>,
    Body1(command): Body1<SandboxCommand>,
) -> Answer {
    if command.background {
        let job =
            call(&carrier, caller, move |forkd, account| forkd.background(account, &id, &command));
        return ok(StatusCode::OK, job.await?);
    }
    let streamed = command.stream;
    let begun = call(&carrier, caller, move |forkd, account| forkd.start(account, &id, &command));
    let (machine, seq) = begun.await?;
    let events = carrier.follow(machine, seq);
    if streamed {
        return Ok(lines(carrier.forkd().clone(), events));
    }
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        if let ForkdEvent::Over(end) = event? {
            return ok(StatusCode::OK, carrier.forkd().completed(&end)?);
        }
    }
    Err(Error::new(500, "exec: it broke off"))
}

/// Lines of output as they come, and how it ended.
fn lines(
    forkd: Forkd,
    events: impl Stream<Item = Result<ForkdEvent>> + Send + 'static,
) -> Response {
    let body = events.map(move |event| {
        let text = match event {
            Ok(ForkdEvent::Chunks(chunks)) => chunks.iter().map(output_line).collect(),
            Ok(ForkdEvent::Over(end)) => match forkd.completed(&end) {
                Ok(done) => serde_json::to_string(&done).unwrap_or_default() + "\n",
                Err(error) => error_line(&error),
            },
            Err(error) => error_line(&error),
        };
        Ok::<String, Infallible>(text)
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (kind, Body::from_stream(body)).into_response()
}

fn output_line(chunk: &Chunk) -> String {
    let stream = match chunk.stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    };
    json!({ "stream": stream, "data": chunk.data }).to_string() + "\n"
}

fn error_line(error: &Error) -> String {
    json!({ "error": error.message }).to_string() + "\n"
}

async fn job<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path((id, job)): Path<(String, String)>,
) -> Answer {
    let found = call(&carrier, caller, move |forkd, account| forkd.job(account, &id, &job, false));
    ok(StatusCode::OK, found.await?)
}

async fn kill_job<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path((id, job)): Path<(String, String)>,
) -> Answer {
    let found = call(&carrier, caller, move |forkd, account| forkd.job(account, &id, &job, true));
    ok(StatusCode::OK, found.await?)
}

#[derive(Debug, Deserialize)]
struct Eval {
    code: String,
}

async fn eval<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(id): Path<String>,
    Body1(ask): Body1<Eval>,
) -> Answer {
    let answer = call(&carrier, caller, move |forkd, account| forkd.eval(account, &id, &ask.code));
    ok(StatusCode::OK, answer.await?)
}

async fn ping<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(id): Path<String>,
) -> Answer {
    let answer = call(&carrier, caller, move |forkd, account| forkd.ping(account, &id));
    ok(StatusCode::OK, answer.await?)
}

async fn branch<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(id): Path<String>,
    Body1(ask): Body1<SandboxBranchRequest>,
) -> Answer {
    let made = call(&carrier, caller, move |forkd, account| forkd.branch(account, &id, &ask));
    let (info, hurried) = made.await?;
    ok(if hurried { StatusCode::ACCEPTED } else { StatusCode::CREATED }, info)
}

async fn list_workspaces<S: Carrier>(State(carrier): State<S>, caller: ForkdCaller) -> Answer {
    let all = call(&carrier, caller, |forkd, account| Ok(forkd.list_workspaces(account)));
    ok(StatusCode::OK, all.await?)
}

async fn create_workspace<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Body1(ask): Body1<CreateWorkspace>,
) -> Answer {
    let made = call(&carrier, caller, move |forkd, account| forkd.create_workspace(account, &ask));
    ok(StatusCode::CREATED, made.await?)
}

async fn get_workspace<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(name): Path<String>,
) -> Answer {
    let found = call(&carrier, caller, move |forkd, account| forkd.get_workspace(account, &name));
    ok(StatusCode::OK, found.await?)
}

async fn delete_workspace<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(name): Path<String>,
) -> Answer {
    call(&carrier, caller, move |forkd, account| forkd.delete_workspace(account, &name)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `diff` has no effect: a state is always stored as its changes.
#[derive(Debug, Deserialize)]
struct Suspend {}

async fn suspend<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(name): Path<String>,
    Body1(Suspend {}): Body1<Suspend>,
) -> Answer {
    let done =
        call(&carrier, caller, move |forkd, account| forkd.suspend_workspace(account, &name));
    ok(StatusCode::OK, done.await?)
}

async fn resume<S: Carrier>(
    State(carrier): State<S>,
    caller: ForkdCaller,
    Path(name): Path<String>,
) -> Answer {
    let done = call(&carrier, caller, move |forkd, account| forkd.resume_workspace(account, &name));
    ok(StatusCode::OK, done.await?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_of_forkd() {
        for path in ["/healthz", "/v1/snapshots", "/v1/sandboxes/x/exec", "/v1/workspaces/w"] {
            assert!(super::is_own(path), "{path}");
        }
        for path in ["/health", "/v1/snapshotsx", "/v1/machine/list", "/"] {
            assert!(!super::is_own(path), "{path}");
        }
    }
}
