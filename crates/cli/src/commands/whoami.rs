//! `stasis whoami`: shows the service in use and the account.

use crate::context::Context;
use crate::failure::Result;
use crate::show;
use serde_json::json;
use stasis_api::Whoami;
use std::process::ExitCode;

pub fn run(context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let who: Whoami = client.get("/v1/whoami")?;
    let about = json!({ "at": client.place(), "account": who.account, "scopes": who.scopes });
    match context.json {
        true => show::json(&about),
        false => show::object(&about),
    }
    Ok(ExitCode::SUCCESS)
}
