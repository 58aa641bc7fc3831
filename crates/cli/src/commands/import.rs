//! `stasis import`: reads a machine from a file.

use crate::context::Context;
use crate::failure::{PathContext, Result};
use crate::show;
use reqwest::Method;
use stasis_api::{CreatedMachine, Name};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// File written by `stasis export`; `-` reads standard input
    file: PathBuf,
    /// Name of the imported machine [default: its old name]
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let file = match args.file.as_os_str() == "-" {
        true => std::io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => File::open(&args.file),
    };
    let file = file.at("open", &args.file)?;
    let query = args.name.map(|name| format!("?name={name}")).unwrap_or_default();
    let client = context.client()?;
    let about = file.metadata().at("look at", &args.file)?;
    let total = about.is_file().then_some(about.len());
    let what = format!("import {}", args.file.display());
    let transfer = show::Transfer::new(&what, total, context.json);
    let made: CreatedMachine =
        client.upload(Method::POST, &format!("/v1/import{query}"), file, &transfer)?;
    drop(transfer);
    match context.json {
        true => show::json(&made.machine),
        false => show::say(made.machine_name.as_str()),
    }
    Ok(ExitCode::SUCCESS)
}
