//! `stasis completions`: prints a shell script that asks this program for completions, so that
//! machine names are completed too.

use crate::context::{Context, Global};
use crate::failure::{CliFailure, Result};
use crate::show;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use serde_json::json;
use std::process::ExitCode;

/// The variable by which the script names its shell.
const VARIABLE: &str = "STASIS_COMPLETE";
/// Arguments that are machines, in any position.
const MACHINES: [&str; 7] = ["machine", "address", "left", "right", "from", "branch", "onto"];
/// Commands whose `name` or `names` is an existing machine.
const NAMED: [&str; 6] = ["get", "set", "rm", "swap", "wake", "disk"];

#[derive(clap::Args)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let shell = args.shell.to_string();
    let mut script = Vec::new();
    let written = Shells::builtins()
        .completer(&shell)
        .map(|shell| shell.write_registration(VARIABLE, "stasis", "stasis", "stasis", &mut script));
    match written {
        Some(Ok(())) => show::say(String::from_utf8_lossy(&script).trim_end()),
        _ => return Err(CliFailure::usage(format!("no completion script for {shell}"))),
    }
    Ok(ExitCode::SUCCESS)
}

/// Answers a shell's completion request and exits.
pub fn answer() {
    CompleteEnv::with_factory(|| with_machines(crate::Cli::command(), true))
        .var(VARIABLE)
        .complete();
}

/// The same command, with candidates for every machine argument.
fn with_machines(command: Command, is_above: bool) -> Command {
    let named = NAMED.contains(&command.get_name());
    let own_machines = is_above || !["template", "token"].contains(&command.get_name());
    let command = command.mut_args(|arg| match is_machine(&arg, named) {
        true => arg.add(ArgValueCandidates::new(machines)),
        false => arg,
    });
    match own_machines {
        true => command.mut_subcommands(|command| with_machines(command, false)),
        false => command,
    }
}

fn is_machine(arg: &Arg, named: bool) -> bool {
    let id = arg.get_id().as_str();
    MACHINES.contains(&id) || (named && ["name", "names"].contains(&id))
}

/// Names of machines; none, if they cannot be listed.
fn machines() -> Vec<CompletionCandidate> {
    let context = Context::new(Global::default(), true);
    let listed = context.and_then(|context| super::machine::all(&context.client()?, json!({})));
    let all = listed.unwrap_or_default().into_iter();
    all.map(|machine| CompletionCandidate::new(machine.name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_machines_are_completed_as_machines() {
        let command = crate::Cli::command();
        let of = |path: &[&str]| {
            let last = path
                .iter()
                .fold(&command, |command, name| command.find_subcommand(name).expect("a command"));
            let named = NAMED.contains(&last.get_name());
            let ids = last.get_arguments().filter(|arg| is_machine(arg, named));
            ids.map(|arg| arg.get_id().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["repl"]), ["machine"]);
        assert_eq!(of(&["compare"]), ["left", "right"]);
        assert_eq!(of(&["machine", "set"]), ["name"]);
        assert_eq!(of(&["rm"]), ["names"]);
        assert_eq!(of(&["promote"]), ["branch", "onto"]);
        assert!(of(&["machine", "new"]).is_empty() && of(&["import"]).is_empty());
    }
}
