//! `stasis tools`: the upstream servers of this host, and logging in to them.

use super::serve::tool_servers;
use crate::context::Context;
use crate::failure::{CliFailure, Exit, Result};
use crate::show::{self, Table};
use serde_json::json;
use stasis_machine::{ServerTransport, ToolServer};
use std::process::ExitCode;

#[derive(clap::Subcommand)]
pub enum ToolsCommand {
    /// List the tool servers of this host, from the file that the setting `tools` names
    Ls,
    /// Allow the use of a tool server in a browser
    Login(LoginArgs),
}

#[derive(clap::Args)]
pub struct LoginArgs {
    /// Name of the server
    server: String,
}

pub fn run(command: ToolsCommand, context: &Context) -> Result<ExitCode> {
    let servers = tool_servers(&context.config)?;
    match command {
        ToolsCommand::Ls => list(&servers, context),
        ToolsCommand::Login(args) => {
            let found = servers.iter().find(|server| server.name == args.server);
            let server = found.ok_or_else(|| missing(&args.server, &servers))?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| failed(&error.to_string()))?;
            runtime.block_on(login(server))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn missing(name: &str, servers: &[ToolServer]) -> CliFailure {
    let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    let said = format!("there is no tool server `{name}`; there are: {}", names.join(", "));
    CliFailure::new("tool.no_server", said)
        .exit(Exit::NotFound)
        .hint("the setting `tools` names the file with the servers")
}

fn failed(said: &str) -> CliFailure {
    CliFailure::new("tool.login", format!("cannot log in: {said}"))
}

/// Shows a person the address to open, and waits until it was allowed.
pub async fn login(server: &ToolServer) -> Result<()> {
    let show = |address: &str| {
        eprintln!("Open this address in a browser on this host to allow `{}`:", server.name);
        eprintln!("{address}");
    };
    let file = server.login(show).await.map_err(|said| failed(&said))?;
    eprintln!("allowed; the tokens are in {}", file.display());
    Ok(())
}

fn list(servers: &[ToolServer], context: &Context) {
    let one = |server: &ToolServer| {
        let kind = match server.transport {
            ServerTransport::Stdio { .. } => "stdio",
            ServerTransport::Http { .. } => "http",
        };
        let login = match (server.browser_auth(), server.needs_login()) {
            (None, _) => "not needed",
            (Some(_), Ok(false)) => "done",
            (Some(_), _) => "needed",
        };
        (server.name.clone(), kind, login)
    };
    let all: Vec<_> = servers.iter().map(one).collect();
    if context.json {
        let row = |(name, kind, login): &(String, &str, &str)| {
            let mut row = json!({ "name": name, "transport": kind });
            row["login"] = (*login).into();
            row
        };
        show::json(&json!({ "servers": all.iter().map(row).collect::<Vec<_>>() }));
        return;
    }
    let mut table = Table::new(["NAME", "TRANSPORT", "LOGIN"]);
    for (name, kind, login) in all {
        table.row([name, kind.to_owned(), login.to_owned()]);
    }
    table.print();
}
