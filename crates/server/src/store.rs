//! The store: statistics, collection and checks.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{Input, SmallBody};
use crate::failure::Result;
use axum::Json;
use axum::extract::State;
use stasis_api::{CheckStore, StoreChecked, StoreFinding, StoreFreed, StoreStats};
use stasis_machine::DamageReport;
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
    let stats = app.block(|host| host.store_stats()).await?;
    Ok(Json(StoreStats {
        images: stats.images,
        packs: stats.packs,
        cold_packs: stats.cold_packs,
        unreadable_packs: stats.unreadable_packs,
        layers: stats.layers,
        bytes: stats.bytes,
        layer_bytes: stats.layer_bytes,
        live_pages: stats.live_pages,
        dead_pages: stats.dead_pages,
        dropped_pages: stats.dropped_pages,
        compressed_bytes: stats.compressed_bytes,
        shared_bytes: stats.shared_bytes,
    }))
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
    let freed = freed.await?;
    let stasis_machine::Freed { images, packs, layers, bytes } = freed;
    Ok(Json(StoreFreed { images, packs, layers, bytes }))
}

/// Verify all data in use, and repair damage if asked to.
#[utoipa::path(post, path = "/v1/store/check", tag = "store", request_body = Option<CheckStore>,
    responses((status = 200, body = StoreChecked)))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Input(how): SmallBody<CheckStore>,
) -> Result<Json<StoreChecked>> {
    caller.need(Scope::Host)?;
    let checked = app.block(move |host| host.check_store(how.repair)).await?;
    let finding = |found: DamageReport| {
        let DamageReport { code, what, affects, repaired } = found;
        StoreFinding { code, what, affects, repaired }
    };
    let findings = checked.findings.into_iter().map(finding).collect();
    Ok(Json(StoreChecked { complete: checked.complete, findings }))
}
