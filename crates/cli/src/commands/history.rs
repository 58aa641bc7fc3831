//! `stasis history`: what a machine was given, and which states can be gone back to.

use crate::client::Client;
use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table, one_line};
use serde::Deserialize;
use serde_json::{Value, json};
use stasis_api::{Instruction, Name, Status};
use std::collections::BTreeSet;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    machine: Name,
    /// How many, counted from the newest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: u64,
}

#[derive(Deserialize)]
struct Instructions {
    instructions: Vec<Instruction>,
}

#[derive(Deserialize)]
struct Checkpoints {
    checkpoints: Vec<Value>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    print(&client, args.machine.as_str(), args.limit, context.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the last instructions of a machine.
pub fn print(client: &Client, machine: &str, limit: u64, as_json: bool) -> Result<()> {
    let about: stasis_api::Machine = client.get(&format!("/v1/machine/{machine}"))?;
    let from = about.instructions.saturating_sub(limit);
    let path = format!("/v1/machine/{machine}/exec?from={from}&limit={limit}");
    let Instructions { instructions } = client.get(&path)?;
    let Checkpoints { checkpoints } = client.get(&format!("/v1/machine/{machine}/history"))?;
    if as_json {
        show::json(&json!({ "instructions": instructions, "checkpoints": checkpoints }));
        return Ok(());
    }
    let kept: BTreeSet<u64> =
        checkpoints.iter().filter_map(|point| point["seq"].as_u64()).collect();
    let mut table = Table::new(["SEQ", "STATUS", "MS", "CHECKPOINT", "CODE"]);
    for instruction in instructions {
        table.row(row(&instruction, kept.contains(&instruction.seq), machine));
    }
    table.print();
    Ok(())
}

fn row(instruction: &Instruction, kept: bool, machine: &str) -> [String; 5] {
    let runtime = instruction.outcome.as_ref().map(|outcome| format!("{:.1}", outcome.runtime_ms));
    [
        instruction.seq.to_string(),
        status(instruction).to_owned(),
        runtime.unwrap_or_default(),
        if kept { format!("{machine}@{}", instruction.seq) } else { String::new() },
        one_line(&instruction.code, 60),
    ]
}

fn status(instruction: &Instruction) -> &'static str {
    let error = instruction.outcome.as_ref().is_some_and(|outcome| outcome.error.is_some());
    match instruction.status {
        _ if instruction.rolled_back => "undone",
        Status::Queued => "queued",
        Status::Running => "running",
        Status::Done if error => "failed",
        Status::Done => "done",
        Status::Interrupted => "interrupted",
        Status::Cancelled => "cancelled",
        Status::Lost => "lost",
    }
}
