//! The `stasis` command: one file per command, and this table of them.
//!
//!   arguments ─► configuration ─► command ─► client ─► keeper of the data directory, or a service
//!
//! Standard output is data, standard error is talk. A failure is `error[code]: message` with a
//! hint, and an exit code by its kind (`failure::Exit`).

#![forbid(unsafe_code)]

mod bench;
mod client;
mod commands;
mod config;
mod context;
mod doctor;
mod failure;
#[cfg(test)]
mod reference;
mod repl;
mod session;
mod show;

use clap::Parser;
use context::{Context, Global};
use std::process::ExitCode;

/// Stateful code machines: they keep their variables, files and processes until you remove them.
#[derive(Parser)]
#[command(name = "stasis", version, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
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
