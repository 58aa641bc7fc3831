//! Time travel over HTTP: labels, lineage, peek, compare, adopt, promote, explore.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{Input, InstructionPath, LargeBody, MachinePath, Params, SmallBody};
use crate::failure::Result;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use stasis_api::{
    Address, AdoptRequest, Adopted, CompareRequest, Comparison, DiskUse, ExploreRequest, Explored,
    FileQuery, FileViews, History, HistoryQuery, LabelRequest, Lineage, PromoteRequest, Promoted,
    Relative, VarList,
};
use stasis_machine::{AdoptSelection, Explore, Host, Machine, StateRef};
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(history))
        .routes(routes!(label))
        .routes(routes!(disk))
        .routes(routes!(lineage))
        .routes(routes!(families))
        .routes(routes!(promote))
        .routes(routes!(vars_at))
        .routes(routes!(files_at))
        .routes(routes!(file_at))
        .routes(routes!(compare))
        .routes(routes!(adopt))
        .routes(routes!(explore))
}

/// List checkpoints and the changes of each, oldest first.
#[utoipa::path(get, path = "/v1/machine/{name}/history", tag = "history",
    params(("name" = String, Path), HistoryQuery), responses((status = 200, body = History)))]
async fn history(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Params(asked): Params<HistoryQuery>,
) -> Result<Json<History>> {
    let checkpoints = app.block(move |host| host.points(&machine, asked.files)).await?;
    Ok(Json(History { checkpoints }))
}

/// Set or remove the label of a checkpoint.
#[utoipa::path(post, path = "/v1/machine/{name}/label", tag = "history",
    params(("name" = String, Path)), request_body = LabelRequest,
    responses((status = 200, body = History)))]
async fn label(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Input(asked): SmallBody<LabelRequest>,
) -> Result<Json<History>> {
    let checkpoints = app.block(move |host| {
        host.label(&machine, asked.seq.into(), asked.label.as_deref())?;
        host.points(&machine, false)
    });
    Ok(Json(History { checkpoints: checkpoints.await? }))
}

/// Report the disk use of a machine and its checkpoints.
#[utoipa::path(get, path = "/v1/machine/{name}/disk", tag = "history",
    params(("name" = String, Path)), responses((status = 200, body = DiskUse)))]
async fn disk(State(app): State<App>, MachinePath(machine): MachinePath) -> Result<Json<DiskUse>> {
    Ok(Json(app.block(move |host| host.disk_use(&machine)).await?))
}

/// List a machine's ancestors, its branches, and its whole family.
#[utoipa::path(get, path = "/v1/machine/{name}/lineage", tag = "history",
    params(("name" = String, Path)), responses((status = 200, body = Lineage)))]
async fn lineage(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
) -> Result<Json<Lineage>> {
    Ok(Json(app.block(move |host| host.lineage(&machine)).await?))
}

/// All families.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct Families {
    families: Vec<Relative>,
}

/// List all machines as families, oldest first.
#[utoipa::path(get, path = "/v1/lineage", tag = "history",
    responses((status = 200, body = Families)))]
async fn families(State(app): State<App>, caller: Caller) -> Result<Json<Families>> {
    caller.need(Scope::Machines)?;
    let families = app.block(move |host| Ok(host.families(Some(&caller.account)))).await?;
    Ok(Json(Families { families }))
}

/// Exchange names with the parent or another machine.
#[utoipa::path(post, path = "/v1/machine/{name}/promote", tag = "history",
    params(("name" = String, Path)), request_body = Option<PromoteRequest>,
    responses((status = 200, body = Promoted)))]
async fn promote(
    State(app): State<App>,
    caller: Caller,
    MachinePath(branch): MachinePath,
    Input(asked): SmallBody<PromoteRequest>,
) -> Result<Json<Promoted>> {
    let onto = asked.onto.map(|name| app.machine(&caller, name.as_str())).transpose()?;
    let promoted = app.block(move |host| {
        let former = host.promote(&branch, onto.as_ref())?;
        let about = former.describe();
        let removed = asked.remove && host.retire(&former, &branch)?;
        Ok(Promoted { machine: branch.describe(), former: about, removed })
    });
    Ok(Json(promoted.await?))
}

/// List variables as they were after an instruction.
#[utoipa::path(get, path = "/v1/machine/{name}/at/{seq}/vars", tag = "history",
    params(("name" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = VarList)))]
