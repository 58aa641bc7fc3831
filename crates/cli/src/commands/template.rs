//! `stasis template`: what machines start from.

use super::making;
use crate::client::Client;
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
pub enum Template {
    /// Build a template from a recipe, or find that it is there
    Build {
        /// The recipe [default: Python with the usual libraries]
        #[arg(value_name = "FILE")]
        recipe: Option<PathBuf>,
    },
    /// List templates
    List,
    /// Show one template and its recipe
    Inspect { name: String },
    /// Remove a template that no machine stands on
    Rm { name: String },
}

#[derive(Serialize, Deserialize)]
struct All {
    templates: Vec<stasis_api::Template>,
}

impl Template {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        // a recipe that is wrong needs no service to be told so
        let recipe = match &self {
            Template::Build { recipe: Some(path) } => Some(Recipe::read(path)?),
            _ => None,
        };
        let client = context.client()?;
        match self {
            Template::Build { .. } => {
                build(&client, &recipe.unwrap_or_else(Recipe::default_python), context.json)?;
            }
            Template::List => list(&client, context.json)?,
            Template::Inspect { name } => inspect(&client, &name, context.json)?,
            Template::Rm { name } => {
                let removed = client.delete(&format!("/v1/template/{}", encoded(&name)))?;
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
    let template: stasis_api::Template = client.get(&format!("/v1/template/{}", encoded(name)))?;
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

/// A name as part of a path; whatever is no plain letter is escaped.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_stay_one_part_of_a_path() {
        assert_eq!(super::encoded("py-3.12_a"), "py-3.12_a");
        assert_eq!(super::encoded("a/b?c ä"), "a%2Fb%3Fc%20%C3%A4");
    }
}
