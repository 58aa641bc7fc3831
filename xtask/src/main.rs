//! Chores of this repository: `cargo xtask tidy` checks the rules of STYLE.md, `cargo xtask deny`
//! holds other people's crates to `deny.toml`, `cargo xtask test` runs all test programs.

#![forbid(unsafe_code)]

mod deny;
mod suite;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy | deny | test [PART OF A NAME]...";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => report(tidy::run(&root())),
        ["deny"] => denied(deny::run(&root())),
        ["test", ref filters @ ..] => tested(suite::run(&root(), filters)),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn denied(checked: std::io::Result<(usize, Vec<String>)>) -> ExitCode {
    match checked {
        Ok((count, findings)) if findings.is_empty() => {
            eprintln!("deny: {count} crates, nothing to say");
            ExitCode::SUCCESS
        }
        Ok((count, findings)) => {
            findings.iter().for_each(|finding| eprintln!("{finding}"));
            eprintln!("deny: {} findings in {count} crates", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("deny: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tested(run: std::io::Result<bool>) -> ExitCode {
    match run {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("test: {error}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> std::path::PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

fn report(checked: std::io::Result<tidy::TidyReport>) -> ExitCode {
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
