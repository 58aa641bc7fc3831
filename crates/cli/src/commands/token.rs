//! `stasis token`: who may use a service.

use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table, one_line};
use clap::Subcommand;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Token {
    /// Make a token; it is shown once
    New {
        /// What it is for
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Whose machines it reaches
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        /// What it allows [default: everything of its account]
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
    },
    /// List tokens, without their secrets
    List,
    /// Make a token worthless at once
    Revoke { id: String },
}

impl Token {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client()?;
        match self {
            Token::New { name, account, scopes } => {
                let made: Value = client.post("/v1/token", &wish(name, account, scopes))?;
                match (context.json, made["token"].as_str()) {
                    (false, Some(token)) => show::say(token),
                    _ => show::json(&made),
                }
            }
            Token::List => list(&client.get("/v1/token")?, context.json),
            Token::Revoke { id } => {
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

fn wish(name: Option<String>, account: Option<String>, scopes: Vec<String>) -> Value {
    let mut wish = json!({});
    if let Some(name) = name {
        wish["name"] = name.into();
    }
    if let Some(account) = account {
        wish["account"] = account.into();
    }
    if !scopes.is_empty() {
        wish["scopes"] = scopes.into();
    }
    wish
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
