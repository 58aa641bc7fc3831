//! `stasis approvals`, `stasis approve` and `stasis deny`: calls of tools that wait for a person.

use crate::client::escape;
use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table, age, one_line};
use stasis_api::{ApprovalAnswer, ApprovalChoice, ApprovalList, ToolCallInfo};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct ApprovalListArgs {
    /// Also list calls that are answered or over
    #[arg(long)]
    all: bool,
    /// List calls of this machine only
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
}

#[derive(clap::Args)]
pub struct ApprovalAnswerArgs {
    /// Number of the approval, from `stasis approvals`
    id: u64,
    /// A sentence for the code; the error of a denied call contains it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

pub fn list(args: &ApprovalListArgs, context: &Context) -> Result<ExitCode> {
    let machine = args.machine.as_deref();
    let machine = machine.map_or(String::new(), |name| format!("&machine={}", escape::part(name)));
    let path = format!("/v1/approvals?all={}{machine}", args.all);
    let found: ApprovalList = context.client()?.get(&path)?;
    if context.json {
        show::json(&found);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["ID", "MACHINE", "TOOL", "STATE", "CALLED", "ARGUMENTS"]);
    for call in found.approvals {
        table.row([
            call.id.to_string(),
            format!("{}@{}", call.machine, call.seq),
            format!("{}.{}", call.server, one_line(&call.tool, 60)),
            call.state.word().to_owned(),
            age(call.called_at),
            one_line(&call.arguments, 60),
        ]);
    }
    table.print();
    Ok(ExitCode::SUCCESS)
}

pub fn answer(
    answer: ApprovalChoice,
    args: ApprovalAnswerArgs,
    context: &Context,
) -> Result<ExitCode> {
    let body = ApprovalAnswer { answer, note: args.note };
    let call: ToolCallInfo =
        context.client()?.post(&format!("/v1/approvals/{}", args.id), &body)?;
    match context.json {
        true => show::json(&call),
        false => eprintln!("{} {}.{}", call.state.word(), call.server, one_line(&call.tool, 60)),
    }
    Ok(ExitCode::SUCCESS)
}
