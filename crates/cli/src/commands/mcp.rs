//! `stasis mcp`: machines for an agent, over standard streams. The keeper, or a service elsewhere,
//! does the work; this process carries messages to it and ends with its input.

mod clients;
mod edit;
mod install;

use crate::context::Context;
use crate::failure::{Failure, Result};
use clap::Subcommand;
use std::process::ExitCode;
use std::sync::Arc;

const SETS: [&str; 3] = ["stasis", "forevervm", "forkd"];

#[derive(clap::Args)]
pub struct Args {
    /// Which tools the agent sees
    #[arg(long, value_name = "SET", default_value = "stasis", value_parser = SETS, global = true)]
    tools: String,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Put an entry into a client's settings
    Install(install::Args),
    /// Take the entry out again
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
        // a machine needs the template, which an agent would wait for without knowing why
        super::making::template(&client)?;
    }
    let upstream = client.upstream(&format!("/mcp/{tools}"));
    let done = client.block(stasis_mcp::proxy(upstream));
    done.map_err(|error| Failure::new("mcp.proxy", error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
