//! `stasis logout`: removes the stored service and token.

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
        (false, true) => eprintln!("logged out; the token stays valid until it is revoked"),
        (false, false) => eprintln!("not logged in"),
    }
    Ok(ExitCode::SUCCESS)
}
