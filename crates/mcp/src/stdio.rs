//! Standard streams: one client, for as long as it keeps its end open.

use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::http::Account;
use crate::server::{Server, ToolSet};
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use stasis_machine::Host;
use std::sync::Arc;

/// Serves the process's standard input and output, as the account `root`.
pub async fn stdio(host: Arc<Host>, tools: ToolSet) -> Result<()> {
    let changes = Changes::new(&host);
    let server = Server::new(host, Account::default().0, tools, changes);
    let running = match server.serve(rmcp::transport::stdio_pipes()).await {
        Ok(running) => running,
        // a client that leaves before it said anything has done nothing wrong
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Error::Handshake(error.to_string())),
    };
    let ended = running.waiting().await;
    ended.map(drop).map_err(|error| Error::Unfinished(error.to_string()))
}
