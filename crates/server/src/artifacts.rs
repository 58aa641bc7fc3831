//! Artifacts of a machine: data too large for its results.

use crate::app::App;
use crate::extract::{MachinePath, PathParams};
use crate::failure::Result;
use crate::files::send;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use stasis_api::ArtifactList;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get))
}

/// List artifacts, which are outputs too large for results, oldest first.
#[utoipa::path(get, path = "/v1/machine/{name}/artifact", tag = "instructions",
    params(("name" = String, Path)), responses((status = 200, body = ArtifactList)))]
async fn list(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
) -> Result<Json<ArtifactList>> {
    let artifacts = app.block(move |_| machine.artifacts()).await?;
    Ok(Json(ArtifactList { artifacts }))
}

/// Read an artifact, or a part of it.
#[utoipa::path(get, path = "/v1/machine/{name}/artifact/{id}", tag = "instructions",
    params(("name" = String, Path), ("id" = String, Path), ("range" = Option<String>, Header)),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream")))]
async fn get(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    segments: PathParams,
    headers: HeaderMap,
) -> Result<Response> {
    let id = segments.get("id").to_owned();
    let (artifact, file) = app.block(move |_| machine.artifact(&id)).await?;
    let mut response = send(file, artifact.size, &headers)?;
    if let Ok(tag) = format!("\"{}\"", artifact.id).parse() {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}
