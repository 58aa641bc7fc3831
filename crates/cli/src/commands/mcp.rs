//! `stasis mcp`: machines for an agent, over standard streams. The keeper does the work; this
//! process carries messages to it and ends with its input.

use crate::client::Keeper;
use crate::context::Context;
use crate::failure::{Failure, Result};
use std::process::ExitCode;

const SETS: [&str; 2] = ["stasis", "forevervm"];

#[derive(clap::Args)]
pub struct Args {
    /// Which tools the agent sees
    #[arg(long, value_name = "SET", default_value = "stasis", value_parser = SETS)]
    tools: String,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    if context.config.text("url").is_some() {
        return Err(Failure::usage("a service speaks MCP itself, at /mcp")
            .hint("give the agent that address and a token instead"));
    }
    // a machine needs the template, which an agent would wait for without knowing why
    let client = context.client()?;
    super::making::template(&client)?;
    let path = if args.tools == "forevervm" { "/mcp/forevervm" } else { "/mcp" };
    let socket = Keeper::of(&context.config)?.socket();
    let done = client.block(stasis_mcp::proxy(&socket, path));
    done.map_err(|error| Failure::new("mcp.proxy", error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
