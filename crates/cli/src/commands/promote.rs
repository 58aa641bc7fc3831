//! `stasis promote`: replaces a machine by its branch.

use crate::context::Context;
use crate::failure::Result;
use crate::show;
use serde_json::json;
use stasis_api::{Name, Promoted};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// The branch
    branch: Name,
    /// Machine to replace [default: the branch's parent]
    #[arg(long, value_name = "MACHINE")]
    onto: Option<Name>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let path = format!("/v1/machine/{}/promote", args.branch);
    let promoted: Promoted = context.client()?.post(&path, &json!({ "onto": args.onto }))?;
    match context.json {
        true => show::json(&promoted),
        false => {
            let (new, old) = (&promoted.machine.name, &promoted.former.name);
            show::say(&format!("{old} is now called {new}, and the old {new} is called {old}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
