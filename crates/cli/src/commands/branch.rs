//! `stasis branch`: new machines that go on from another's state.

use super::pairs::{map, pair};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::show;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stasis_api::{Address, Machine, Name};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// A machine, or its state after an instruction, such as `work@3`
    #[arg(value_name = "MACHINE[@SEQ]")]
    address: Address,
    /// How many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    count: u64,
    /// A name for each [default: new ones]
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<Name>,
    /// A word to find them by
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Give each its own randomness instead of the source's
    #[arg(long)]
    reseed: bool,
}

#[derive(Serialize, Deserialize)]
struct Made {
    machines: Vec<Machine>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let count = if args.count == 1 { args.count.max(args.names.len() as u64) } else { args.count };
    if !args.names.is_empty() && args.names.len() as u64 != count {
        let message = format!("{count} machines and {} names", args.names.len());
        return Err(Failure::usage(message).hint("give as many names as machines, or none"));
    }
    let mut body = json!({ "count": count, "tags": map(args.tags), "reseed": args.reseed });
    if let Some(seq) = args.address.seq {
        body["seq"] = seq.into();
    }
    if !args.names.is_empty() {
        body["names"] = json!(args.names);
    }
    let path = format!("/v1/machine/{}/branch", args.address.machine);
    let made: Made = context.client()?.post(&path, &body)?;
    match context.json {
        true => show::json(&made),
        false => made.machines.iter().for_each(|machine| show::say(machine.name.as_str())),
    }
    Ok(ExitCode::SUCCESS)
}
