//! `stasis label`: labels a checkpoint.

use crate::context::Context;
use crate::failure::{CliFailure, Result};
use crate::show;
use serde_json::json;
use stasis_api::{Address, History};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Checkpoint, such as `work@3`
    #[arg(value_name = "MACHINE@SEQ")]
    address: Address,
    /// Label; leave it out to remove the label
    label: Option<String>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let Address { machine, seq: Some(seq) } = &args.address else {
        let message = format!("no checkpoint of `{}` given", args.address.machine);
        return Err(CliFailure::usage(message).hint("write it as `machine@seq`"));
    };
    let body = json!({ "seq": seq, "label": args.label });
    let history: History =
        context.client()?.post(&format!("/v1/machine/{machine}/label"), &body)?;
    if context.json {
        show::json(&history);
    }
    Ok(ExitCode::SUCCESS)
}
