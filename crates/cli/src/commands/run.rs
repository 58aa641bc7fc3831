//! `stasis run`: runs code and prints its output and value.

use super::making;
use super::pairs;
use crate::client::Client;
use crate::context::Context;
use crate::failure::{CliFailure, Exit, Result};
use crate::session::{self, RunRequest, TimeoutArg};
use crate::show::{self, Screen, show_chunk};
use serde_json::json;
use stasis_api::{Chunk, Instruction, MachineInfo, Name, Network, NewMachine, TemplateInfo};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// File with code, Python or JavaScript by its ending; `-` reads standard input
    #[arg(value_name = "FILE", required_unless_present = "code",
        value_hint = clap::ValueHint::FilePath)]
    file: Option<String>,
    /// Arguments of the script, in `sys.argv` or `process.argv`; put `--` before options that this
    /// command has too
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, requires = "file")]
    args: Vec<String>,
    /// Code to run
    #[arg(short, long, value_name = "CODE", conflicts_with = "file")]
    code: Option<String>,
    /// Run on this machine; it is created if missing, and kept
    #[arg(long, value_name = "NAME")]
    machine: Option<Name>,
    /// Language of a new machine [default: by the file's ending, or Python]
    #[arg(long, value_name = "LANGUAGE", value_parser = making::languages())]
    language: Option<String>,
    /// Time limit in seconds, or `none`
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<TimeoutArg>,
    /// Network of the temporary machine: none, open or policy:NAME [default: from the
    /// configuration, or none]
    #[arg(long, value_name = "NETWORK")]
    network: Option<Network>,
    /// Keep the temporary machine
    #[arg(long, conflicts_with = "machine")]
    keep: bool,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let code = pairs::code(args.code, args.file.as_deref())?;
    let client = context.client()?;
    let of_file = args.file.as_ref().and_then(|file| stasis_agent::language_of_file(file.as_ref()));
    let named = args.language.as_deref().and_then(stasis_agent::language);
    let language = named.or(of_file);
    let template = language.map(|own| own.name().to_owned());
    let new = NewMachine { template, network: args.network, ..NewMachine::default() };
    let machine = find(&client, args.machine.as_ref(), new)?;
    let passing = args.machine.is_none() && !args.keep;
    let order =
        RunRequest { code, timeout: args.timeout.unwrap_or_default(), ..RunRequest::default() };
    let name = machine.name.as_str();
    let ready = arguments(&client, &machine, args.file.as_deref(), &args.args);
    let done = ready.and_then(|()| instruct(&client, name, &order, context.json));
    if passing {
        let removed = client.delete(&format!("/v1/machine/{}", machine.name));
        // the code's failure takes precedence
        if done.is_ok() {
            removed?;
        }
    } else if !context.json && args.keep {
        eprintln!("machine {} is kept: continue with `stasis repl {0}`", machine.name);
    }
    done
}

/// Sets the arguments of a script, as a separate instruction.
fn arguments(
    client: &Client,
    machine: &MachineInfo,
    file: Option<&str>,
    args: &[String],
) -> Result<()> {
    let Some(file) = file.filter(|_| !args.is_empty()) else { return Ok(()) };
    let words: Vec<&str> = std::iter::once(file).chain(args.iter().map(String::as_str)).collect();
    let template: TemplateInfo = client.get(&format!("/v1/template/{}", machine.template))?;
    let unknown = || CliFailure::new("run.arguments", format!("no language {}", template.language));
    let language = stasis_agent::language(&template.language).ok_or_else(unknown)?;
    let order = RunRequest { code: language.arguments(&json!(words)), ..RunRequest::default() };
    let set = session::run(client, machine.name.as_str(), &order, |_| ())?;
    if show::went_well(&set) {
        return Ok(());
    }
    let error = set.outcome.and_then(|outcome| outcome.error).unwrap_or_default();
    let message = format!("the script's arguments were not set: {}: {}", error.name, error.message);
    Err(CliFailure::new("run.arguments", message).hint("see `stasis history`"))
}

/// The machine of that name, or a new one.
fn find(client: &Client, name: Option<&Name>, new: NewMachine) -> Result<MachineInfo> {
    let new = NewMachine { name: name.cloned(), ..new };
    let Some(name) = name else { return making::make(client, &new) };
    match client.get::<MachineInfo>(&format!("/v1/machine/{name}")) {
        Err(CliFailure { exit: Exit::NotFound, .. }) => making::make(client, &new),
        Ok(machine) if new.network.as_ref().is_some_and(|own| *own != machine.network) => {
            let message = format!("machine {name} exists with another network");
            Err(CliFailure::new("machine.other_network", message)
                .hint(format!(
                    "`stasis machine set {name} --network` changes it from the next wake on"
                ))
                .exit(Exit::Conflict))
        }
        other => other,
    }
}

/// Runs an instruction and shows it; the exit code reports success.
pub fn instruct(
    client: &Client,
    machine: &str,
    order: &RunRequest,
    as_json: bool,
) -> Result<ExitCode> {
    show_run(machine, as_json, |each| session::run(client, machine, order, each))
}

/// Shows output as it arrives, and then the end of the instruction.
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
