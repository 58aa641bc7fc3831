//! Calls of tools, and answers to those that wait for a person. Answering needs a scope of its own,
//! `approve`: a token with which an agent runs code must not allow what that code asks for.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{Input, MachinePath, Params, PathParams, SmallBody};
use crate::failure::Result;
use axum::Json;
use axum::extract::State;
use stasis_api::{ApprovalAnswer, ApprovalList, ApprovalQuery, ToolCallInfo, ToolCallList};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get, answer)).routes(routes!(calls))
}

/// Tokens that may run code, and tokens that may answer, see approvals.
fn may_look(caller: &Caller) -> Result<()> {
    if caller.may(Scope::Approve) { Ok(()) } else { caller.need(Scope::Machines) }
}

/// Approvals are numbered from 1 on, so 0 stands for every text that names none.
fn number(segments: &PathParams) -> u64 {
    let number = segments.get("id").parse::<i64>().ok();
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

/// List calls that wait for a person, newest first; at most 1000.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", params(ApprovalQuery),
    responses((status = 200, body = ApprovalList)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(query): Params<ApprovalQuery>,
) -> Result<Json<ApprovalList>> {
    may_look(&caller)?;
    let approvals = app.block(move |host| host.approvals(&caller.account, &query)).await?;
    Ok(Json(ApprovalList { approvals }))
}

/// Show a call that a person was asked about, with all of its arguments.
#[utoipa::path(get, path = "/v1/approvals/{id}", tag = "approvals",
    params(("id" = String, Path)), responses((status = 200, body = ToolCallInfo)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
) -> Result<Json<ToolCallInfo>> {
    may_look(&caller)?;
    let id = number(&segments);
    Ok(Json(app.block(move |host| host.approval(&caller.account, id)).await?))
}

/// Allow or deny a call that waits. A call is answered once. Requires the scope `approve`.
#[utoipa::path(post, path = "/v1/approvals/{id}", tag = "approvals",
    params(("id" = String, Path)), request_body = ApprovalAnswer,
    responses((status = 200, body = ToolCallInfo)))]
async fn answer(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
    Input(answer): SmallBody<ApprovalAnswer>,
) -> Result<Json<ToolCallInfo>> {
    caller.need(Scope::Approve)?;
    let id = number(&segments);
    let by = match &caller.token {
        Some(token) => format!("{} (token {token})", caller.account),
        None => caller.account.clone(),
    };
    Ok(Json(app.block(move |host| host.answer(&caller.account, id, by, answer)).await?))
}

/// List a machine's calls of tools, newest first; at most 1000.
#[utoipa::path(get, path = "/v1/machine/{name}/calls", tag = "approvals",
    params(("name" = String, Path)), responses((status = 200, body = ToolCallList)))]
async fn calls(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
) -> Result<Json<ToolCallList>> {
    let calls = app.block(move |host| host.tool_calls(&machine)).await?;
    Ok(Json(ToolCallList { calls }))
}
