//! `stasis history`: lists a machine's instructions and checkpoints.

use super::watch;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table, age, one_line};
use serde::Deserialize;
use serde_json::json;
use stasis_api::{History, Instruction, Name, Point};
use std::collections::BTreeMap;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    machine: Name,
    /// Number of entries, newest first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: u64,
    /// Also list the files each checkpoint changed
    #[arg(long)]
    files: bool,
    /// Refresh on every change
    #[arg(long)]
    watch: bool,
}

#[derive(Deserialize)]
struct Instructions {
    instructions: Vec<Instruction>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let machine = args.machine.as_str();
    let look = || show_all(&client, machine, args.limit, args.files, context.json);
    if args.watch {
        return watch::again(&client, format!("&machine={machine}"), look);
    }
    look()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the last instructions of a machine.
pub fn print(client: &Client, machine: &str, limit: u64) -> Result<()> {
    show_all(client, machine, limit, false, false)
}

fn show_all(client: &Client, machine: &str, limit: u64, files: bool, as_json: bool) -> Result<()> {
    let about: stasis_api::MachineInfo = client.get(&format!("/v1/machine/{machine}"))?;
    let from = about.instructions.saturating_sub(limit);
    let path = format!("/v1/machine/{machine}/exec?from={from}&limit={limit}");
    let Instructions { instructions } = client.get(&path)?;
    let path = format!("/v1/machine/{machine}/history?files={files}");
    let History { checkpoints } = client.get(&path)?;
    if as_json {
        show::json(&json!({ "instructions": instructions, "checkpoints": checkpoints }));
        return Ok(());
    }
    let kept: BTreeMap<u64, Point> =
        checkpoints.into_iter().map(|point| (point.seq, point)).collect();
    let head = ["SEQ", "WHEN", "STATUS", "MS", "CHECKPOINT", "SIZE", "CHANGED", "CODE"];
    let mut table = Table::new(head);
    for instruction in instructions {
        table.row(row(&instruction, kept.get(&instruction.seq), machine));
    }
    table.print();
    Ok(())
}

fn row(instruction: &Instruction, kept: Option<&Point>, machine: &str) -> [String; 8] {
    let runtime = instruction.outcome.as_ref().map(|outcome| format!("{:.1}", outcome.runtime_ms));
    [
        instruction.seq.to_string(),
        age(instruction.finished_at.unwrap_or(instruction.queued_at)),
        status(instruction).to_owned(),
        runtime.unwrap_or_default(),
        kept.map(|point| checkpoint(machine, point)).unwrap_or_default(),
        kept.map(|point| show::size(point.bytes)).unwrap_or_default(),
        kept.map(changed).unwrap_or_default(),
        one_line(&instruction.code, 60),
    ]
}

fn checkpoint(machine: &str, point: &Point) -> String {
    let label = point.label.as_ref().map(|label| format!(" ({label})"));
    format!("{machine}@{}{}", point.seq, label.unwrap_or_default())
}

/// Variables and, if known, files.
fn changed(point: &Point) -> String {
    let mut all = one_line(&point.variables.join(" "), 30);
    if let Some(files) = &point.files {
        let count = files.added + files.changed + files.removed;
        let names = one_line(&files.names.join(" "), 40);
        if count > 0 {
            all += &format!(" {}: {names}", show::count_of(count, "file"));
        }
    }
    all.trim().to_owned()
}

fn status(instruction: &Instruction) -> &'static str {
    match instruction.rolled_back {
        true => "undone",
        false => instruction.status.word(),
    }
}
