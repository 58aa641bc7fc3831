//! `stasis stop`: has the daemon save all machines and exit.

use crate::client::Daemon;
use crate::context::Context;
use crate::failure::{CliFailure, Result};
use crate::show;
use serde_json::json;
use std::process::ExitCode;

pub fn run(context: &Context) -> Result<ExitCode> {
    if context.config.text("url").is_some() {
        let message = "`stop` only stops the daemon of a local data directory";
        return Err(CliFailure::usage(message)
            .hint("omit --url or run `stasis logout`; stop a remote service on its own host"));
    }
    let running = Daemon::of(&context.config)?.running();
    if let Some(running) = &running {
        running.stop()?;
    }
    match (context.json, &running) {
        (true, _) => show::json(&json!({ "stopped": running.is_some() })),
        (false, Some(running)) => {
            eprintln!("daemon {} stopped; all machines are on disk", running.pid)
        }
        (false, None) => eprintln!("no daemon runs"),
    }
    Ok(ExitCode::SUCCESS)
}
