//! `stasis adopt`: copies variables and files from another machine.

use crate::context::Context;
use crate::failure::{CliFailure, Exit, Result};
use crate::show;
use serde_json::json;
use stasis_api::{Address, Adopted, Name};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Machine to change
    machine: Name,
    /// Machine or checkpoint to copy from
    #[arg(value_name = "FROM[@SEQ]")]
    from: Address,
    /// Variable to copy
    #[arg(long = "var", value_name = "NAME")]
    variables: Vec<String>,
    /// File to copy, or a directory whose changed files to copy
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<String>,
    /// Overwrite names that changed since the machines parted
    #[arg(long)]
    force: bool,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    if args.variables.is_empty() && args.files.is_empty() {
        let failure = CliFailure::usage("no variables or files given");
        return Err(failure.hint("name them with --var and --file"));
    }
    let body = json!({
        "from": args.from, "variables": args.variables, "files": args.files, "force": args.force,
    });
    let path = format!("/v1/machine/{}/adopt", args.machine);
    let adopted: Adopted = context.client()?.post(&path, &body)?;
    match context.json {
        true => show::json(&adopted),
        false => tell(&adopted),
    }
    let whole = adopted.seq.is_some() && adopted.failed.is_empty();
    let refused = adopted.seq.is_none() && !adopted.conflicts.is_empty();
    Ok(match (whole, refused) {
        (true, _) => ExitCode::SUCCESS,
        (_, true) => Exit::Conflict.into(),
        _ => ExitCode::FAILURE,
    })
}

fn tell(adopted: &Adopted) {
    adopted.variables.iter().for_each(|name| show::say(&format!("variable {name}")));
    adopted.files.iter().for_each(|path| show::say(&format!("file /{path}")));
    for (name, why) in &adopted.failed {
        eprintln!("not adopted: {}: {}", show::clean(name, false), show::clean(why, false));
    }
    for one in &adopted.conflicts {
        eprintln!("conflict: {} {}: {}", one.kind, show::clean(&one.name, false), one.why);
    }
    if adopted.seq.is_none() && !adopted.conflicts.is_empty() {
        eprintln!("nothing was adopted; use --force to overwrite");
    }
}
