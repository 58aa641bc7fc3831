//! `stasis logout`: forget the service and the token that `login` kept.

use crate::config::Login;
use crate::context::Context;
use crate::failure::Result;
use crate::show;
use serde_json::json;
use std::process::ExitCode;

pub fn run(context: &Context) -> Result<ExitCode> {
    let was_kept = Login::remove()?;
    match (context.json, was_kept) {
        (true, _) => show::json(&json!({ "logged_out": was_kept })),
        (false, true) => eprintln!("logged out; the token itself is valid until it is revoked"),
        (false, false) => eprintln!("nobody was logged in"),
    }
    Ok(ExitCode::SUCCESS)
}
