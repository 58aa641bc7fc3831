//! Making machines, and on first use what they are made from.
//!
//!   new ──► template.not_found? ──► build the default template ──► new

use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::show::Progress;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use stasis_api::{ErrorBody, Machine, NewMachine, Template};
use stasis_template::Recipe;

#[derive(Deserialize)]
struct Made {
    machine: Machine,
}

/// Makes a machine. Builds the default template first if that is what is missing.
pub fn make(client: &Client, new: &NewMachine) -> Result<Machine> {
    let ask = || client.post::<Made>("/v1/machine/new", new).map(|made| made.machine);
    match ask() {
        Err(failure) if failure.code == "template.not_found" && new.template.is_none() => {
            eprintln!("first use: building the default template");
            build(client, &Recipe::default_python())?;
            ask()
        }
        other => other,
    }
}

/// Builds the default template if it is missing.
pub fn template(client: &Client) -> Result<()> {
    let health: serde_json::Value = client.get("/health")?;
    if health["templates_ready"] == true {
        return Ok(());
    }
    eprintln!("first use: building the default template");
    build(client, &Recipe::default_python()).map(drop)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Step { step: String, done: u64, total: Option<u64> },
    Say { say: String },
    Template { template: Box<Template> },
    Error { error: ErrorBody },
}

/// Builds a template and shows how far it is.
pub fn build(client: &Client, recipe: &Recipe) -> Result<Template> {
    let mut progress = Progress::new(&format!("template {}", recipe.name));
    let built = client.block(follow(client, recipe, &mut progress));
    progress.end(if built.is_ok() { "ready" } else { "failed" });
    built
}

async fn follow(client: &Client, recipe: &Recipe, progress: &mut Progress) -> Result<Template> {
    let body = json!({ "recipe": recipe.print() });
    let mut lines = client.lines(Method::POST, "/v1/template/build", Some(&body)).await?;
    while let Some(line) = lines.next::<Line>().await? {
        match line {
            Line::Step { step, done, total } => progress.step(&step, done, total),
            Line::Say { say } => progress.say(&say),
            Line::Template { template } => return Ok(*template),
            Line::Error { error } => return Err(Failure::answered(500, error)),
        }
    }
    Err(Failure::new("service.cut_off", "the service broke off while it built the template")
        .hint("the same command again goes on with what was downloaded"))
}
