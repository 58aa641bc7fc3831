//! `stasis status`: whether a keeper runs, and what is in memory. Starts nothing.

use super::machine;
use crate::client::{Client, Keeper};
use crate::context::Context;
use crate::failure::Result;
use crate::show;
use serde_json::{Value, json};
use stasis_api::{Machine, State};
use std::process::ExitCode;

pub fn run(context: &Context) -> Result<ExitCode> {
    let status = match context.config.text("url") {
        Some(url) => service(&context.client()?, json!({ "url": url }))?,
        None => keeper(context)?,
    };
    match context.json {
        true => show::json(&status),
        false => show::object(&status),
    }
    Ok(ExitCode::SUCCESS)
}

fn keeper(context: &Context) -> Result<Value> {
    let keeper = Keeper::of(&context.config)?;
    let about = json!({ "data_dir": keeper.data_dir(), "running": false });
    let Some(running) = keeper.running() else { return Ok(about) };
    let about = json!({ "data_dir": keeper.data_dir(), "running": true, "pid": running.pid });
    service(&Client::local(keeper)?, about)
}

fn service(client: &Client, mut about: Value) -> Result<Value> {
    let health: Value = client.get("/health")?;
    about["version"] = health["version"].clone();
    about["templates_ready"] = health["templates_ready"].clone();
    let machines = machine::all(client, json!({}))?;
    let count = |state| machines.iter().filter(|machine: &&Machine| machine.state == state).count();
    about["machines"] = json!({
        "all": machines.len(),
        "ready": count(State::Ready),
        "running": count(State::Running),
        "swapped": count(State::Swapped),
        "pinned": machines.iter().filter(|machine| machine.pinned.is_some()).count(),
    });
    Ok(about)
}
