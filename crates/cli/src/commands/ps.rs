//! `stasis ps`: lists the machines in memory and their running instructions.

use super::machine;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table, age, one_line};
use serde::Deserialize;
use serde_json::json;
use stasis_api::{Instruction, MachineInfo, State, Status};
use std::process::ExitCode;

/// A queue this long has its running instruction at its head.
const LOOK_BACK: u64 = 1000;

#[derive(Deserialize)]
struct Instructions {
    instructions: Vec<Instruction>,
}

pub fn run(context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let mut rows = Vec::new();
    for machine in machine::all(&client, json!({}))? {
        match machine.state {
            State::Swapped => {}
            State::Ready => rows.push((machine, None)),
            State::Running => {
                let running = running(&client, &machine)?;
                rows.push((machine, running));
            }
        }
    }
    match context.json {
        true => {
            let all = rows.iter().map(|(machine, runs)| json!({"machine": machine, "runs": runs}));
            show::json(&json!({ "in_memory": all.collect::<Vec<_>>() }));
        }
        false => table(&rows),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[(MachineInfo, Option<Instruction>)]) {
    let mut table = Table::new(["NAME", "STATE", "SEQ", "FOR", "CODE"]);
    for (machine, runs) in rows {
        let runs = runs.as_ref();
        table.row([
            machine.name.to_string(),
            machine::state_word(machine),
            runs.map(|runs| runs.seq.to_string()).unwrap_or_default(),
            runs.map(|runs| age(runs.started_at.unwrap_or(runs.queued_at))).unwrap_or_default(),
            runs.map(|runs| one_line(&runs.code, 60)).unwrap_or_default(),
        ]);
    }
    table.print();
}

/// The running instruction of a machine; `None` if it has ended meanwhile.
fn running(client: &Client, machine: &MachineInfo) -> Result<Option<Instruction>> {
    let from = machine.instructions.saturating_sub(LOOK_BACK);
    let path = format!("/v1/machine/{}/exec?from={from}&limit={LOOK_BACK}", machine.name);
    let Instructions { instructions } = client.get(&path)?;
    Ok(instructions.into_iter().find(|one| one.status == Status::Running))
}