async fn vars_at(State(app): State<App>, at: InstructionPath) -> Result<Json<VarList>> {
    let vars = app.block(move |host| host.vars_at(&host.place(&at.machine, Some(at.seq))?)).await?;
    Ok(Json(VarList { vars: vars.into_iter().map(crate::history::var).collect() }))
}

/// List a directory as it was after an instruction.
#[utoipa::path(get, path = "/v1/machine/{name}/at/{seq}/files", tag = "history",
    params(("name" = String, Path), ("seq" = u64, Path), FileQuery),
    responses((status = 200, body = FileViews)))]
async fn files_at(
    State(app): State<App>,
    at: InstructionPath,
    Params(asked): Params<FileQuery>,
) -> Result<Json<FileViews>> {
    let files =
        app.block(move |host| host.files_at(&host.place(&at.machine, Some(at.seq))?, &asked.path));
    Ok(Json(FileViews { files: files.await? }))
}

/// Read a file as it was after an instruction.
#[utoipa::path(get, path = "/v1/machine/{name}/at/{seq}/file", tag = "history",
    params(("name" = String, Path), ("seq" = u64, Path), FileQuery),
    responses((status = 200, body = String, content_type = "application/octet-stream")))]
async fn file_at(
    State(app): State<App>,
    at: InstructionPath,
    Params(asked): Params<FileQuery>,
) -> Result<impl IntoResponse> {
    let bytes =
        app.block(move |host| host.read_at(&host.place(&at.machine, Some(at.seq))?, &asked.path));
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes.await?))
}

/// A state by its address, which must be the caller's.
struct Found {
    machine: Arc<Machine>,
    seq: Option<u64>,
}

impl Found {
    fn new(app: &App, caller: &Caller, address: &Address) -> Result<Found> {
        let machine = app.machine(caller, address.machine.as_str())?;
        Ok(Found { machine, seq: address.seq })
    }

    fn place(&self, host: &Host) -> stasis_machine::Result<StateRef> {
        host.place(&self.machine, self.seq)
    }
}

/// Compare two machines or checkpoints.
#[utoipa::path(post, path = "/v1/compare", tag = "history", request_body = CompareRequest,
    responses((status = 200, body = Comparison)))]
async fn compare(
    State(app): State<App>,
    caller: Caller,
    Input(asked): SmallBody<CompareRequest>,
) -> Result<Json<Comparison>> {
    caller.need(Scope::Machines)?;
    let left = Found::new(&app, &caller, &asked.left)?;
    let right = Found::new(&app, &caller, &asked.right)?;
    let compared =
        app.block(move |host| host.compare(&left.place(host)?, &right.place(host)?)).await?;
    Ok(Json(compared))
}

/// Copy variables and files from another machine or checkpoint.
#[utoipa::path(post, path = "/v1/machine/{name}/adopt", tag = "history",
    params(("name" = String, Path)), request_body = AdoptRequest,
    responses((status = 200, body = Adopted)))]
async fn adopt(
    State(app): State<App>,
    caller: Caller,
    MachinePath(machine): MachinePath,
    Input(asked): SmallBody<AdoptRequest>,
) -> Result<Json<Adopted>> {
    let from = Found::new(&app, &caller, &asked.from)?;
    let AdoptRequest { variables, files, force, .. } = asked;
    let wanted = AdoptSelection { variables, files, force };
    let adopted = app.block(move |host| host.adopt(&machine, &from.place(host)?, wanted)).await?;
    Ok(Json(adopted))
}

/// Run candidates as branches, score each, and keep the best under this machine's name.
#[utoipa::path(post, path = "/v1/machine/{name}/explore", tag = "history",
    params(("name" = String, Path)), request_body = ExploreRequest,
    responses((status = 200, body = Explored)))]
async fn explore(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Input(asked): LargeBody<ExploreRequest>,
) -> Result<Json<Explored>> {
    let timeout = stasis_api::timeout(asked.timeout_seconds)?;
    let ask = Explore {
        seq: asked.seq.map(u64::from),
        candidates: asked.candidates,
        score: asked.score,
        minimize: asked.minimize,
        keep: asked.keep,
        reseed: asked.reseed,
        timeout,
    };
    Ok(Json(app.block(move |host| host.explore(&machine, ask)).await?))
}
