//! Machines: create, list, inspect, change, remove, swap and wake.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{Input, MachinePath, Params, SmallBody};
use crate::failure::{HttpFailure, Result};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use stasis_api::{
    CreatedMachine, Interrupted, MachineFilter, MachineInfo, MachineList, NewMachine, OutOfRange,
    Ranged, Removed, State as Is, Timestamp, Update,
};
use stasis_machine::{Host, Machine};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Machines on one page.
const PAGE: u64 = 1000;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(list, list_by_query))
        .routes(routes!(get, update, remove))
        .routes(routes!(swap))
        .routes(routes!(wake))
        .routes(routes!(interrupt))
}

/// Create a machine. No body, `null` and `{}` mean the defaults.
#[utoipa::path(post, path = "/v1/machine/new", tag = "machines",
    request_body = Option<NewMachine>, responses((status = 200, body = CreatedMachine)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Input(new): SmallBody<NewMachine>,
) -> Result<Json<CreatedMachine>> {
    caller.need(Scope::Machines)?;
    let make = move |host: &Arc<Host>| Ok(host.create(&caller.account, new)?.describe());
    let machine = app.block(make).await?;
    Ok(Json(CreatedMachine { machine_name: machine.name.clone(), machine }))
}

pub async fn make(app: &App, caller: &Caller, new: NewMachine) -> Result<Arc<Machine>> {
    caller.need(Scope::Machines)?;
    let account = caller.account.clone();
    app.block(move |host| host.create(&account, new)).await
}

/// List machines, newest first.
#[utoipa::path(post, path = "/v1/machine/list", tag = "machines",
    request_body = Option<MachineFilter>, responses((status = 200, body = MachineList)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Input(filter): SmallBody<MachineFilter>,
) -> Result<Json<MachineList>> {
    caller.need(Scope::Machines)?;
    let after = filter.cursor.as_deref().map(str::parse::<i64>).transpose();
    let after = after.map_err(|_| HttpFailure::invalid("the cursor does not come from a list"))?;
    let page = app.block(move |host| Ok(page(host.machines(), &caller, &filter, after))).await?;
    Ok(Json(page))
}

fn page(
    all: Vec<Arc<Machine>>,
    caller: &Caller,
    filter: &MachineFilter,
    after: Option<i64>,
) -> MachineList {
    let limit = filter.limit.unwrap_or(PAGE).clamp(1, PAGE) as usize;
    let mut fit = all
        .into_iter()
        .filter(|machine| after.is_none_or(|after| machine.number() < after))
        .filter(|machine| machine.account() == caller.account)
        .filter(|machine| filter.state.is_none_or(|state| machine.state() == state))
        .map(|machine| (machine.number(), machine.memory_mb(), machine.describe()))
        .filter(|(_, memory, view)| fits(view, *memory, filter))
        .map(|(number, _, view)| (number, view))
        .peekable();
    let (mut machines, mut last) = (Vec::new(), None);
    while let Some((number, view)) = fit.next_if(|_| machines.len() < limit) {
        last = Some(number);
        machines.push(view);
    }
    let next = fit.peek().and(last).map(|number| number.to_string());
    MachineList { machines, next }
}

fn fits(view: &MachineInfo, memory: Option<u64>, filter: &MachineFilter) -> bool {
    let tagged = filter.tags.iter().all(|(key, value)| view.tags.get(key) == Some(value));
    // without a limit it may use more than any bound
    let memory = memory.unwrap_or(u64::MAX);
    tagged
        && filter.created_after.is_none_or(|after| view.created_at > after)
        && filter.created_before.is_none_or(|before| view.created_at < before)
        && filter.memory_mb_min.is_none_or(|least| memory >= least)
        && filter.memory_mb_max.is_none_or(|most| memory <= most)
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Asked {
    state: Option<Is>,
    #[param(value_type = Option<String>, format = DateTime)]
    created_after: Option<Timestamp>,
    #[param(value_type = Option<String>, format = DateTime)]
    created_before: Option<Timestamp>,
    memory_mb_min: Option<u64>,
    memory_mb_max: Option<u64>,
    limit: Option<u64>,
    #[param(pattern = "^[0-9]{1,18}$")]
    cursor: Option<String>,
    /// A JSON object of strings.
    tags: Option<String>,
}

impl Ranged for Asked {
    /// The resulting filter is checked.
    fn check(&self) -> std::result::Result<(), OutOfRange> {
        Ok(())
    }
}

/// List machines, newest first.
#[utoipa::path(get, path = "/v1/machine/list", tag = "machines", params(Asked),
    responses((status = 200, body = MachineList)))]
