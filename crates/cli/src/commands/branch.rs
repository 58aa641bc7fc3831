//! `stasis branch`: creates machines that continue from another machine's state.

use super::pairs::{map, pair};
use crate::client::Client;
use crate::context::Context;
use crate::failure::{CliFailure, Result};
use crate::show::{self, one_line};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stasis_api::{Address, BranchEnd, BranchLine, MachineInfo, Name, Network};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Machine, or its state after an instruction, such as `work@3`
    #[arg(value_name = "MACHINE[@SEQ]")]
    address: Address,
    /// Number of branches
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    count: u64,
    /// Name of each branch [default: generated]
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<Name>,
    /// Tag
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Reseed random generators, so that each branch differs
    #[arg(long)]
    reseed: bool,
    /// Network of each branch: none, open or policy:NAME [default: the machine's]
    #[arg(long, value_name = "NETWORK")]
    network: Option<Network>,
    /// Code for a branch to run, one per branch
    #[arg(short = 'c', long = "code", value_name = "CODE")]
    codes: Vec<String>,
    /// Time limit of each branch in seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
}

/// More than a service allows at once, so that it refuses with the limit.
const MOST: u64 = 10_000;

#[derive(Serialize, Deserialize)]
struct Made {
    machines: Vec<MachineInfo>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let least = args.names.len().max(args.codes.len()) as u64;
    let count = if args.count == 1 { args.count.max(least) } else { args.count };
    if !args.names.is_empty() && args.names.len() as u64 != count {
        let message = format!("{count} branches but {} names", args.names.len());
        return Err(CliFailure::usage(message).hint("give one name per branch, or none"));
    }
    let mut body = json!({ "count": count, "tags": map(args.tags), "reseed": args.reseed });
    if let Some(seq) = args.address.seq {
        body["seq"] = seq.into();
    }
    if let Some(network) = args.network {
        body["network"] = json!(network);
    }
    if !args.names.is_empty() {
        body["names"] = json!(args.names);
    }
    let path = format!("/v1/machine/{}/branch", args.address.machine);
    if !args.codes.is_empty() {
        let codes = match args.codes.as_slice() {
            [one] => vec![one; count.min(MOST) as usize],
            several if several.len() as u64 == count => several.iter().collect(),
            several => {
                let message = format!("{count} branches but {} pieces of code", several.len());
                return Err(CliFailure::usage(message).hint("give one for all, or one per branch"));
            }
        };
        let vary: Vec<_> = codes.iter().map(|code| json!({ "code": code })).collect();
        body["vary"] = json!(vary);
        body["stream"] = true.into();
        if let Some(seconds) = args.timeout {
            body["timeout_seconds"] = seconds.into();
        }
        return follow(&context.client()?, &path, &body, context.json);
    }
    let made: Made = context.client()?.post(&path, &body)?;
    match context.json {
        true => show::json(&made),
        false => made.machines.iter().for_each(|machine| show::say(machine.name.as_str())),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints each branch's result as it finishes.
fn follow(client: &Client, path: &str, body: &Value, as_json: bool) -> Result<ExitCode> {
    client.block(async {
        let mut lines = client.lines(Method::POST, path, Some(body)).await?;
        let mut well = true;
        while let Some(line) = lines.next::<BranchLine>().await? {
            if as_json {
                show::say(&json!(line).to_string());
            }
            match line {
                BranchLine::Over => {
                    return Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
                }
                BranchLine::End(end) => {
                    well &= went_well(&end);
                    if !as_json {
                        show::say(&told(&end));
                    }
                }
                BranchLine::Branches { .. } => {}
            }
        }
        Err(CliFailure::new(
            "service.cut_off",
            "the connection broke; `stasis tree` shows the branches",
        ))
    })
}

fn went_well(end: &BranchEnd) -> bool {
    let outcome = end.instruction.as_ref().and_then(|end| end.outcome.as_ref());
    end.error.is_none() && outcome.is_some_and(|outcome| outcome.error.is_none())
}

/// One line for one branch: its name, and its value, error, or last line of output.
fn told(end: &BranchEnd) -> String {
    let outcome = end.instruction.as_ref().and_then(|end| end.outcome.as_ref());
    let failed = outcome.and_then(|outcome| outcome.error.as_ref());
    let said = match (&end.error, failed) {
        (Some(error), _) => format!("error[{}]: {}", error.code, error.message),
        (_, Some(error)) => format!("{}: {}", error.name, error.message),
        _ => {
            let value = outcome.and_then(|outcome| outcome.value.clone());
            value.or(end.output.last().map(|chunk| chunk.data.clone())).unwrap_or_default()
        }
    };
    format!("{}  {}", end.machine, one_line(&said, 160)).trim_end().to_owned()
}
