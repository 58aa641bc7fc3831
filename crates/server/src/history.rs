//! A machine's past and its branches, and what is in its session now.

use crate::app::App;
use crate::extract::{Input, Small, Target};
use crate::failure::{Failure, Result};
use crate::machines::act;
use axum::Json;
use axum::extract::State;
use stasis_api::{
    BranchRequest, Branches, Complete, Completions, History, Machine as View, Name, Point, Problem,
    Rollback, Var, VarList,
};
use stasis_machine::{Branch, Host, MAX_BRANCHES, Machine};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(history))
        .routes(routes!(rollback))
        .routes(routes!(undo))
        .routes(routes!(branch))
        .routes(routes!(vars))
        .routes(routes!(complete))
}

/// States that can be gone back to, oldest first.
#[utoipa::path(get, path = "/v1/machine/{name}/history", tag = "history",
    params(("name" = String, Path)), responses((status = 200, body = History)))]
async fn history(State(app): State<App>, Target(machine): Target) -> Result<Json<History>> {
    let checkpoints = app.block(move |host| points(host, &machine)).await?;
    Ok(Json(History { checkpoints }))
}

fn points(host: &Host, machine: &Arc<Machine>) -> stasis_machine::Result<Vec<Point>> {
    let all = host.history(machine)?.into_iter();
    all.map(|one| {
        let code = machine.instruction(one.seq)?.code;
        Ok(Point { seq: one.seq, at: one.at, bytes: one.bytes, label: one.label, code })
    })
    .collect()
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

/// Make machines that start from this one's state.
#[utoipa::path(post, path = "/v1/machine/{name}/branch", tag = "history",
    params(("name" = String, Path)), request_body = Option<BranchRequest>,
    responses((status = 200, body = Branches)))]
async fn branch(
    State(app): State<App>,
    Target(machine): Target,
    Input(request): Small<BranchRequest>,
) -> Result<Json<Branches>> {
    if request.reseed {
        let said = "branches cannot be reseeded yet";
        return Err(Failure::new(Problem::Unsupported, "request.unsupported", said));
    }
    let names = names(&request)?;
    let wanted = Branch { seq: request.seq.map(u64::from), names, tags: request.tags };
    let made = app.block(move |host| host.branch(&machine, wanted)).await?;
    Ok(Json(Branches { machines: made.iter().map(|machine| machine.describe()).collect() }))
}

/// A name, or none, for each branch that is asked for.
fn names(request: &BranchRequest) -> Result<Vec<Option<Name>>> {
    let count = request.count.map_or(request.names.len().max(1), |count| count as usize);
    if count < request.names.len() {
        return Err(Failure::invalid("there are more names than branches"));
    }
    let mut names: Vec<_> = request.names.iter().cloned().map(Some).collect();
    // one more than allowed is enough to be refused
    names.resize(count.min(MAX_BRANCHES + 1), None);
    Ok(names)
}

/// Variables of the session.
#[utoipa::path(get, path = "/v1/machine/{name}/vars", tag = "history",
    params(("name" = String, Path)), responses((status = 200, body = VarList)))]
async fn vars(State(app): State<App>, Target(machine): Target) -> Result<Json<VarList>> {
    let vars = app.block(move |host| host.vars(&machine)).await?.into_iter().map(|var| Var {
        name: var.name,
        kind: var.kind,
        shape: var.shape,
        bytes: var.bytes,
        repr: var.repr,
    });
    Ok(Json(VarList { vars: vars.collect() }))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(names: &[&str], count: Option<u32>) -> Option<usize> {
        let names = names.iter().map(|name| name.parse().expect("a name")).collect();
        let request = BranchRequest { names, count, ..Default::default() };
        super::names(&request).ok().map(|names| names.len())
    }

    #[test]
    fn how_many_branches() {
        assert_eq!(asked(&[], None), Some(1));
        assert_eq!(asked(&["a", "b"], None), Some(2));
        assert_eq!(asked(&["a"], Some(5)), Some(5));
        assert_eq!(asked(&["a", "b"], Some(1)), None);
        assert_eq!(asked(&[], Some(u32::MAX)), Some(MAX_BRANCHES + 1));
    }
}
