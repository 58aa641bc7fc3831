//! Undo, rollback, variables and completion.

use crate::app::App;
use crate::extract::{Input, MachinePath, SmallBody};
use crate::failure::Result;
use crate::machines::act;
use axum::Json;
use axum::extract::State;
use stasis_api::{Complete, Completions, MachineInfo, Rollback, StepRequest, Var, VarList};
use stasis_machine::{Steps, Variable};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(rollback))
        .routes(routes!(undo))
        .routes(routes!(redo))
        .routes(routes!(vars))
        .routes(routes!(complete))
}

/// Roll back to the state after an instruction, or to the beginning.
#[utoipa::path(post, path = "/v1/machine/{name}/rollback", tag = "history",
    params(("name" = String, Path)), request_body = Rollback,
    responses((status = 200, body = MachineInfo)))]
async fn rollback(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Input(to): SmallBody<Rollback>,
) -> Result<Json<MachineInfo>> {
    let seq = to.seq.map(u64::from);
    act(&app, machine, move |host, machine| host.roll_back(machine, seq)).await
}

/// Undo the last instructions; by default one.
#[utoipa::path(post, path = "/v1/machine/{name}/undo", tag = "history",
    params(("name" = String, Path)), request_body = Option<StepRequest>,
    responses((status = 200, body = MachineInfo)))]
async fn undo(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Input(request): SmallBody<StepRequest>,
) -> Result<Json<MachineInfo>> {
    act(&app, machine, move |host, machine| host.undo(machine, steps(&request))).await
}

/// Redo undone instructions, as long as nothing new has run.
#[utoipa::path(post, path = "/v1/machine/{name}/redo", tag = "history",
    params(("name" = String, Path)), request_body = Option<StepRequest>,
    responses((status = 200, body = MachineInfo)))]
async fn redo(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Input(request): SmallBody<StepRequest>,
) -> Result<Json<MachineInfo>> {
    act(&app, machine, move |host, machine| host.redo(machine, steps(&request))).await
}

fn steps(request: &StepRequest) -> Steps {
    Steps { n: request.n.map_or(1, |n| n as usize), grouped: request.grouped }
}

/// List the variables of the session.
#[utoipa::path(get, path = "/v1/machine/{name}/vars", tag = "history",
    params(("name" = String, Path)), responses((status = 200, body = VarList)))]
async fn vars(State(app): State<App>, MachinePath(machine): MachinePath) -> Result<Json<VarList>> {
    let vars = app.block(move |host| host.vars(&machine)).await?;
    Ok(Json(VarList { vars: vars.into_iter().map(var).collect() }))
}

pub fn var(var: Variable) -> Var {
    let Variable { name, kind, shape, bytes, repr, .. } = var;
    Var { name, kind, shape, bytes, repr }
}

/// Complete the name at the cursor.
#[utoipa::path(post, path = "/v1/machine/{name}/complete", tag = "history",
    params(("name" = String, Path)), request_body = Complete,
    responses((status = 200, body = Completions)))]
async fn complete(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Input(asked): SmallBody<Complete>,
) -> Result<Json<Completions>> {
    let end = asked.code.chars().count();
    let cursor = asked.cursor.map_or(end, |cursor| (cursor as usize).min(end));
    let found = app.block(move |host| host.complete(&machine, asked.code, cursor)).await?;
    Ok(Json(Completions { start: found.0 as u64, names: found.1 }))
}
