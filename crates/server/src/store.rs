//! The store: statistics, collection and checks.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{Input, SmallBody};
use crate::failure::Result;
use axum::Json;
use axum::extract::State;
use stasis_api::{CheckStore, StoreChecked, StoreFreed, StoreStats};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(stats)).routes(routes!(gc)).routes(routes!(check))
}

/// Report the size of the store.
#[utoipa::path(get, path = "/v1/store/stats", tag = "store",
    responses((status = 200, body = StoreStats)))]
async fn stats(State(app): State<App>, caller: Caller) -> Result<Json<StoreStats>> {
    caller.need(Scope::Host)?;
    Ok(Json(app.block(|host| host.store_stats()).await?))
}

/// Free data that no machine, checkpoint or template needs.
#[utoipa::path(post, path = "/v1/store/gc", tag = "store",
    responses((status = 200, body = StoreFreed)))]
async fn gc(State(app): State<App>, caller: Caller) -> Result<Json<StoreFreed>> {
    caller.need(Scope::Host)?;
    let freed = app.block(|host| {
        host.prune(stasis_api::Timestamp::now())?;
        host.collect()
    });
    Ok(Json(freed.await?))
}

/// Verify all data in use, and repair damage on request.
#[utoipa::path(post, path = "/v1/store/check", tag = "store", request_body = Option<CheckStore>,
    responses((status = 200, body = StoreChecked)))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Input(how): SmallBody<CheckStore>,
) -> Result<Json<StoreChecked>> {
    caller.need(Scope::Host)?;
    Ok(Json(app.block(move |host| host.check_store(how.repair)).await?))
}
