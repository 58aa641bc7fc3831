//! `stasis template`: builds, lists and removes templates.

use super::making;
use crate::client::{Client, escape};
use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table, age};
use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stasis_template::Recipe;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum TemplateCommand {
    /// Build a template from a recipe, unless it is up to date
    Build {
        /// Recipe [default: Python with common libraries]
        #[arg(value_name = "FILE")]
        recipe: Option<PathBuf>,
    },
    /// Print the recipe of the default template, as a starting point
    Sample,
    /// List templates
    List,
    /// Show one template and its recipe
    Inspect { name: String },
    /// Remove a template that no machine uses
    Rm { name: String },
}

#[derive(Serialize, Deserialize)]
struct All {
    templates: Vec<stasis_api::TemplateInfo>,
}

impl TemplateCommand {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        // an invalid recipe is reported without a service
        let recipe = match &self {
            TemplateCommand::Build { recipe: Some(path) } => Some(Recipe::read(path)?),
            TemplateCommand::Sample => {
                show::say(Recipe::sample().trim_end());
                return Ok(ExitCode::SUCCESS);
            }
            _ => None,
        };
        let client = context.client()?;
        match self {
            // done above: it needs no service
            TemplateCommand::Sample => {}
            TemplateCommand::Build { .. } => {
                build(&client, &recipe.unwrap_or_else(Recipe::default_template), context.json)?;
            }
            TemplateCommand::List => list(&client, context.json)?,
            TemplateCommand::Inspect { name } => inspect(&client, &name, context.json)?,
            TemplateCommand::Rm { name } => {
                let removed = client.delete(&format!("/v1/template/{}", escape::part(&name)))?;
                match context.json {
                    true => show::json(&removed),
                    false => eprintln!("removed {name}"),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn build(client: &Client, recipe: &Recipe, as_json: bool) -> Result<()> {
    let template = making::build(client, recipe)?;
    match as_json {
        true => show::json(&template),
        false => show::say(&format!("{}  {}", template.name, template.digest)),
    }
    Ok(())
}

fn list(client: &Client, as_json: bool) -> Result<()> {
    let all: All = client.get("/v1/template")?;
    if as_json {
        show::json(&all);
        return Ok(());
    }
    let mut table = Table::new(["NAME", "DIGEST", "LANGUAGE", "AGE"]);
    for template in all.templates {
        let digest: String = template.digest.chars().take(12).collect();
        let language = format!("{} {}", template.language, template.version);
        table.row([template.name, digest, language, age(template.created_at)]);
    }
    table.print();
    Ok(())
}

fn inspect(client: &Client, name: &str, as_json: bool) -> Result<()> {
    let template: stasis_api::TemplateInfo =
        client.get(&format!("/v1/template/{}", escape::part(name)))?;
    if as_json {
        show::json(&template);
        return Ok(());
    }
    let mut fields = json!(template);
    if let Some(fields) = fields.as_object_mut() {
        fields.remove("recipe");
    }
    show::object(&fields);
    show::say(&format!("\n{}", template.recipe.trim_end()));
    Ok(())
}
