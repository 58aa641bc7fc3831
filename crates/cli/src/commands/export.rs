//! `stasis export`: a machine as one file.

use crate::context::Context;
use crate::failure::{At, Failure, Result};
use crate::show::{self, Transfer};
use reqwest::Method;
use serde_json::{Value, json};
use stasis_api::Name;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    machine: Name,
    /// The file to write; it must not be there
    file: PathBuf,
    /// With all checkpoints and the log; otherwise only the state now
    #[arg(long)]
    history: bool,
    /// Without the files of its template: smaller, for a host that has them
    #[arg(long)]
    no_root: bool,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let (history, root) = (args.history, !args.no_root);
    let path = format!("/v1/machine/{}/export?history={history}&root={root}", args.machine);
    let mut part = args.file.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    if args.file.exists() {
        return Err(Failure::usage(format!("{} is there already", args.file.display())));
    }
    // how much there is of it nobody knows before it is packed
    let transfer = Transfer::new(&format!("export {}", args.machine), None, context.json);
    let written = client.block(async {
        let mut answer = client.send(Method::GET, &path, None::<&Value>, true).await?;
        let mut file = File::create(&part).at("write", &part)?;
        let cut = |error: reqwest::Error| {
            Failure::new("service.cut_off", format!("the machine broke off: {error}"))
        };
        while let Some(piece) = answer.chunk().await.map_err(cut)? {
            file.write_all(&piece).at("write", &part)?;
            transfer.add(piece.len());
        }
        file.sync_all().at("write", &part)
    });
    drop(transfer);
    if let Err(failure) = written {
        let _ = std::fs::remove_file(&part);
        return Err(failure);
    }
    std::fs::rename(&part, &args.file).at("name", &args.file)?;
    let len = std::fs::metadata(&args.file).map_or(0, |about| about.len());
    match context.json {
        true => show::json(&json!({ "machine": args.machine, "file": args.file, "bytes": len })),
        false => eprintln!("{} is in {}, {} KiB", args.machine, args.file.display(), len / 1024),
    }
    Ok(ExitCode::SUCCESS)
}
