//! `stasis explore`: runs candidates on branches and keeps the best.

use super::pairs;
use crate::context::Context;
use crate::failure::{CliFailure, Result};
use crate::show::{self, Table, one_line};
use serde_json::{Value, json};
use stasis_api::{Address, Explored};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Machine, or its state after an instruction, such as `work@3`
    #[arg(value_name = "MACHINE[@SEQ]")]
    address: Address,
    /// Code of a candidate
    #[arg(short = 'c', long = "code", value_name = "CODE")]
    codes: Vec<String>,
    /// File with the code of a candidate
    #[arg(long = "file", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<String>,
    /// Expression that scores a candidate; higher is better
    #[arg(long, value_name = "EXPRESSION")]
    score: String,
    /// Lower is better
    #[arg(long)]
    minimize: bool,
    /// Keep the other branches and the original machine
    #[arg(long)]
    keep: bool,
    /// Reseed random generators, so that each branch differs
    #[arg(long)]
    reseed: bool,
    /// Time limit of each branch in seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let mut codes = args.codes.clone();
    for path in &args.files {
        codes.push(pairs::code(None, Some(path))?);
    }
    if codes.is_empty() {
        return Err(CliFailure::usage("no candidates").hint("give each with --code or --file"));
    }
    let candidates: Vec<Value> = codes.iter().map(|code| json!({ "code": code })).collect();
    let mut body = json!({
        "candidates": candidates, "score": args.score, "minimize": args.minimize,
        "keep": args.keep, "reseed": args.reseed, "seq": args.address.seq,
    });
    if let Some(seconds) = args.timeout {
        body["timeout_seconds"] = seconds.into();
    }
    let path = format!("/v1/machine/{}/explore", args.address.machine);
    let explored: Explored = context.client()?.post(&path, &body)?;
    match context.json {
        true => show::json(&explored),
        false => print(&explored, &codes),
    }
    Ok(if explored.best.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(explored: &Explored, codes: &[String]) {
    let mut table = Table::new(["SCORE", "MACHINE", "CODE"]);
    for one in &explored.candidates {
        let score = one.score.map(|score| score.to_string());
        let code = codes.get(one.index as usize).map(|code| one_line(code, 60));
        table.row([
            score.unwrap_or_else(|| "-".into()),
            one.machine.to_string(),
            code.unwrap_or_default(),
        ]);
    }
    table.print();
    for one in &explored.candidates {
        if let Some(error) = &one.error {
            eprintln!("candidate {}: {}", one.index, one_line(error, 200));
        }
    }
    match (&explored.best, &explored.former) {
        (Some(best), Some(former)) => {
            show::say(&format!("{} is the best; the original is now {}", best.name, former.name));
        }
        (Some(best), None) => {
            show::say(&format!("{} continues from the best candidate", best.name))
        }
        _ => eprintln!("no candidate could be scored; the machine is unchanged"),
    }
}
