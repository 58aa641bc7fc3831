//! `stasis peek`: inspects an earlier state without changing anything.

use crate::client::{Client, escape};
use crate::context::Context;
use crate::failure::{CliFailure, Result};
use crate::show::{self, Table};
use reqwest::Method;
use serde_json::Value;
use stasis_api::{Address, FileKind, FileViews, MachineInfo, VarList};
use std::io::Write;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// State, such as `work@3`; without a number, the last checkpoint
    #[arg(value_name = "MACHINE[@SEQ]")]
    address: Address,
    /// File to print or directory to list [default: list the variables]
    path: Option<String>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let machine = &args.address.machine;
    let seq = match args.address.seq {
        Some(seq) => seq,
        None => last(&client, machine.as_str())?,
    };
    let base = format!("/v1/machine/{machine}/at/{seq}");
    match &args.path {
        None => vars(&client, &base, context.json)?,
        Some(path) => file(&client, &base, path, context.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn last(client: &Client, machine: &str) -> Result<u64> {
    let machine: MachineInfo = client.get(&format!("/v1/machine/{machine}"))?;
    let seq = machine.checkpoint.and_then(|checkpoint| checkpoint.seq);
    seq.ok_or_else(|| {
        CliFailure::usage(format!("`{}` has no checkpoint yet", machine.name))
            .hint("run an instruction first")
    })
}

fn vars(client: &Client, base: &str, as_json: bool) -> Result<()> {
    let list: VarList = client.get(&format!("{base}/vars"))?;
    if as_json {
        show::json(&list);
        return Ok(());
    }
    let mut table = Table::new(["NAME", "TYPE", "SHAPE", "SIZE", "VALUE"]);
    for var in list.vars {
        let bytes = var.bytes.map(show::size);
        let (shape, bytes) = (var.shape.unwrap_or_default(), bytes.unwrap_or_default());
        table.row([var.name, var.kind, shape, bytes, var.repr]);
    }
    table.print();
    Ok(())
}

fn file(client: &Client, base: &str, path: &str, as_json: bool) -> Result<()> {
    let query = format!("path={}", escape::path(path));
    let files: Result<FileViews> = client.get(&format!("{base}/files?{query}"));
    match files {
        Ok(list) if as_json => show::json(&list),
        Ok(list) => table(list),
        Err(failure) if failure.code != "file.not_found" => return Err(failure),
        // not a directory: perhaps a file
        Err(_) => {
            let path = format!("{base}/file?{query}");
            let bytes = client.block(async {
                let answer = client.send(Method::GET, &path, None::<&Value>, true).await?;
                answer.bytes().await.map_err(|error| {
                    CliFailure::new("service.cut_off", format!("the connection broke: {error}"))
                })
            })?;
            let _ = std::io::stdout().write_all(&bytes);
        }
    }
    Ok(())
}

fn table(list: FileViews) {
    let mut table = Table::new(["MODE", "SIZE", "CHANGED", "PATH"]);
    for one in list.files {
        let slash = if one.kind == FileKind::Directory { "/" } else { "" };
        let at = one.modified_at.to_string();
        table.row([
            format!("{:04o}", one.mode),
            show::size(one.size),
            at.split('.').next().unwrap_or_default().to_owned(),
            format!("{}{slash}", one.path),
        ]);
    }
    table.print();
}
