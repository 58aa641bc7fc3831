//! `stasis secret`: keys that machines use without having them.

use super::pairs;
use crate::client::escape;
use crate::context::Context;
use crate::failure::{CliFailure, Result};
use crate::show::{self, Table, age};
use clap::Subcommand;
use stasis_api::{
    MachineSecrets, Name, OauthClient, SecretInfo, SecretKind, SecretList, SetSecret,
};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum SecretCommand {
    /// Create or replace a secret; the value comes from standard input or a file
    Set {
        /// Letters, digits and _; code finds the placeholder in STASIS_SECRET_NAME
        name: String,
        /// Host whose requests get the value: NAME, *.NAME or NAME:PORT; may be repeated
        #[arg(long = "host", value_name = "HOST", required = true)]
        hosts: Vec<String>,
        /// File with the value; `-` is standard input
        #[arg(default_value = "-")]
        file: PathBuf,
        /// Get tokens here with client credentials; the value is the client's secret
        #[arg(long, value_name = "URL", requires = "client_id")]
        oauth_token_url: Option<String>,
        /// Client that asks for tokens
        #[arg(long, value_name = "ID", requires = "oauth_token_url")]
        client_id: Option<String>,
        /// Scope to ask for
        #[arg(long, value_name = "SCOPE", requires = "oauth_token_url")]
        scope: Option<String>,
    },
    /// List secrets, without their values; with a machine, those that its policies grant
    Ls { machine: Option<Name> },
    /// Remove a secret
    Rm { name: String },
}

impl SecretCommand {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        match self {
            SecretCommand::Set { name, hosts, file, oauth_token_url, client_id, scope } => {
                let value = pairs::code(None, Some(&file.to_string_lossy()))?;
                let secret = match (oauth_token_url, client_id) {
                    (Some(token_url), Some(client_id)) => {
                        let client_secret = value.trim_end_matches(['\n', '\r']).to_owned();
                        let refresh_buffer_secs = None;
                        let oauth = OauthClient {
                            token_url,
                            client_id,
                            client_secret,
                            scope,
                            refresh_buffer_secs,
                        };
                        SetSecret { oauth: Some(oauth), hosts, ..SetSecret::default() }
                    }
                    _ => SetSecret { value: Some(value), hosts, ..SetSecret::default() },
                };
                set(&name, &secret, context)
            }
            SecretCommand::Ls { machine: None } => list(context),
            SecretCommand::Ls { machine: Some(machine) } => granted(&machine, context),
            SecretCommand::Rm { name } => {
                let answer =
                    context.client()?.delete(&format!("/v1/secrets/{}", escape::part(&name)))?;
                match context.json {
                    true => show::json(&answer),
                    false => eprintln!("removed {name}"),
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn set(name: &str, secret: &SetSecret, context: &Context) -> Result<ExitCode> {
    if name.is_empty() {
        return Err(CliFailure::usage("a secret needs a name"));
    }
    let path = format!("/v1/secrets/{}", escape::part(name));
    let set: SecretInfo = context.client()?.put(&path, secret)?;
    match context.json {
        true => show::json(&set),
        false => eprintln!("set {name} for {}; code uses ${}", set.hosts.join(", "), set.variable),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(context: &Context) -> Result<ExitCode> {
    let all: SecretList = context.client()?.get("/v1/secrets")?;
    if context.json {
        show::json(&all);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["NAME", "KIND", "CHANGED", "HOSTS", "VARIABLE"]);
    for secret in all.secrets {
        let kind = match secret.kind {
            SecretKind::Value => "value",
            SecretKind::Oauth => "oauth",
        };
        let changed = age(secret.changed_at);
        let hosts = secret.hosts.join(", ");
        table.row([secret.name, kind.to_owned(), changed, hosts, secret.variable]);
    }
    table.print();
    Ok(ExitCode::SUCCESS)
}

fn granted(machine: &Name, context: &Context) -> Result<ExitCode> {
    let path = format!("/v1/machine/{machine}/secrets");
    let all: MachineSecrets = context.client()?.get(&path)?;
    if context.json {
        show::json(&all);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["NAME", "HOSTS", "VARIABLE", "PLACEHOLDER"]);
    for secret in all.secrets {
        let hosts = secret.hosts.join(", ");
        table.row([secret.name, hosts, secret.variable, secret.placeholder]);
    }
    table.print();
    Ok(ExitCode::SUCCESS)
}
