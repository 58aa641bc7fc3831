//! `stasis stop`: the keeper puts all machines on disk and ends.

use crate::client::Keeper;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::show;
use serde_json::json;
use std::process::ExitCode;

pub fn run(context: &Context) -> Result<ExitCode> {
    if context.config.text("url").is_some() {
        let message = "only the keeper of a data directory can be stopped from here";
        return Err(Failure::usage(message)
            .hint("leave --url out, or `stasis logout`; stop a service where it runs"));
    }
    let running = Keeper::of(&context.config)?.running();
    if let Some(running) = &running {
        running.stop()?;
    }
    match (context.json, &running) {
        (true, _) => show::json(&json!({ "stopped": running.is_some() })),
        (false, Some(running)) => {
            eprintln!("keeper {} ended; all machines are on disk", running.pid)
        }
        (false, None) => eprintln!("no keeper runs"),
    }
    Ok(ExitCode::SUCCESS)
}
