//! `stasis undo`: the last instruction never happened.

use crate::client::Client;
use crate::context::Context;
use crate::failure::Result;
use crate::show;
use serde_json::json;
use stasis_api::{Machine, Name};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    machine: Name,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let machine = undo(&context.client()?, args.machine.as_str())?;
    say_where(&machine, context.json);
    Ok(ExitCode::SUCCESS)
}

pub fn undo(client: &Client, machine: &str) -> Result<Machine> {
    client.post(&format!("/v1/machine/{machine}/undo"), &json!({}))
}

/// Says at which state a machine is.
pub fn say_where(machine: &Machine, as_json: bool) {
    match (&machine.checkpoint, as_json) {
        (_, true) => show::json(machine),
        (Some(checkpoint), _) => show::say(&format!("{} is at {checkpoint}", machine.name)),
        (None, _) => show::say(&format!("{} is at its beginning", machine.name)),
    }
}
