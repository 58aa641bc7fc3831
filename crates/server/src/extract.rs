//! Extractors for bodies (bounded in size and time), paths and queries. A request that cannot be
//! parsed fails like any other.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::failure::{HttpFailure, Result};
use crate::fields;
use crate::limits::{CODE, SMALL};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use stasis_api::{Problem, Ranged};
use stasis_machine::Machine;
use std::collections::HashMap;
use std::sync::Arc;

/// A JSON body of at most `MAX` bytes. An empty body and `null` are the same as `{}`.
pub struct Input<T, const MAX: usize>(pub T);

pub type SmallBody<T> = Input<T, SMALL>;
pub type LargeBody<T> = Input<T, CODE>;

impl<T: DeserializeOwned + Ranged, const MAX: usize> FromRequest<App> for Input<T, MAX> {
    type Rejection = HttpFailure;

    async fn from_request(request: Request, app: &App) -> Result<Self> {
        let read = axum::body::to_bytes(request.into_body(), MAX);
        let bytes = tokio::time::timeout(app.patience, read).await.map_err(|_| late())?;
        let bytes = bytes.map_err(|_| {
            let said = format!("the body is longer than {MAX} bytes, or broke off");
            let failure = HttpFailure::about(Problem::TooLarge, "request.too_large", said);
            failure.hint("upload large files with PUT /v1/machine/{name}/file")
        })?;
        let value: T = parse(&bytes)?;
        value.check()?;
        Ok(Input(value))
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let text = match std::str::from_utf8(bytes).map_err(not_json)?.trim_ascii() {
        "" | "null" => "{}",
        text => text,
    };
    // a list could be parsed as fields in order, which is never intended
    if !text.starts_with('{') {
        return Err(not_json("it is not a JSON object"));
    }
    serde_json::from_str(text).map_err(|error| {
        let said = error.to_string();
        // too large for its type, or negative
        match error.is_data() && said.starts_with("invalid value: integer") {
            true => HttpFailure::range(format!("the body: {said}")),
            false => fields::unknown(&said).unwrap_or_else(|| not_json(said)),
        }
    })
}

fn not_json(why: impl std::fmt::Display) -> HttpFailure {
    let failure = HttpFailure::about(Problem::Invalid, "request.json", format!("the body: {why}"));
    failure.hint("/docs shows the fields of each route")
}

/// A body that does not arrive.
pub fn late() -> HttpFailure {
    let failure =
        HttpFailure::about(Problem::Invalid, "request.slow", "the body arrived too slowly");
    failure.hint("send it again; nothing was changed")
}

/// The parameters of the query.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned + Ranged, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = HttpFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        let Query(value) = read.map_err(|error| match error.body_text() {
            said if said.contains("number too large") => HttpFailure::range(said),
            said => fields::unknown(&said).unwrap_or_else(|| HttpFailure::invalid(said)),
        })?;
        value.check()?;
        Ok(Params(value))
    }
}

/// The parameters of the path, by name.
pub struct PathParams(HashMap<String, String>);

impl PathParams {
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathParams {
    type Rejection = HttpFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let read = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
        let Path(map) = read.map_err(|error| HttpFailure::invalid(error.body_text()))?;
        Ok(PathParams(map))
    }
}

/// The machine of the path, which must be the caller's.
pub struct MachinePath(pub Arc<Machine>);

impl FromRequestParts<App> for MachinePath {
    type Rejection = HttpFailure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        caller.need(Scope::Machines)?;
        let segments = PathParams::from_request_parts(parts, app).await?;
        app.machine(&caller, segments.get("name")).map(MachinePath)
    }
}

/// The instruction of the path.
pub struct InstructionPath {
    pub machine: Arc<Machine>,
    pub seq: u64,
}

impl FromRequestParts<App> for InstructionPath {
    type Rejection = HttpFailure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let MachinePath(machine) = MachinePath::from_request_parts(parts, app).await?;
        let segments = PathParams::from_request_parts(parts, app).await?;
        let text = segments.get("seq");
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u32>() {
            Ok(seq) if digits => Ok(InstructionPath { machine, seq: seq.into() }),
            _ if digits => {
                let said = format!("{text} is too large for an instruction's number");
                Err(HttpFailure::range(said))
            }
            _ => Err(HttpFailure::invalid(format!("{text:?} is not an instruction's number"))),
        }
    }
}
