//! `stasis rollback`: back to the state after an instruction.

use super::undo::say_where;
use crate::context::Context;
use crate::failure::{Failure, Result};
use serde_json::json;
use stasis_api::{Address, Machine};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// The state to go back to, such as `work@3`
    #[arg(value_name = "MACHINE@SEQ")]
    address: Address,
    /// To before its first instruction; the address is the machine's name alone
    #[arg(long)]
    beginning: bool,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let Address { machine, seq } = args.address;
    if seq.is_some() == args.beginning {
        let message = format!("which state of `{machine}`?");
        let hint = format!("write `{machine}@SEQ`, or `{machine} --beginning`");
        return Err(Failure::usage(message).hint(hint));
    }
    let path = format!("/v1/machine/{machine}/rollback");
    let machine: Machine = context.client()?.post(&path, &json!({ "seq": seq }))?;
    say_where(&machine, context.json);
    Ok(ExitCode::SUCCESS)
}
