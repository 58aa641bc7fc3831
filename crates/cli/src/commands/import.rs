//! `stasis import`: a machine out of a file.

use crate::context::Context;
use crate::failure::{At, Result};
use crate::show;
use reqwest::Method;
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
    let client = context.client()?;
    let total = file.metadata().at("look at", &args.file)?.len();
    let what = format!("import {}", args.file.display());
    let transfer = show::Transfer::new(&what, Some(total), context.json);
    let made: Made = client.upload(Method::POST, &format!("/v1/import{query}"), file, &transfer)?;
    drop(transfer);
    match context.json {
        true => show::json(&made.machine),
        false => show::say(made.machine_name.as_str()),
    }
    Ok(ExitCode::SUCCESS)
}
