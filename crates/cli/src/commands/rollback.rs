//! `stasis rollback`: returns a machine to the state after an instruction.

use super::undo::say_where;
use crate::context::Context;
use crate::failure::{CliFailure, Result};
use serde_json::json;
use stasis_api::{Address, MachineInfo};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// State to return to, such as `work@3`
    #[arg(value_name = "MACHINE@SEQ")]
    address: Address,
    /// Return to before the first instruction; give only the machine's name
    #[arg(long)]
    beginning: bool,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let Address { machine, seq } = args.address;
    if seq.is_some() == args.beginning {
        let message = format!("no state of `{machine}` given");
        let hint = format!("write `{machine}@SEQ`, or `{machine} --beginning`");
        return Err(CliFailure::usage(message).hint(hint));
    }
    let path = format!("/v1/machine/{machine}/rollback");
    let machine: MachineInfo = context.client()?.post(&path, &json!({ "seq": seq }))?;
    say_where(&machine, context.json);
    Ok(ExitCode::SUCCESS)
}
