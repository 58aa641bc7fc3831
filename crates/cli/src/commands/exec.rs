//! `stasis exec`: runs code on an existing machine.

use super::pairs::{self, Level, States};
use super::run::instruct;
use crate::context::Context;
use crate::failure::Result;
use crate::session::{self, RunRequest, TimeoutArg};
use crate::show;
use serde_json::json;
use stasis_api::Name;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    machine: Name,
    /// Code; `-` reads standard input
    code: String,
    /// Time limit in seconds, or `none`
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<TimeoutArg>,
    /// First interrupt the running instruction and cancel the queue
    #[arg(long)]
    interrupt: bool,
    /// Answer at once, or when the state is on disk [default: the machine's]
    #[arg(long, value_name = "LEVEL")]
    durability: Option<Level>,
    /// Whether the instruction has a state of its own [default: the machine's]
    #[arg(long, value_name = "STATES")]
    checkpoints: Option<States>,
    /// Print the instruction's number and return
    #[arg(long)]
    detach: bool,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let code = match args.code.as_str() {
        "-" => pairs::code(None, None)?,
        _ => args.code,
    };
    let client = context.client()?;
    let order = RunRequest {
        code,
        timeout: args.timeout.unwrap_or_default(),
        interrupt: args.interrupt,
        durability: args.durability.map(Into::into),
        checkpoints: args.checkpoints.map(Into::into),
        ..RunRequest::default()
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