async fn list_by_query(
    app: State<App>,
    caller: Caller,
    Params(asked): Params<Asked>,
) -> Result<Json<MachineList>> {
    let tags = asked.tags.as_deref().map(serde_json::from_str).transpose();
    let tags = tags.map_err(|_| HttpFailure::invalid("tags is a JSON object of strings"))?;
    let tags = tags.unwrap_or_default();
    let filter = MachineFilter {
        tags,
        state: asked.state,
        created_after: asked.created_after,
        created_before: asked.created_before,
        memory_mb_min: asked.memory_mb_min,
        memory_mb_max: asked.memory_mb_max,
        limit: asked.limit,
        cursor: asked.cursor,
    };
    filter.check()?;
    list(app, caller, Input(filter)).await
}

/// Describe a machine.
#[utoipa::path(get, path = "/v1/machine/{name}", tag = "machines",
    params(("name" = String, Path)), responses((status = 200, body = MachineInfo)))]
async fn get(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
) -> Result<Json<MachineInfo>> {
    Ok(Json(app.on_record(move || Ok(machine.describe())).await?))
}

/// Change tags, limits, durability, network or expiry.
#[utoipa::path(patch, path = "/v1/machine/{name}", tag = "machines",
    params(("name" = String, Path)), request_body = Option<Update>,
    responses((status = 200, body = MachineInfo)))]
async fn update(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Input(update): SmallBody<Update>,
) -> Result<Json<MachineInfo>> {
    act(&app, machine, move |host, machine| host.update(machine, update)).await
}

/// Delete a machine with all its files and history.
#[utoipa::path(delete, path = "/v1/machine/{name}", tag = "machines",
    params(("name" = String, Path)), responses((status = 200, body = Removed)))]
async fn remove(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
) -> Result<Json<Removed>> {
    let removed = machine.name().to_string();
    app.block(move |host| host.remove(&machine)).await?;
    Ok(Json(Removed { removed }))
}

/// Swap a machine out of memory.
#[utoipa::path(post, path = "/v1/machine/{name}/swap", tag = "machines",
    params(("name" = String, Path)), responses((status = 200, body = MachineInfo)))]
async fn swap(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
) -> Result<Json<MachineInfo>> {
    act(&app, machine, |host, machine| host.swap(machine)).await
}

/// Bring a machine into memory.
#[utoipa::path(post, path = "/v1/machine/{name}/wake", tag = "machines",
    params(("name" = String, Path)), responses((status = 200, body = MachineInfo)))]
async fn wake(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
) -> Result<Json<MachineInfo>> {
    act(&app, machine, |host, machine| host.wake(machine)).await
}

/// Interrupt the running instruction; the state is kept.
#[utoipa::path(post, path = "/v1/machine/{name}/interrupt", tag = "machines",
    params(("name" = String, Path)), responses((status = 200, body = Interrupted)))]
async fn interrupt(MachinePath(machine): MachinePath) -> Result<Json<Interrupted>> {
    Ok(Json(Interrupted { interrupted: machine.interrupt()? }))
}

/// Acts on a machine, and returns its new description.
pub async fn act<F>(app: &App, machine: Arc<Machine>, job: F) -> Result<Json<MachineInfo>>
where
    F: FnOnce(&stasis_machine::Host, &Arc<Machine>) -> stasis_machine::Result<()> + Send + 'static,
{
    let view = app.block(move |host| job(host, &machine).map(|()| machine.describe())).await?;
    Ok(Json(view))
}
