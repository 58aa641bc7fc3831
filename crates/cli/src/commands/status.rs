//! `stasis status`: shows whether a daemon runs, and the machines in memory. Starts nothing.

use super::{machine, watch};
use crate::client::{Client, Daemon};
use crate::context::Context;
use crate::failure::Result;
use crate::show;
use serde_json::{Value, json};
use stasis_api::{MachineInfo, State};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Refresh on every change, while a daemon or service runs
    #[arg(long)]
    watch: bool,
}

pub fn run(args: &Args, context: &Context) -> Result<ExitCode> {
    let (client, about) = match context.config.text("url") {
        Some(url) => (Some(context.client()?), json!({ "url": url })),
        None => daemon(context)?,
    };
    let Some(client) = client else { return Ok(print(&about, context.json)) };
    let look = || service(&client, about.clone()).map(|status| print(&status, context.json));
    match args.watch {
        true => watch::again(&client, String::new(), || look().map(drop)),
        false => look(),
    }
}

fn print(status: &Value, as_json: bool) -> ExitCode {
    match as_json {
        true => show::json(status),
        false => show::object(status),
    }
    ExitCode::SUCCESS
}

/// The running daemon, if any, and its data.
fn daemon(context: &Context) -> Result<(Option<Client>, Value)> {
    let daemon = Daemon::of(&context.config)?;
    let about = json!({ "data_dir": daemon.data_dir(), "running": false });
    let Some(running) = daemon.running() else { return Ok((None, about)) };
    let about = json!({ "data_dir": daemon.data_dir(), "running": true, "pid": running.pid });
    Ok((Some(Client::local(daemon)?), about))
}

fn service(client: &Client, mut about: Value) -> Result<Value> {
    let health: Value = client.get("/health")?;
    about["version"] = health["version"].clone();
    about["templates_ready"] = health["templates_ready"].clone();
    let machines = machine::all(client, json!({}))?;
    let count =
        |state| machines.iter().filter(|machine: &&MachineInfo| machine.state == state).count();
    about["machines"] = json!({
        "all": machines.len(),
        "ready": count(State::Ready),
        "running": count(State::Running),
        "swapped": count(State::Swapped),
        "pinned": machines.iter().filter(|machine| machine.pinned.is_some()).count(),
    });
    Ok(about)
}
