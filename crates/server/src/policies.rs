//! Policies: list, show, set, remove, explain. Changing one needs the scope `host`, because it
//! changes what machines of every account reach.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{Input, MachinePath, Params, PathParams, SmallBody};
use crate::failure::{HttpFailure, Result};
use axum::Json;
use axum::extract::State;
use stasis_api::{
    ExplainQuery, Explanation, Name, NameError, PolicyDocument, PolicyInfo, PolicyList, Removed,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get, set, remove))
        .routes(routes!(explain))
}

/// Callers that create machines, or change policies, can see policies.
fn may_look(caller: &Caller) -> Result<()> {
    if caller.may(Scope::Host) { Ok(()) } else { caller.need(Scope::Machines) }
}

/// A policy as a caller may see it: those that do not set policies see no other accounts' names.
fn seen_by(caller: &Caller, mut info: PolicyInfo) -> PolicyInfo {
    if !caller.may(Scope::Host) {
        info.document.accounts.retain(|account| *account == caller.account);
    }
    info
}

/// List policies, by name.
#[utoipa::path(get, path = "/v1/policies", tag = "policies",
    responses((status = 200, body = PolicyList)))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<PolicyList>> {
    may_look(&caller)?;
    let policies = app.block(|host| host.policies()).await?;
    let policies = policies.into_iter().map(|info| seen_by(&caller, info)).collect();
    Ok(Json(PolicyList { policies }))
}

/// Show a policy.
#[utoipa::path(get, path = "/v1/policies/{name}", tag = "policies",
    params(("name" = String, Path)), responses((status = 200, body = PolicyInfo)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
) -> Result<Json<PolicyInfo>> {
    may_look(&caller)?;
    let name = segments.get("name").to_owned();
    let found = app.block(move |host| host.policy(&name)).await?;
    Ok(Json(seen_by(&caller, found)))
}

/// Create or replace a policy. It applies to running machines at once, open connections included.
/// Requires the scope `host`.
#[utoipa::path(put, path = "/v1/policies/{name}", tag = "policies",
    params(("name" = String, Path)), request_body = Option<PolicyDocument>,
    responses((status = 200, body = PolicyInfo)))]
async fn set(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
    Input(document): SmallBody<PolicyDocument>,
) -> Result<Json<PolicyInfo>> {
    caller.need(Scope::Host)?;
    let name: Name = segments
        .get("name")
        .parse()
        .map_err(|error: NameError| HttpFailure::invalid(format!("a policy's name: {error}")))?;
    Ok(Json(app.block(move |host| host.set_policy(name, document)).await?))
}

/// Remove a policy that no machine has. Requires the scope `host`.
#[utoipa::path(delete, path = "/v1/policies/{name}", tag = "policies",
    params(("name" = String, Path)), responses((status = 200, body = Removed)))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
) -> Result<Json<Removed>> {
    caller.need(Scope::Host)?;
    app.remove_named(segments.get("name"), |host, name| host.remove_policy(name)).await
}

/// Explain what a machine's policies answer to a request, and which rule decides. A name is judged
/// as if it had a public address.
#[utoipa::path(get, path = "/v1/machine/{name}/explain", tag = "policies",
    params(("name" = String, Path), ExplainQuery),
    responses((status = 200, body = Explanation)))]
async fn explain(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Params(query): Params<ExplainQuery>,
) -> Result<Json<Explanation>> {
    Ok(Json(app.block(move |host| host.explain(&machine, &query)).await?))
}
