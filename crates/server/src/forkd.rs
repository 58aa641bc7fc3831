//! forkd's routes, as its clients know them: parse, call, render. Failures are `{"error": ...}`
//! with the statuses of the original.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::failure::Failure;
use crate::follow::{Event, Follower};
use crate::gate;
use crate::limits::CODE;
use axum::body::Body;
use axum::extract::{FromRequest, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stasis_api::Stream;
use stasis_forkd::{
    BRANCHES_AT_ONCE, BranchRequest, Command, CreateSnapshot, CreateWorkspace, Error, Forkd, Spawn,
};
use std::convert::Infallible;

type Answer = Result<Response, Refusal>;

/// Routes that forkd's clients use, on the service's own listeners.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/version", get(version))
        .route("/v1/snapshots", get(list_snapshots).post(create_snapshot))
        .route("/v1/snapshots/{tag}", axum::routing::delete(delete_snapshot))
        .route("/v1/snapshots/{tag}/info", get(snapshot_info))
        .route("/v1/snapshots/{tag}/compact", post(compact))
        .route("/v1/sandboxes", get(list_sandboxes).post(spawn))
        .route("/v1/sandboxes/{id}", get(get_sandbox).delete(kill_sandbox))
        .route("/v1/sandboxes/{id}/exec", post(exec))
        .route("/v1/sandboxes/{id}/jobs/{job}", get(job).delete(kill_job))
        .route("/v1/sandboxes/{id}/eval", post(eval))
        .route("/v1/sandboxes/{id}/ping", post(ping))
        .route("/v1/sandboxes/{id}/branch", post(branch))
        .route("/v1/workspaces", get(list_workspaces).post(create_workspace))
        .route("/v1/workspaces/{name}", get(get_workspace).delete(delete_workspace))
        .route("/v1/workspaces/{name}/suspend", post(suspend))
        .route("/v1/workspaces/{name}/resume", post(resume))
}

/// The same at an address of its own, with forkd's metrics.
pub fn alone(app: App) -> Router {
    routes()
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(app.clone(), gate::pass))
        .with_state(app)
}

/// Whether a path is one of forkd's, whose clients read failures in another form.
pub fn is_own(path: &str) -> bool {
    let below = ["/v1/snapshots", "/v1/sandboxes", "/v1/workspaces"];
    let inside = |dir: &&str| {
        path.strip_prefix(*dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    ["/healthz", "/version"].contains(&path) || below.iter().any(inside)
}

/// A failure in forkd's form.
pub struct Refusal(Error);

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal(error)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        let status = failure.problem.status();
        let message = match status {
            401 => "missing or invalid bearer token".to_owned(),
            _ => failure.message,
        };
        Refusal(Error::new(status, message))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(json!({ "error": self.0.message }))).into_response()
    }
}

/// A JSON body, refused with the statuses of the original.
struct Body1<T>(T);

impl<T: DeserializeOwned> FromRequest<App> for Body1<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refusal> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.trim().starts_with("application/json")) {
            return Err(Error::new(415, "expected `Content-Type: application/json`").into());
        }
        let read = axum::body::to_bytes(request.into_body(), CODE);
        let read = tokio::time::timeout(app.patience, read).await;
        let read = read.map_err(|_| Error::new(408, "the body came too slowly"))?;
        let bytes = read.map_err(|_| Error::new(413, "the body is too large"))?;
        serde_json::from_slice(&bytes).map(Body1).map_err(|error| {
            let status = if error.is_data() { 422 } else { 400 };
            Error::new(status, format!("the body: {error}")).into()
        })
    }
}

/// Calls what may block, for an account.
async fn call<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    job: impl FnOnce(&Forkd, &str) -> stasis_forkd::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    caller.need(Scope::Machines)?;
    let (forkd, account) = (app.forkd.clone(), caller.account.clone());
    Ok(app.block(move |_| Ok(job(&forkd, &account))).await??)
}

