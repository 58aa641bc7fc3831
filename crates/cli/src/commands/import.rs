//! `stasis import`: a machine out of a file.

use crate::context::Context;
use crate::failure::{At, Result};
use crate::show;
use stasis_api::{Made, Name};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// A file that `stasis export` wrote
    file: PathBuf,
    /// Its name here [default: the one it had]
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let file = std::fs::File::open(&args.file).at("open", &args.file)?;
    let query = args.name.map(|name| format!("?name={name}")).unwrap_or_default();
    let path = format!("/v1/import{query}");
    let made: Made = context.client()?.upload(reqwest::Method::POST, &path, file)?;
    match context.json {
        true => show::json(&made.machine),
        false => show::say(made.machine_name.as_str()),
    }
    Ok(ExitCode::SUCCESS)
}
