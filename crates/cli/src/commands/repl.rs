//! `stasis repl`: a conversation with a machine.

use super::making;
use crate::context::Context;
use crate::failure::{Exit, Result};
use crate::repl::Repl;
use crate::session::Timeout;
use stasis_api::{Machine, Name, NewMachine};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// The machine to go on with [default: a new one]
    machine: Option<Name>,
    /// How long each instruction may run, in seconds, or `none`
    #[arg(long, value_name = "SECONDS", default_value = "none")]
    timeout: Timeout,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let machine: Machine = match &args.machine {
        Some(name) => client.get(&format!("/v1/machine/{name}"))?,
        None => making::make(&client, &NewMachine::default())?,
    };
    let name = machine.name.to_string();
    eprintln!("machine {name} ({}): its state is kept; `:help` lists the words", machine.template);
    let repl = Repl { client: &client, machine: name.clone(), timeout: args.timeout, context };
    let well = repl.talk()?;
    eprintln!("machine {name} is kept: `stasis repl {name}` goes on");
    Ok(if well { ExitCode::SUCCESS } else { Exit::Failed.into() })
}
