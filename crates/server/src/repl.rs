//! The WebSocket of a machine: authorization, and the kind of client.
//!
//! An unauthorized client is refused with an HTTP status: one client reconnects for ever if its
//! connection is accepted and then closed. That client also waits for ever for a machine that does
//! not exist, so its connection is accepted, and every instruction is answered with the reason.

use crate::app::{App, RequestOrigin};
use crate::auth::{Caller, Scope};
use crate::extract::PathParams;
use crate::failure::{HttpFailure, Result};
use crate::limits::{CODE, room_for_socket};
use crate::machines::make;
use crate::middleware::is_browser;
use crate::socket;
use crate::unproven::Ticket;
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use stasis_api::Problem;
use stasis_machine::Machine;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Read buffer of a connection; most of them are idle.
const READ_BUFFER: usize = 4 << 10;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(open))
}

/// The kind of client, as far as its quirks matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplClient {
    JavaScript,
    /// Ignores pings, loses an answer that arrives at once, and buffers 50 lines of output.
    Rust,
    Other,
}

fn client(headers: &HeaderMap, uri: &Uri) -> ReplClient {
    match headers.get("x-forevervm-sdk").map(|name| name.as_bytes()) {
        Some(b"rust") => ReplClient::Rust,
        Some(b"javascript") => ReplClient::JavaScript,
        None if is_browser(uri) => ReplClient::JavaScript,
        _ => ReplClient::Other,
    }
}

/// Open a WebSocket to a machine; `new` creates one.
#[utoipa::path(get, path = "/v1/machine/{name}/repl", tag = "instructions",
    params(("name" = String, Path)),
    responses((status = 101, description = "Messages as in docs/reference/websocket.md")))]
async fn open(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
    uri: Uri,
    headers: HeaderMap,
    ticket: Option<Extension<Arc<Ticket>>>,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    caller.need(Scope::Machines)?;
    let upgrade = upgrade.map_err(|error| {
        let failure = HttpFailure::about(Problem::Invalid, "request.websocket", error.body_text());
        failure.hint("this address is a WebSocket; use POST .../exec to run code over HTTP")
    })?;
    room_for_socket(app.instruments.metrics().sockets.get())?;
    let client = client(&headers, &uri);
    let name = segments.get("name").to_owned();
    let machine = find(&app, &caller, &name).await;
    let machine = match machine {
        Err(failure) if client != ReplClient::JavaScript || name == "new" => return Err(failure),
        other => other,
    };
    let upgrade = upgrade.read_buffer_size(READ_BUFFER).max_message_size(CODE).max_frame_size(CODE);
    let cause = RequestOrigin::current().cause;
    Ok(upgrade.on_upgrade(move |socket| async move {
        app.instruments.metrics().sockets.inc();
        let session = socket::Session::new(app.clone(), machine, client, cause);
        session.run(socket, name).await;
        app.instruments.metrics().sockets.dec();
        // counts for its account as long as it is open
        drop(ticket);
    }))
}

async fn find(app: &App, caller: &Caller, name: &str) -> Result<Arc<Machine>> {
    match name {
        "new" => make(app, caller, Default::default()).await,
        name => app.machine(caller, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients() {
        let uri = |text: &str| text.parse::<Uri>().expect("an address");
        let mut headers = HeaderMap::new();
        let plain = uri("/v1/machine/new/repl");
        assert_eq!(client(&headers, &plain), ReplClient::Other);
        let browser = uri("/v1/machine/new/repl?_forevervm_jwt=a.b");
        assert_eq!(client(&headers, &browser), ReplClient::JavaScript);
        headers.insert("x-forevervm-sdk", "rust".parse().expect("a header"));
        assert_eq!(client(&headers, &browser), ReplClient::Rust);
    }
}
