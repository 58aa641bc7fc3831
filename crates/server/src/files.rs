//! Files of machines over HTTP, streamed in pieces.
//!
//! A body that breaks off leaves no file. A download breaks off if its file shrinks, because the
//! length was already sent.

use crate::app::App;
use crate::extract::{MachinePath, Params, late};
use crate::failure::{HttpFailure, Result};
use crate::ranges::{ByteRange, wanted};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use stasis_api::{AtPath, FileInfo, FileList, ListFiles, Problem, PutFile, RemoveFile, Removed};
use stasis_machine::Upload;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Bytes moved at a time.
const PIECE: usize = 512 << 10;
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get, put, remove))
        .routes(routes!(stat))
        .routes(routes!(list))
}

/// Read a file, or a part of it.
#[utoipa::path(get, path = "/v1/machine/{name}/file", tag = "files",
    params(("name" = String, Path), AtPath, ("range" = Option<String>, Header)),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream")))]
async fn get(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Params(at): Params<AtPath>,
    headers: HeaderMap,
) -> Result<Response> {
    let (info, file) = app.block(move |_| machine.read_file(&at.path)).await?;
    let tag = format!("\"{:x}-{:x}\"", info.size, info.modified_at.as_nanosecond());
    let mut response = send(file, info.size, &headers)?;
    if let Ok(tag) = tag.parse() {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// A file as a response, or the requested part of it.
pub fn send(file: File, size: u64, headers: &HeaderMap) -> Result<Response> {
    let span = wanted(headers, size)?;
    let ByteRange { start, length, whole } = span;
    let mut response = Body::from_stream(pieces(file, start, length)).into_response();
    let own = response.headers_mut();
    own.insert(header::CONTENT_TYPE, BYTES);
    own.insert(header::CONTENT_LENGTH, length.into());
    own.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if !whole {
        let place = format!("bytes {start}-{}/{size}", start + length - 1);
        if let Ok(place) = place.parse() {
            own.insert(header::CONTENT_RANGE, place);
        }
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

fn pieces(file: File, start: u64, length: u64) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold(Some((file, start, length)), |state| async {
        let (file, at, left) = state?;
        if left == 0 {
            return None;
        }
        let read = tokio::task::spawn_blocking(move || read(file, at, left)).await;
        match read.map_err(io::Error::other).flatten() {
            Ok((file, bytes)) => {
                let length = bytes.len() as u64;
                Some((Ok(bytes), Some((file, at + length, left - length))))
            }
            Err(error) => Some((Err(error), None)),
        }
    })
}

fn read(mut file: File, at: u64, left: u64) -> io::Result<(File, Bytes)> {
    let mut bytes = vec![0; left.min(PIECE as u64) as usize];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok((file, bytes.into()))
}

/// Write a file or a symbolic link, replacing any that is there. The body is the file's contents.
#[utoipa::path(put, path = "/v1/machine/{name}/file", tag = "files",
    params(("name" = String, Path), PutFile),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = FileInfo)))]
async fn put(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Params(how): Params<PutFile>,
    body: Body,
) -> Result<Json<FileInfo>> {
    let mode = how.mode.as_deref().map(permissions).transpose()?;
    if let Some(target) = how.target {
        let link = move |host: &std::sync::Arc<stasis_machine::Host>| {
            host.admit(&machine)?;
            machine.put_link(&how.path, &target, how.durability)
        };
        return Ok(Json(app.block(link).await?));
    }
    let begin = move |host: &std::sync::Arc<stasis_machine::Host>| {
        host.admit(&machine)?;
        machine.put_file(&how.path, mode)
    };
    let mut upload = app.block(begin).await?;
    let mut body = body.into_data_stream();
    loop {
        let (batch, more) = batch(&mut body, app.patience).await?;
        upload = app.block(move |_| written(upload, &batch)).await?;
        if !more {
            break;
        }
    }
    Ok(Json(app.block(move |_| upload.finish(how.durability)).await?))
}

/// Permissions in the clients' notation.
fn permissions(text: &str) -> Result<u32> {
    let octal = text.len() <= 4 && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = octal.then(|| u32::from_str_radix(text, 8).ok()).flatten();
    mode.ok_or_else(|| HttpFailure::invalid("mode is a number of 1 to 4 octal digits, such as 644"))
}

fn written(mut upload: Upload, batch: &[Bytes]) -> stasis_machine::Result<Upload> {
    batch.iter().try_for_each(|bytes| upload.write(bytes))?;
    Ok(upload)
}

/// The next bytes of a body, and whether there may be more.
async fn batch(
    body: &mut axum::body::BodyDataStream,
    patience: Duration,
) -> Result<(Vec<Bytes>, bool)> {
    let (mut batch, mut size) = (Vec::new(), 0);
    while size < PIECE {
        match tokio::time::timeout(patience, body.next()).await.map_err(|_| late())? {
            None => return Ok((batch, false)),
            Some(Ok(bytes)) => {
                size += bytes.len();
                batch.push(bytes);
            }
            Some(Err(_)) => {
                let said = "the body broke off; no file was written";
                let failure = HttpFailure::about(Problem::Invalid, "request.cut_off", said);
                return Err(failure.hint("send it again"));
            }
        }
    }
    Ok((batch, true))
}

/// Remove a file or a directory.
#[utoipa::path(delete, path = "/v1/machine/{name}/file", tag = "files",
    params(("name" = String, Path), RemoveFile), responses((status = 200, body = Removed)))]
async fn remove(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Params(how): Params<RemoveFile>,
) -> Result<Json<Removed>> {
    let removed = app.block(move |_| machine.remove_file(&how.path, how.recursive)).await?;
    Ok(Json(Removed { removed }))
}

/// Describe a file without reading it; links are not followed.
#[utoipa::path(get, path = "/v1/machine/{name}/file/stat", tag = "files",
    params(("name" = String, Path), AtPath), responses((status = 200, body = FileInfo)))]
async fn stat(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Params(at): Params<AtPath>,
) -> Result<Json<FileInfo>> {
    Ok(Json(app.block(move |_| machine.file(&at.path)).await?))
}

/// List a directory, by name.
#[utoipa::path(get, path = "/v1/machine/{name}/files", tag = "files",
    params(("name" = String, Path), ListFiles), responses((status = 200, body = FileList)))]
async fn list(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Params(ask): Params<ListFiles>,
) -> Result<Json<FileList>> {
    let ListFiles { path, limit, cursor } = ask;
    let page = app.block(move |_| machine.list_files(&path, cursor.as_deref(), limit)).await?;
    Ok(Json(page))
}
