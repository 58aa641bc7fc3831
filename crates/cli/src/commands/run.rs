//! `stasis run`: code in, output and value out.

use super::making;
use super::pairs::{self, Reach};
use crate::client::Client;
use crate::context::Context;
use crate::failure::{Exit, Failure, Result};
use crate::session::{self, Order, Timeout};
use crate::show::{self, Screen, show_chunk};
use serde_json::json;
use stasis_api::{Chunk, Instruction, Machine, Name, Network, NewMachine};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// A file of Python code; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "code")]
    file: Option<String>,
    /// The code itself
    #[arg(short, long, value_name = "CODE", conflicts_with = "file")]
    code: Option<String>,
    /// Run it on this machine, which is made if it is not there, and kept
    #[arg(long, value_name = "NAME")]
    machine: Option<Name>,
    /// How long it may run, in seconds, or `none`
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<Timeout>,
    /// What the machine that is made for it may reach [default: none]
    #[arg(long, value_name = "NETWORK")]
    network: Option<Reach>,
    /// Keep the machine that was made for it
    #[arg(long, conflicts_with = "machine")]
    keep: bool,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let code = pairs::code(args.code, args.file.as_deref())?;
    let client = context.client()?;
    let machine = find(&client, args.machine.as_ref(), args.network.map(Into::into))?;
    let passing = args.machine.is_none() && !args.keep;
    let order = Order { code, timeout: args.timeout.unwrap_or_default(), ..Order::default() };
    let done = instruct(&client, machine.name.as_str(), &order, context.json);
    if passing {
        let removed = client.delete(&format!("/v1/machine/{}", machine.name));
        // the failure of the code is the one to tell
        if done.is_ok() {
            removed?;
        }
    } else if !context.json && args.keep {
        eprintln!("machine {} is kept: `stasis repl {0}` goes on", machine.name);
    }
    done
}

/// The machine of that name, or a new one.
fn find(client: &Client, name: Option<&Name>, network: Option<Network>) -> Result<Machine> {
    let new = NewMachine {
        name: name.cloned(),
        network: network.unwrap_or_default(),
        ..NewMachine::default()
    };
    let Some(name) = name else { return making::make(client, &new) };
    match client.get::<Machine>(&format!("/v1/machine/{name}")) {
        Err(Failure { exit: Exit::NotFound, .. }) => making::make(client, &new),
        Ok(machine) if network.is_some_and(|network| network != machine.network) => {
            let message = format!("machine {name} is there, with another network");
            Err(Failure::new("machine.other_network", message)
                .hint("a machine keeps the network it was made with")
                .exit(Exit::Conflict))
        }
        other => other,
    }
}

/// Runs an instruction and shows it; the exit code says whether it went well.
pub fn instruct(client: &Client, machine: &str, order: &Order, as_json: bool) -> Result<ExitCode> {
    show_run(machine, as_json, |each| session::run(client, machine, order, each))
}

/// Shows output as `run` hands it over, and then how the instruction ended.
pub fn show_run(
    machine: &str,
    as_json: bool,
    run: impl FnOnce(&mut dyn FnMut(&Chunk)) -> Result<Instruction>,
) -> Result<ExitCode> {
    let mut outputs = Vec::new();
    let instruction = run(&mut |chunk: &Chunk| match as_json {
        true => outputs.push(chunk.clone()),
        false => show_chunk(chunk),
    })?;
    let well = match as_json {
        true => {
            show::json(&json!({
                "machine": machine, "instruction": instruction, "outputs": outputs,
            }));
            show::went_well(&instruction)
        }
        false => Screen::new().show(machine, &instruction)?,
    };
    Ok(if well { ExitCode::SUCCESS } else { Exit::Failed.into() })
}
