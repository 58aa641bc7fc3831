//! Creates machines, and the default template on first use.
//!
//!   new ──► template.not_found? ──► build the template, if it is one of ours ──► new

use crate::client::Client;
use crate::failure::{CliFailure, Result};
use crate::show::BuildProgress;
use clap::builder::{PossibleValue, PossibleValuesParser};
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use stasis_api::{ErrorBody, MachineInfo, NewMachine, TemplateInfo};
use stasis_template::Recipe;

#[derive(Deserialize)]
struct Made {
    machine: MachineInfo,
}

/// Creates a machine. Builds its template first if that is missing and its recipe is built in.
pub fn make(client: &Client, new: &NewMachine) -> Result<MachineInfo> {
    let ask = || client.post::<Made>("/v1/machine/new", new).map(|made| made.machine);
    match ask() {
        Err(failure) if failure.code == "template.not_found" => {
            let (recipe, which) = match &new.template {
                None => (Recipe::default_template(), "the default template".to_owned()),
                Some(name) => {
                    let recipe = Recipe::built_in(name).ok_or(failure)?;
                    (recipe, format!("the template {name}"))
                }
            };
            eprintln!("first use: building {which}");
            build(client, &recipe)?;
            ask()
        }
        other => other,
    }
}

/// The languages of machines, as values of an option.
pub fn languages() -> PossibleValuesParser {
    PossibleValuesParser::new(
        stasis_agent::LANGUAGES
            .iter()
            .map(|language| PossibleValue::new(language.name()).aliases(language.aliases())),
    )
}

/// The template of a language has its name.
pub fn template_of(language: String) -> Option<String> {
    stasis_agent::language(&language).map(|language| language.name().to_owned())
}

/// Builds the default template if it is missing.
pub fn template(client: &Client) -> Result<()> {
    let health: serde_json::Value = client.get("/health")?;
    if health["templates_ready"] == true {
        return Ok(());
    }
    eprintln!("first use: building the default template");
    build(client, &Recipe::default_template()).map(drop)
}

/// Builds a template whose recipe is built in, if it is missing.
pub fn built_in(client: &Client, name: &str) -> Result<()> {
    match client.get::<TemplateInfo>(&format!("/v1/template/{name}")) {
        Err(failure) if failure.code == "template.not_found" => {
            let recipe = Recipe::built_in(name).ok_or(failure)?;
            eprintln!("first use: building the template {name}");
            build(client, &recipe).map(drop)
        }
        other => other.map(drop),
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Step { step: String, done: u64, total: Option<u64> },
    Say { say: String },
    Template { template: Box<TemplateInfo> },
    Error { error: ErrorBody },
}

/// Builds a template and shows progress.
pub fn build(client: &Client, recipe: &Recipe) -> Result<TemplateInfo> {
    let mut progress = BuildProgress::new(&format!("template {}", recipe.name));
    let built = client.block(follow(client, recipe, &mut progress));
    progress.end(if built.is_ok() { "ready" } else { "failed" });
    built
}

async fn follow(
    client: &Client,
    recipe: &Recipe,
    progress: &mut BuildProgress,
) -> Result<TemplateInfo> {
    let body = json!({ "recipe": recipe.print() });
    let mut lines = client.lines(Method::POST, "/v1/template/build", Some(&body)).await?;
    while let Some(line) = lines.next::<Line>().await? {
        match line {
            Line::Step { step, done, total } => progress.step(&step, done, total),
            Line::Say { say } => progress.say(&say),
            Line::Template { template } => return Ok(*template),
            Line::Error { error } => return Err(CliFailure::answered(500, error)),
        }
    }
    Err(CliFailure::new("service.cut_off", "the connection broke during the template build")
        .hint("run the command again; downloads are kept"))
}
