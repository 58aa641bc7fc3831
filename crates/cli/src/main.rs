//! The `stasis` command: one file per command, and this table of them.

#![forbid(unsafe_code)]

mod bench;
mod failure;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Saves a live process tree as an image, and brings it back in milliseconds.
#[derive(Parser)]
#[command(name = "stasis", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure this build on this machine
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(command) => command.run(),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        ExitCode::from(2)
    })
}
