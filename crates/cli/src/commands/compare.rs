//! `stasis compare`: shows the differences between two machines or checkpoints.

use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table, clean};
use serde_json::json;
use stasis_api::{Address, Change, Comparison, Output, Var};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Machine, or its state after an instruction, such as `work@3`
    #[arg(value_name = "LEFT[@SEQ]")]
    left: Address,
    #[arg(value_name = "RIGHT[@SEQ]")]
    right: Address,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let body = json!({ "left": args.left, "right": args.right });
    let found: Comparison = context.client()?.post("/v1/compare", &body)?;
    match context.json {
        true => show::json(&found),
        false => print(&found),
    }
    Ok(ExitCode::SUCCESS)
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Added => "added",
        Change::Removed => "removed",
        Change::Changed => "changed",
        Change::Unknown => "not known",
    }
}

fn print(found: &Comparison) {
    if found.variables.is_empty() && found.files.is_empty() && found.outputs.is_empty() {
        eprintln!("{} and {} are equal", found.left, found.right);
    }
    if !found.variables.is_empty() {
        let mut table = Table::new(["VARIABLE", "CHANGE", "LEFT", "RIGHT"]);
        for one in &found.variables {
            let change = word(one.change).to_owned();
            table.row([one.name.clone(), change, seen(&one.left), seen(&one.right)]);
        }
        table.print();
    }
    for one in &found.files {
        let sizes = format!("{} -> {}", size(one.left_size), size(one.right_size));
        let path = clean(&one.path, false);
        show::say(&format!("file /{path}  {}  {sizes} bytes", word(one.change)));
        for line in one.diff.iter().flat_map(|diff| diff.lines().skip(2)) {
            show::say(&format!("    {}", clean(line, false)));
        }
    }
    for one in &found.outputs {
        side("<", one.left.as_ref());
        side(">", one.right.as_ref());
    }
    found.cut.iter().for_each(|what| eprintln!("omitted: {what}"));
}

fn seen(var: &Option<Var>) -> String {
    let Some(var) = var else { return "-".into() };
    let shape = var.shape.as_ref().map(|shape| format!(" {shape}")).unwrap_or_default();
    format!("{}{shape}: {}", var.kind, var.repr)
}

fn size(size: Option<u64>) -> String {
    size.map_or_else(|| "-".to_owned(), |size| size.to_string())
}

/// One side's instruction: its code and result.
fn side(mark: &str, output: Option<&Output>) {
    let Some(output) = output else { return };
    show::say(&format!("{mark} [{}] {}", output.seq, show::one_line(&output.code, 70)));
    let lines = output.output.lines().chain(output.result.as_deref());
    lines.for_each(|line| show::say(&format!("{mark}     {}", clean(line, false))));
}
