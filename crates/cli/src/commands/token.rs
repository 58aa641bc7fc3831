//! `stasis token`: creates, lists and revokes tokens.

use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table, one_line};
use clap::Subcommand;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it once
    New {
        /// Purpose of the token
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Account whose machines it can access
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        /// Scope it grants [default: all scopes of its account]
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
    },
    /// List tokens, without their secrets
    List,
    /// Revoke a token at once
    Revoke { id: String },
}

impl TokenCommand {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client()?;
        match self {
            TokenCommand::New { name, account, scopes } => {
                let made: Value = client.post("/v1/token", &request(name, account, scopes))?;
                match (context.json, made["token"].as_str()) {
                    (false, Some(token)) => show::say(token),
                    _ => show::json(&made),
                }
            }
            TokenCommand::List => list(&client.get("/v1/token")?, context.json),
            TokenCommand::Revoke { id } => {
                let id: String = id.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
                let answer = client.delete(&format!("/v1/token/{id}"))?;
                match context.json {
                    true => show::json(&answer),
                    false => eprintln!("revoked {id}"),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn request(name: Option<String>, account: Option<String>, scopes: Vec<String>) -> Value {
    let mut request = json!({});
    if let Some(name) = name {
        request["name"] = name.into();
    }
    if let Some(account) = account {
        request["account"] = account.into();
    }
    if !scopes.is_empty() {
        request["scopes"] = scopes.into();
    }
    request
}

fn list(answer: &Value, as_json: bool) {
    if as_json {
        show::json(answer);
        return;
    }
    let mut table = Table::new(["ID", "ACCOUNT", "NAME", "SCOPES", "CREATED"]);
    let none = Vec::new();
    for token in answer["tokens"].as_array().unwrap_or(&none) {
        table.row(["id", "account", "name", "scopes", "created_at"].map(|key| word(&token[key])));
    }
    table.print();
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => one_line(text, 60),
        Value::Array(list) => list.iter().map(word).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}
