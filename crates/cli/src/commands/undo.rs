//! `stasis undo` and `stasis redo`: undoes the last instructions, or redoes them.

use crate::client::Client;
use crate::context::Context;
use crate::failure::Result;
use crate::show;
use stasis_api::{MachineInfo, Name, StepRequest};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    machine: Name,
    /// Number of instructions
    #[arg(short, value_name = "COUNT", default_value_t = 1)]
    n: u32,
    /// Include instructions that share a state with these
    #[arg(long)]
    grouped: bool,
}

/// Backwards or forwards.
#[derive(Debug, Clone, Copy)]
pub enum Direction {
    Undo,
    Redo,
}

pub fn run(direction: Direction, args: Args, context: &Context) -> Result<ExitCode> {
    let steps = StepRequest { n: Some(args.n), grouped: args.grouped };
    let machine = step(&context.client()?, direction, args.machine.as_str(), &steps)?;
    say_where(&machine, context.json);
    Ok(ExitCode::SUCCESS)
}

pub fn step(
    client: &Client,
    direction: Direction,
    machine: &str,
    steps: &StepRequest,
) -> Result<MachineInfo> {
    let verb = match direction {
        Direction::Undo => "undo",
        Direction::Redo => "redo",
    };
    client.post(&format!("/v1/machine/{machine}/{verb}"), steps)
}

/// Prints the state a machine is at.
pub fn say_where(machine: &MachineInfo, as_json: bool) {
    match (&machine.checkpoint, as_json) {
        (_, true) => show::json(machine),
        (Some(checkpoint), _) => show::say(&format!("{} is at {checkpoint}", machine.name)),
        (None, _) => show::say(&format!("{} is at its beginning", machine.name)),
    }
}
