//! The store as a whole: what it takes, freeing what nothing needs, and looking for damage.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{Input, Small};
use crate::failure::Result;
use axum::Json;
use axum::extract::State;
use stasis_api::{CheckStore, StoreChecked, StoreFinding, StoreFreed, StoreStats};
use stasis_machine::Found;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(stats)).routes(routes!(gc)).routes(routes!(check))
}

/// What the store takes.
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

/// Free what no machine, checkpoint or template needs.
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

/// Look for damage in all that is in use.
#[utoipa::path(post, path = "/v1/store/check", tag = "store", request_body = Option<CheckStore>,
    responses((status = 200, body = StoreChecked)))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Input(how): Small<CheckStore>,
) -> Result<Json<StoreChecked>> {
    caller.need(Scope::Host)?;
    let checked = app.block(move |host| host.check_store(how.mend)).await?;
    let finding = |found: Found| {
        let Found { code, what, affects, mended } = found;
        StoreFinding { code, what, affects, mended }
    };
    let findings = checked.findings.into_iter().map(finding).collect();
    Ok(Json(StoreChecked { complete: checked.complete, findings }))
}
