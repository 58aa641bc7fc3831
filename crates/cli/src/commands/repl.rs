//! `stasis repl`: an interactive session on a machine.

use super::making;
use crate::context::Context;
use crate::failure::{Exit, Result};
use crate::repl::Repl;
use crate::session::TimeoutArg;
use stasis_api::{MachineInfo, Name, NewMachine};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Machine to continue [default: a new one]
    machine: Option<Name>,
    /// Language of a new machine [default: Python]
    #[arg(long, value_name = "LANGUAGE", conflicts_with = "machine",
        value_parser = making::languages())]
    language: Option<String>,
    /// Time limit of each instruction in seconds, or `none`
    #[arg(long, value_name = "SECONDS", default_value = "none")]
    timeout: TimeoutArg,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let machine: MachineInfo = match &args.machine {
        Some(name) => client.get(&format!("/v1/machine/{name}"))?,
        None => {
            let template = args.language.and_then(making::template_of);
            making::make(&client, &NewMachine { template, ..NewMachine::default() })?
        }
    };
    let name = machine.name.to_string();
    eprintln!(
        "machine {name} ({}): its state is kept; `:help` lists the commands",
        machine.template
    );
    let repl = Repl { client: &client, machine: name.clone(), timeout: args.timeout, context };
    let well = repl.talk()?;
    eprintln!("machine {name} is kept: continue with `stasis repl {name}`");
    Ok(if well { ExitCode::SUCCESS } else { Exit::Failed.into() })
}
