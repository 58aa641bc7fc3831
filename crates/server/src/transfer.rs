//! Export and import of machines, as byte streams.
//!
//! Reading and writing a machine blocks, the network does not. A bounded channel connects the two,
//! so a slow client costs a thread and no memory. If a client breaks off an import, nothing is
//! recorded.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{MachinePath, Params};
use crate::failure::{HttpFailure, Result};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use stasis_api::{CreatedMachine, Name, OutOfRange, Problem, Ranged};
use stasis_machine::Export;
use std::io::{self, Read, Write};
use std::time::Duration;
use tokio::sync::mpsc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Pieces in flight, and the size of one.
const PIECES: usize = 8;
const PIECE: usize = 256 << 10;
/// Maximum time for the rest of an already answered file to arrive. A machine with its template is
/// hundreds of megabytes, which take a slow client minutes.
const REST: Duration = Duration::from_secs(300);

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(export)).routes(routes!(import))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct How {
    /// With all checkpoints and the log; otherwise only the current state.
    #[serde(default)]
    history: bool,
    /// With the files of its template, which another host may lack. The default.
    #[serde(default = "yes")]
    root: bool,
}

impl Ranged for How {
    fn check(&self) -> std::result::Result<(), OutOfRange> {
        Ok(())
    }
}

fn yes() -> bool {
    true
}

/// Export a machine as one file.
#[utoipa::path(get, path = "/v1/machine/{name}/export", tag = "history",
    params(("name" = String, Path), How),
    responses((status = 200, body = String, content_type = "application/octet-stream")))]
async fn export(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Params(how): Params<How>,
) -> Result<Response> {
    let what = Export { history: how.history, root: how.root };
    let (tell, told) = mpsc::channel::<io::Result<Bytes>>(PIECES);
    tokio::spawn(stasis_machine::block(move || {
        let mut out = Out { tell: tell.clone(), piece: Vec::new() };
        let done = app.host.export(&machine, what, &mut out).and_then(|()| {
            let failed = |source| stasis_machine::Error::Io { doing: "send it".into(), source };
            out.send().map_err(failed)
        });
        if let Err(error) = done {
            // the head may be sent: closing the connection is the only way to report the failure
            let _ = tell.blocking_send(Err(io::Error::other(error.to_string())));
        }
    }));
    let mut told = told;
    // an error before the first byte is sent as a failure
    let first = match told.recv().await {
        Some(Ok(piece)) => piece,
        Some(Err(error)) => {
            let failure = HttpFailure::about(Problem::Conflict, "export.failed", error.to_string());
            return Err(failure.hint("`stasis store check` finds the damage"));
        }
        None => Bytes::new(),
    };
    let rest = stream::unfold(told, |mut told| async { Some((told.recv().await?, told)) });
    let body = Body::from_stream(stream::iter([Ok(first)]).chain(rest));
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct As {
    /// Its name here; its old name, if absent.
    name: Option<Name>,
}

impl Ranged for As {
    fn check(&self) -> std::result::Result<(), OutOfRange> {
        Ok(())
    }
}

/// Import a machine from a file. Needs the scope `host`, because the file holds memory that another
/// host wrote.
#[utoipa::path(post, path = "/v1/import", tag = "history", params(As),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 200, body = CreatedMachine)))]
async fn import(
    State(app): State<App>,
    caller: Caller,
    Params(wanted): Params<As>,
    request: Request,
) -> Result<Json<CreatedMachine>> {
    caller.need(Scope::Machines)?;
    caller.need(Scope::Host)?;
    let (tell, told) = mpsc::channel::<Bytes>(PIECES);
    let mut body = request.into_body().into_data_stream();
    let (patience, records) = (app.patience, app.clone());
    let mut feed = tokio::spawn(async move {
        let mut is_read = true;
        // a body that does not arrive in time counts as broken off
        while let Ok(Some(Ok(piece))) = tokio::time::timeout(patience, body.next()).await {
            // the reader may have finished early
            is_read = is_read && tell.send(piece).await.is_ok();
        }
    });
    let taken = stasis_machine::block(move || {
        let mut from = In { told, piece: Bytes::new(), bytes: 0, is_over: false };
        let taken = app.host.import(&caller.account, wanted.name, &mut from);
        taken.map_err(|error| from.explain(error))
    });
    let broke = |_| HttpFailure::internal("service.broken", "a handler failed");
    let machine = taken.await.map_err(broke)?;
    // the file may be accepted or refused before all of it arrived; a client that is cut off while
    // it sends may miss the answer, and browsers then repeat the request
    let _ = tokio::time::timeout(REST, &mut feed).await;
    feed.abort();
    let machine = machine?;
    let machine = records.on_record(move || Ok(machine.describe())).await?;
    Ok(Json(CreatedMachine { machine_name: machine.name.clone(), machine }))
}

/// Writes go to a channel, in pieces.
struct Out {
    tell: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Out {
    fn send(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        self.tell.blocking_send(Ok(piece)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = &bytes[..bytes.len().min(PIECE)];
        self.piece.extend_from_slice(some);
        if self.piece.len() >= PIECE {
            self.send()?;
        }
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// Reads come from a channel.
struct In {
    told: mpsc::Receiver<Bytes>,
    piece: Bytes,
    bytes: u64,
    /// Whether the reader needed more than arrived.
    is_over: bool,
}

impl In {
    /// Why a file is refused: mostly because it is truncated.
    fn explain(&self, error: stasis_machine::Error) -> HttpFailure {
        let is_cut = ["import.unfit", "bundle.torn", "bundle.digest"].contains(&error.code());
        if !self.is_over || !is_cut {
            return error.into();
        }
        let said = format!("the file ends after {} bytes, in the middle of a machine", self.bytes);
        HttpFailure::about(Problem::Unprocessable, "import.truncated", said)
            .hint("copy it again, or export the machine again; compare the sizes of both files")
    }
}

impl Read for In {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.told.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => {
                    self.is_over = true;
                    return Ok(0);
                }
            }
        }
        let len = into.len().min(self.piece.len());
        self.bytes += len as u64;
        into[..len].copy_from_slice(&self.piece.split_to(len));
        Ok(len)
    }
}
