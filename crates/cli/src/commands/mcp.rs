//! `stasis mcp`: an MCP server over standard streams. The daemon or a remote service does the work;
//! this process forwards messages and exits at the end of its input.

mod clients;
mod edit;
mod install;

use crate::context::Context;
use crate::failure::{CliFailure, Result};
use clap::Subcommand;
use std::process::ExitCode;
use std::sync::Arc;

const SETS: [&str; 4] = ["stasis", "all", "forevervm", "forkd"];

#[derive(clap::Args)]
pub struct Args {
    /// Which tools the agent sees: the ten most used, all of them, or those of another server
    #[arg(long, value_name = "SET", default_value = "stasis", value_parser = SETS, global = true)]
    tools: String,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Add Stasis to a client's settings
    Install(install::Args),
    /// Remove Stasis from a client's settings
    Uninstall(install::Args),
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    match &args.command {
        Some(Command::Install(own)) => install::install(own, &args.tools, context),
        Some(Command::Uninstall(own)) => install::uninstall(own, context),
        None => carry(&args.tools, context),
    }
}

fn carry(tools: &str, context: &Context) -> Result<ExitCode> {
    let client = Arc::new(context.client()?);
    if context.config.text("url").is_none() {
        // a machine needs the template, and an agent would wait for it without knowing why
        super::making::template(&client)?;
    }
    let upstream = client.upstream(&format!("/mcp/{tools}"));
    let done = client.block(stasis_mcp::proxy(upstream));
    done.map_err(|error| CliFailure::new("mcp.proxy", error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
