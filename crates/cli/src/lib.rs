//! The `stasis` command: one file per command, and this table of them.
//!
//!   arguments ─► configuration ─► command ─► client ─► daemon of the data directory, or a service
//!
//! Commands write data to standard output and messages to standard error. A failure is
//! `error[code]: message` with a hint, and an exit code by its kind (`failure::Exit`).

#![forbid(unsafe_code)]

mod client;
mod commands;
mod config;
mod context;
mod doctor;
mod logging;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod reference;
mod repl;
mod session;
mod show;

use clap::Parser;
use context::{Context, Global};
use failure::CliFailure;
use stasis_command::failure;
use std::process::ExitCode;

/// Stateful code machines: they keep their variables, files and processes until you remove them.
#[derive(Parser)]
#[command(name = "stasis", version, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: commands::CliCommand,
}

/// Runs the command that the process's arguments name.
pub fn run() -> ExitCode {
    commands::answer_shell();
    if let Some(words) = commands::mcp_v8::called() {
        return commands::mcp_v8::serve(&words).unwrap_or_else(|failure| {
            eprintln!("{failure}");
            failure.exit.into()
        });
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let json = cli.global.json;
    let signed_in = cli.command.is_signed_in();
    let done = Context::new(cli.global, signed_in).and_then(|context| cli.command.run(&context));
    done.unwrap_or_else(|failure| {
        if json {
            println!("{}", failure.json());
        } else {
            eprintln!("{failure}");
        }
        failure.exit.into()
    })
}

/// The message for an invalid command, or a request for help.
fn refuse(error: &clap::Error) -> ExitCode {
    let asked = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if !asked || !error.use_stderr() {
        // a closed pipe is not an error
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1));
    }
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let said = lines.collect::<Vec<_>>().join(" ");
    let message = said.trim_start_matches("error: ");
    let failure = CliFailure::usage(message).hint("see --help");
    println!("{}", failure.json());
    failure.exit.into()
}
