//! `stasis exec`: code on a machine that is there.

use super::pairs::{self, Level};
use super::run::instruct;
use crate::context::Context;
use crate::failure::Result;
use crate::session::{self, Order, Timeout};
use crate::show;
use serde_json::json;
use stasis_api::Name;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    machine: Name,
    /// The code; `-` reads it from standard input
    code: String,
    /// How long it may run, in seconds, or `none`
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<Timeout>,
    /// Interrupt what runs, and cancel what waits, first
    #[arg(long)]
    interrupt: bool,
    /// When the answer is sent [default: as the machine says]
    #[arg(long, value_name = "LEVEL")]
    durability: Option<Level>,
    /// Print its number and do not wait for it
    #[arg(long)]
    detach: bool,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let code = match args.code.as_str() {
        "-" => pairs::code(None, None)?,
        _ => args.code,
    };
    let client = context.client()?;
    let order = Order {
        code,
        timeout: args.timeout.unwrap_or_default(),
        interrupt: args.interrupt,
        durability: args.durability.map(Into::into),
    };
    if !args.detach {
        return instruct(&client, args.machine.as_str(), &order, context.json);
    }
    let seq = session::submit(&client, args.machine.as_str(), &order)?;
    match context.json {
        true => show::json(&json!({ "machine": args.machine, "instruction_seq": seq })),
        false => show::say(&format!("{}@{seq}", args.machine)),
    }
    Ok(ExitCode::SUCCESS)
}