fn ok<T: Serialize>(status: StatusCode, value: T) -> Answer {
    Ok((status, Json(value)).into_response())
}

async fn healthz() -> Json<serde_json::Value> {
    Json(json!({ "ok": true }))
}

async fn version() -> Json<serde_json::Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION"), "api": "v1" }))
}

async fn metrics(State(app): State<App>, caller: Caller) -> Answer {
    let counts = call(&app, &caller, |forkd, account| {
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

async fn list_snapshots(State(app): State<App>, caller: Caller) -> Answer {
    ok(StatusCode::OK, call(&app, &caller, |forkd, account| forkd.list_snapshots(account)).await?)
}

async fn create_snapshot(
    State(app): State<App>,
    caller: Caller,
    Body1(ask): Body1<CreateSnapshot>,
) -> Answer {
    // a recipe is built, which is the templates' right
    if ask.rootfs.contains('\n') {
        caller.need(Scope::Templates)?;
    }
    let made = call(&app, &caller, move |forkd, account| forkd.create_snapshot(account, &ask));
    ok(StatusCode::CREATED, made.await?)
}

#[derive(Debug, Deserialize)]
struct Delete {
    #[serde(default)]
    cascade: bool,
    #[serde(default)]
    force: bool,
}

async fn delete_snapshot(
    State(app): State<App>,
    caller: Caller,
    Path(tag): Path<String>,
    Query(how): Query<Delete>,
) -> Answer {
    call(&app, &caller, move |forkd, account| {
        forkd.delete_snapshot(account, &tag, how.cascade, how.force)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn snapshot_info(State(app): State<App>, caller: Caller, Path(tag): Path<String>) -> Answer {
    let info = call(&app, &caller, move |forkd, account| forkd.snapshot_info(account, &tag));
    ok(StatusCode::OK, info.await?)
}

#[derive(Debug, Deserialize)]
struct Compact {
    to: String,
}

async fn compact(
    State(app): State<App>,
    caller: Caller,
    Path(tag): Path<String>,
    Body1(ask): Body1<Compact>,
) -> Answer {
    let made = call(&app, &caller, move |forkd, account| forkd.compact(account, &tag, &ask.to));
    ok(StatusCode::OK, made.await?)
}

async fn list_sandboxes(State(app): State<App>, caller: Caller) -> Answer {
    let all = call(&app, &caller, |forkd, account| Ok(forkd.list_sandboxes(account)));
    ok(StatusCode::OK, all.await?)
}

async fn spawn(State(app): State<App>, caller: Caller, Body1(ask): Body1<Spawn>) -> Answer {
    let made = call(&app, &caller, move |forkd, account| forkd.spawn(account, &ask));
    ok(StatusCode::CREATED, made.await?)
}

async fn get_sandbox(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Answer {
    let found = call(&app, &caller, move |forkd, account| forkd.get_sandbox(account, &id));
    ok(StatusCode::OK, found.await?)
}

async fn kill_sandbox(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Answer {
    call(&app, &caller, move |forkd, account| forkd.kill_sandbox(account, &id)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn exec(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body1(command): Body1<Command>,
) -> Answer {
    if command.background {
        let job =
            call(&app, &caller, move |forkd, account| forkd.background(account, &id, &command));
        return ok(StatusCode::OK, job.await?);
    }
    let streamed = command.stream;
    let begun = call(&app, &caller, move |forkd, account| forkd.start(account, &id, &command));
    let (machine, seq) = begun.await?;
    let mut follower = Follower::new(app.clone(), machine, seq, 0);
    if streamed {
        return Ok(lines(app, follower));
    }
    let end = follower.end().await?;
    ok(StatusCode::OK, app.forkd.completed(&end)?)
}

/// Lines of output as they come, and how it ended.
fn lines(app: App, follower: Follower) -> Response {
    let body = stream::unfold(Some((app, follower)), |state| async {
        let (app, mut follower) = state?;
        let (text, more) = match follower.next().await {
            Ok(Event::Chunks(chunks)) => {
                let line = |chunk: stasis_api::Chunk| {
                    let stream = match chunk.stream {
                        Stream::Stdout => "stdout",
                        Stream::Stderr => "stderr",
                    };
                    json!({ "stream": stream, "data": chunk.data }).to_string() + "\n"
                };
                (chunks.into_iter().map(line).collect::<String>(), true)
            }
            Ok(Event::Over(end)) => match app.forkd.completed(&end) {
                Ok(done) => (serde_json::to_string(&done).unwrap_or_default() + "\n", false),
                Err(error) => (json!({ "error": error.message }).to_string() + "\n", false),
            },
            Err(failure) => (json!({ "error": failure.message }).to_string() + "\n", false),
        };
        Some((Ok::<_, Infallible>(text), more.then_some((app, follower))))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (kind, Body::from_stream(body)).into_response()
}

async fn job(
    State(app): State<App>,
    caller: Caller,
    Path((id, job)): Path<(String, String)>,
) -> Answer {
    let found = call(&app, &caller, move |forkd, account| forkd.job(account, &id, &job, false));
    ok(StatusCode::OK, found.await?)
}

async fn kill_job(
    State(app): State<App>,
    caller: Caller,
    Path((id, job)): Path<(String, String)>,
) -> Answer {
    let found = call(&app, &caller, move |forkd, account| forkd.job(account, &id, &job, true));
    ok(StatusCode::OK, found.await?)
}

#[derive(Debug, Deserialize)]
struct Eval {
    code: String,
}

async fn eval(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body1(ask): Body1<Eval>,
) -> Answer {
    let answer = call(&app, &caller, move |forkd, account| forkd.eval(account, &id, &ask.code));
    ok(StatusCode::OK, answer.await?)
}

async fn ping(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Answer {
    let answer = call(&app, &caller, move |forkd, account| forkd.ping(account, &id));
    ok(StatusCode::OK, answer.await?)
}

async fn branch(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Body1(ask): Body1<BranchRequest>,
) -> Answer {
    let made = call(&app, &caller, move |forkd, account| forkd.branch(account, &id, &ask));
    let (info, hurried) = made.await?;
    ok(if hurried { StatusCode::ACCEPTED } else { StatusCode::CREATED }, info)
}

async fn list_workspaces(State(app): State<App>, caller: Caller) -> Answer {
    let all = call(&app, &caller, |forkd, account| Ok(forkd.list_workspaces(account)));
    ok(StatusCode::OK, all.await?)
}

async fn create_workspace(
    State(app): State<App>,
    caller: Caller,
    Body1(ask): Body1<CreateWorkspace>,
) -> Answer {
    let made = call(&app, &caller, move |forkd, account| forkd.create_workspace(account, &ask));
    ok(StatusCode::CREATED, made.await?)
}

async fn get_workspace(State(app): State<App>, caller: Caller, Path(name): Path<String>) -> Answer {
    let found = call(&app, &caller, move |forkd, account| forkd.get_workspace(account, &name));
    ok(StatusCode::OK, found.await?)
}

async fn delete_workspace(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Answer {
    call(&app, &caller, move |forkd, account| forkd.delete_workspace(account, &name)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `diff` means nothing here: a state is always kept by what changed.
#[derive(Debug, Deserialize)]
struct Suspend {}

async fn suspend(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Body1(Suspend {}): Body1<Suspend>,
) -> Answer {
    let done = call(&app, &caller, move |forkd, account| forkd.suspend_workspace(account, &name));
    ok(StatusCode::OK, done.await?)
}

async fn resume(State(app): State<App>, caller: Caller, Path(name): Path<String>) -> Answer {
    let done = call(&app, &caller, move |forkd, account| forkd.resume_workspace(account, &name));
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
