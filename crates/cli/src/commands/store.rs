//! `stasis store`: statistics, collection and checks of the store.

use crate::context::Context;
use crate::failure::{Exit, Result};
use crate::show;
use clap::Subcommand;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum StoreCommand {
    /// Show the size of the store, and how much is shared
    Stats,
    /// Remove unreferenced data
    Gc,
    /// Verify all data in use; exit code 1 on damage
    Check {
        /// Repair damaged pages from intact copies
        #[arg(long)]
        repair: bool,
    },
}

impl StoreCommand {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client()?;
        let answer: Value = match self {
            StoreCommand::Stats => client.get("/v1/store/stats")?,
            StoreCommand::Gc => client.post("/v1/store/gc", &json!({}))?,
            StoreCommand::Check { repair } => {
                client.post("/v1/store/check", &json!({ "repair": repair }))?
            }
        };
        match context.json {
            true => show::json(&answer),
            false => show::object(&answer),
        }
        let damaged = answer["findings"].as_array().is_some_and(|list| !list.is_empty());
        Ok(if damaged { Exit::Failed.into() } else { ExitCode::SUCCESS })
    }
}
