//! `stasis export`: writes a machine to a file.

use crate::client::Client;
use crate::context::Context;
use crate::failure::{CliFailure, Exit, PathContext, Result};
use crate::show::{self, Transfer};
use reqwest::Method;
use serde_json::{Value, json};
use stasis_api::Name;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    machine: Name,
    /// File to write; must not exist; `-` writes to standard output
    file: PathBuf,
    /// Include all checkpoints and the log, not only the current state
    #[arg(long)]
    history: bool,
    /// Leave out the template's files, for a host that has them
    #[arg(long)]
    no_root: bool,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let (history, root) = (args.history, !args.no_root);
    let path = format!("/v1/machine/{}/export?history={history}&root={root}", args.machine);
    // its size is unknown before it is packed
    let transfer = Transfer::new(&format!("export {}", args.machine), None, context.json);
    if args.file.as_os_str() == "-" {
        let out = &mut std::io::stdout();
        return receive(&client, &path, out, &args.file, &transfer).map(|()| ExitCode::SUCCESS);
    }
    let mut part = args.file.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    if args.file.exists() {
        return Err(CliFailure::usage(format!("{} already exists", args.file.display())));
    }
    let mut file = File::create(&part).at("write", &part)?;
    let written = receive(&client, &path, &mut file, &part, &transfer)
        .and_then(|()| file.sync_all().at("write", &part));
    drop(transfer);
    if let Err(failure) = written {
        let _ = std::fs::remove_file(&part);
        return Err(failure);
    }
    std::fs::rename(&part, &args.file).at("name", &args.file)?;
    let len = std::fs::metadata(&args.file).map_or(0, |about| about.len());
    match context.json {
        true => show::json(&json!({ "machine": args.machine, "file": args.file, "bytes": len })),
        false => {
            eprintln!("exported {} to {}, {}", args.machine, args.file.display(), show::size(len))
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a machine as it arrives.
fn receive(
    client: &Client,
    path: &str,
    out: &mut dyn Write,
    place: &Path,
    transfer: &Transfer,
) -> Result<()> {
    client.block(async {
        let mut answer = client.send(Method::GET, path, None::<&Value>, true).await?;
        let mut bytes = 0;
        loop {
            match answer.chunk().await {
                Ok(Some(piece)) => {
                    bytes += piece.len();
                    out.write_all(&piece).at("write", place)?;
                    transfer.add(piece.len());
                }
                Ok(None) => return out.flush().at("write", place),
                Err(error) => {
                    let message = format!("the export broke off after {bytes} bytes: {error}");
                    let failure = CliFailure::new("export.truncated", message);
                    return Err(failure.exit(Exit::Unavailable).hint("export it again"));
                }
            }
        }
    })
}
