//! `stasis store`: what is on disk.

use crate::context::Context;
use crate::failure::{Exit, Result};
use crate::show;
use clap::Subcommand;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Store {
    /// Say how much is kept, and how much of it is shared
    Stats,
    /// Free what nothing refers to
    Gc,
    /// Read everything and say what is damaged; exit code 1 if something is
    Check {
        /// Put what is damaged aside
        #[arg(long)]
        mend: bool,
    },
}

impl Store {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client()?;
        let answer: Value = match self {
            Store::Stats => client.get("/v1/store/stats")?,
            Store::Gc => client.post("/v1/store/gc", &json!({}))?,
            Store::Check { mend } => client.post("/v1/store/check", &json!({ "mend": mend }))?,
        };
        match context.json {
            true => show::json(&answer),
            false => show::object(&answer),
        }
        let damaged = answer["findings"].as_array().is_some_and(|list| !list.is_empty());
        Ok(if damaged { Exit::Failed.into() } else { ExitCode::SUCCESS })
    }
}
