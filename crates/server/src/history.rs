//! Going back, and what is in a session now.

use crate::app::App;
use crate::extract::{Input, Small, Target};
use crate::failure::Result;
use crate::machines::act;
use axum::Json;
use axum::extract::State;
use stasis_api::{Complete, Completions, Machine as View, Rollback, Var, VarList};
use stasis_machine::Variable;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(rollback))
        .routes(routes!(undo))
        .routes(routes!(vars))
        .routes(routes!(complete))
}

/// Go back to the state after an instruction, or to the beginning.
#[utoipa::path(post, path = "/v1/machine/{name}/rollback", tag = "history",
    params(("name" = String, Path)), request_body = Rollback,
    responses((status = 200, body = View)))]
async fn rollback(
    State(app): State<App>,
    Target(machine): Target,
    Input(to): Small<Rollback>,
) -> Result<Json<View>> {
    let seq = to.seq.map(u64::from);
    act(&app, machine, move |host, machine| host.roll_back(machine, seq)).await
}

/// Go back to the state before the last instruction.
#[utoipa::path(post, path = "/v1/machine/{name}/undo", tag = "history",
    params(("name" = String, Path)), responses((status = 200, body = View)))]
async fn undo(State(app): State<App>, Target(machine): Target) -> Result<Json<View>> {
    act(&app, machine, |host, machine| host.undo(machine)).await
}

/// Variables of the session.
#[utoipa::path(get, path = "/v1/machine/{name}/vars", tag = "history",
    params(("name" = String, Path)), responses((status = 200, body = VarList)))]
async fn vars(State(app): State<App>, Target(machine): Target) -> Result<Json<VarList>> {
    let vars = app.block(move |host| host.vars(&machine)).await?;
    Ok(Json(VarList { vars: vars.into_iter().map(var).collect() }))
}

pub fn var(var: Variable) -> Var {
    let Variable { name, kind, shape, bytes, repr, .. } = var;
    Var { name, kind, shape, bytes, repr }
}

/// Names that could stand where the cursor is.
#[utoipa::path(post, path = "/v1/machine/{name}/complete", tag = "history",
    params(("name" = String, Path)), request_body = Complete,
    responses((status = 200, body = Completions)))]
async fn complete(
    State(app): State<App>,
    Target(machine): Target,
    Input(asked): Small<Complete>,
) -> Result<Json<Completions>> {
    let end = asked.code.chars().count();
    let cursor = asked.cursor.map_or(end, |cursor| (cursor as usize).min(end));
    let found = app.block(move |host| host.complete(&machine, asked.code, cursor)).await?;
    Ok(Json(Completions { start: found.0 as u64, names: found.1 }))
}
