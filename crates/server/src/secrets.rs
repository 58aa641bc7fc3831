//! Secrets of the caller's account: list, set, remove. Values go in and never come out. Needs the
//! scope `secrets`.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{Input, MachinePath, PathParams, SmallBody};
use crate::failure::Result;
use axum::Json;
use axum::extract::State;
use stasis_api::{MachineSecrets, Removed, SecretInfo, SecretList, SetSecret};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(set, remove))
        .routes(routes!(of_machine))
}

/// List the secrets of the account, by name, without their values. Requires the scope `secrets`.
#[utoipa::path(get, path = "/v1/secrets", tag = "secrets", operation_id = "list_secrets",
    responses((status = 200, body = SecretList)))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<SecretList>> {
    caller.need(Scope::Secrets)?;
    let account = caller.account.clone();
    let secrets = app.block(move |host| Ok(host.secrets(&account))).await?;
    Ok(Json(SecretList { secrets }))
}

/// Create or replace a secret. The value is sealed and never shown again; running machines use the
/// new one at once. Requires the scope `secrets`.
#[utoipa::path(put, path = "/v1/secrets/{name}", tag = "secrets", operation_id = "set_secret",
    params(("name" = String, Path)), request_body = SetSecret,
    responses((status = 200, body = SecretInfo)))]
async fn set(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
    Input(secret): SmallBody<SetSecret>,
) -> Result<Json<SecretInfo>> {
    caller.need(Scope::Secrets)?;
    let (account, name) = (caller.account.clone(), segments.get("name").to_owned());
    Ok(Json(app.block(move |host| host.set_secret(&account, &name, secret)).await?))
}

/// Remove a secret. Requests of running machines do not get it any more. Requires the scope
/// `secrets`.
#[utoipa::path(delete, path = "/v1/secrets/{name}", tag = "secrets", operation_id = "remove_secret",
    params(("name" = String, Path)), responses((status = 200, body = Removed)))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
) -> Result<Json<Removed>> {
    caller.need(Scope::Secrets)?;
    let (account, name) = (caller.account.clone(), segments.get("name").to_owned());
    let removed = name.clone();
    app.block(move |host| host.remove_secret(&account, &name)).await?;
    Ok(Json(Removed { removed }))
}

/// List the secrets that a machine's policies grant, with the placeholders that its code uses.
#[utoipa::path(get, path = "/v1/machine/{name}/secrets", tag = "secrets",
    operation_id = "machine_secrets", params(("name" = String, Path)),
    responses((status = 200, body = MachineSecrets)))]
async fn of_machine(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
) -> Result<Json<MachineSecrets>> {
    let secrets = app.block(move |host| host.machine_secrets(&machine)).await?;
    Ok(Json(MachineSecrets { secrets }))
}
