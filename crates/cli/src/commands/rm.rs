//! `stasis rm`: removes machines with all their data.

use super::machine::{self, FilterArgs};
use crate::client::Client;
use crate::context::Context;
use crate::failure::{CliFailure, Exit, Result};
use crate::show;
use serde_json::json;
use stasis_api::Name;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Machines to remove
    names: Vec<Name>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Every machine
    #[arg(long, conflicts_with_all = ["names", "tags", "state"])]
    all: bool,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let chosen = args.all || !args.filter.is_empty();
    match (chosen, args.names.is_empty()) {
        (false, true) => {
            return Err(CliFailure::usage("no machine given")
                .hint("name machines, or select them with --tag, --state or --all"));
        }
        (true, false) => {
            return Err(CliFailure::usage("machines are given by name and by filter")
                .hint("name machines, or select them with --tag or --state, not both"));
        }
        _ => {}
    }
    let client = context.client()?;
    if !chosen {
        args.names.iter().try_for_each(|name| remove(&client, name, context.json))?;
        return Ok(ExitCode::SUCCESS);
    }
    let query = if args.all { json!({}) } else { args.filter.query() };
    for machine in machine::all(&client, query)? {
        match remove(&client, &machine.name, context.json) {
            // another client removed it between the list and this call
            Err(CliFailure { exit: Exit::NotFound, .. }) => {}
            other => other?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn remove(client: &Client, name: &Name, as_json: bool) -> Result<()> {
    let removed = client.delete(&format!("/v1/machine/{name}"))?;
    match as_json {
        true => show::json(&removed),
        false => eprintln!("removed {name}"),
    }
    Ok(())
}
