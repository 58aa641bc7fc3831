//! Chores of this repository: `cargo xtask tidy` checks the rules of STYLE.md.

#![forbid(unsafe_code)]

mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => report(tidy::run(&root())),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn root() -> std::path::PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

fn report(checked: std::io::Result<tidy::Report>) -> ExitCode {
    match checked {
        Ok(report) if report.findings.is_empty() => {
            eprintln!("tidy: {} files, nothing to say", report.files);
            ExitCode::SUCCESS
        }
        Ok(report) => {
            for finding in &report.findings {
                eprintln!("{finding}");
            }
            eprintln!("tidy: {} findings in {} files", report.findings.len(), report.files);
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}
