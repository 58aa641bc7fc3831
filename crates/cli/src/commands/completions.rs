//! `stasis completions`: a script for the shell.

use crate::failure::Result;
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "stasis", &mut script);
    crate::show::say(String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::SUCCESS)
}
