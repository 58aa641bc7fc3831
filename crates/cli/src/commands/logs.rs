//! `stasis logs`: prints the output and result of an instruction, also long after it ran.

use super::run;
use crate::client::Client;
use crate::context::Context;
use crate::failure::{CliFailure, Result};
use crate::session;
use crate::show::{self, show_chunk};
use serde::Deserialize;
use serde_json::json;
use stasis_api::{Address, Chunk, Instruction, MachineInfo, Status};
use std::process::ExitCode;

/// Lines requested per call.
const PAGE: u64 = 1000;

#[derive(clap::Args)]
pub struct Args {
    /// Instruction, such as `work@3`; without a number, the machine's last one
    #[arg(value_name = "MACHINE[@SEQ]")]
    address: Address,
    /// Stream the output until the instruction ends
    #[arg(short, long)]
    follow: bool,
}

#[derive(Deserialize)]
struct Outputs {
    chunks: Vec<Chunk>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let machine = args.address.machine.as_str();
    let seq = match args.address.seq {
        Some(seq) => seq,
        None => last(&client, machine)?,
    };
    if args.follow {
        return run::show_run(machine, context.json, |each| {
            session::follow(&client, machine, seq, each)
        });
    }
    let path = format!("/v1/machine/{machine}/exec/{seq}");
    let instruction: Instruction = client.get(&path)?;
    if is_over(&instruction) {
        return run::show_run(machine, context.json, |each| {
            outputs(&client, &path, each)?;
            Ok(instruction)
        });
    }
    so_far(&client, machine, &instruction, context.json)?;
    if !context.json {
        eprintln!("{machine}@{seq} is still running; `stasis logs -f {machine}@{seq}` follows it");
    }
    Ok(ExitCode::SUCCESS)
}

fn is_over(instruction: &Instruction) -> bool {
    !matches!(instruction.status, Status::Queued | Status::Running)
}

/// Shows the output of an instruction that has not ended.
fn so_far(client: &Client, machine: &str, instruction: &Instruction, as_json: bool) -> Result<()> {
    let mut all = Vec::new();
    let path = format!("/v1/machine/{machine}/exec/{}", instruction.seq);
    outputs(client, &path, &mut |chunk: &Chunk| match as_json {
        true => all.push(chunk.clone()),
        false => show_chunk(chunk),
    })?;
    if as_json {
        show::json(&json!({ "machine": machine, "instruction": instruction, "outputs": all }));
    }
    Ok(())
}

/// All current lines.
fn outputs(client: &Client, path: &str, each: &mut dyn FnMut(&Chunk)) -> Result<()> {
    let mut from = 0;
    loop {
        let page: Outputs = client.get(&format!("{path}/output?from={from}&limit={PAGE}"))?;
        let Some(last) = page.chunks.last() else { return Ok(()) };
        from = last.seq + 1;
        page.chunks.iter().for_each(&mut *each);
    }
}

fn last(client: &Client, machine: &str) -> Result<u64> {
    let machine: MachineInfo = client.get(&format!("/v1/machine/{machine}"))?;
    machine.instructions.checked_sub(1).ok_or_else(|| {
        CliFailure::usage(format!("`{}` has not run any instruction yet", machine.name))
            .hint("run an instruction first")
    })
}
