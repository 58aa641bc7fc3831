//! Samples in pages are programs: each page's blocks of a language are run one after another, and
//! what is promised beside them has to be said.
//!
//!   python, ts   against the service; a comment beside `print` or `console.log` is what it prints
//!   rust         the same, built as a user of the crate builds it
//!   sh, console  on a host of the page's own (shell.rs); `#=> text` is what the line prints
//!   json         has to be JSON
//!   toml         read by the tests of the crate that reads it
//!
//! `...` in what is promised is whatever is said there. A block of any other kind but `text` is an
//! error: nothing gets into a page unread.

use crate::{JAVASCRIPT, PYTHON, RUST, WORK, output, root, service, shell};
use libtest_mimic::Failed;
use std::path::{Path, PathBuf};

const KINDS: [&str; 8] = ["python", "ts", "sh", "console", "json", "rust,no_run", "text", "toml"];

/// Pages with samples: all there are.
pub fn pages() -> Vec<PathBuf> {
    let sdks = ["python", "js", "rust"].map(|name| root().join("sdk").join(name).join("README.md"));
    let mut pages = sdks.to_vec();
    let mut dirs = vec![root(), root().join("docs")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() && dir != root() => dirs.push(path),
                path if path.extension().is_some_and(|end| end == "md") => pages.push(path),
                _ => {}
            }
        }
    }
    pages.sort();
    pages
}

pub fn check(page: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(page)?;
    kinds_are_known(&text)?;
    let place = page.strip_prefix(root())?.display().to_string();
    let name = place.replace(['/', '.'], "-");
    let (python, script) = (program(&text, "python"), program(&text, "ts"));
    if !python.is_empty() {
        let file = WORK.path().join(format!("sample{name}.py"));
        std::fs::write(&file, &python)?;
        compare(&python, printed("# "), &output(service(&mut PYTHON.run(&file)))?)?;
    }
    if !script.is_empty() {
        let file = format!("sample{name}.ts");
        JAVASCRIPT.write(&file, &script);
        compare(&script, printed("// "), &output(service(&mut JAVASCRIPT.deno(&file)))?)?;
    }
    if !program(&text, "rust,no_run").is_empty() {
        output(service(&mut RUST.sample()))?;
    }
    let commands = || blocks(&text).filter(|(kind, _)| ["sh", "console"].contains(kind));
    if commands().next().is_some() {
        let script: String = commands().map(|(_, body)| body).collect();
        let said = shell::run(&place, commands())?;
        compare(&script, |line| Some(line.split_once("#=> ")?.1.trim()), &said)?;
    }
    for (_, body) in blocks(&text).filter(|(kind, _)| *kind == "json") {
        serde_json::from_str::<serde_json::Value>(&body)?;
    }
    Ok(())
}

fn kinds_are_known(text: &str) -> Result<(), Failed> {
    match blocks(text).find(|(kind, _)| !KINDS.contains(kind)) {
        Some((kind, _)) => Err(format!("a block of kind {kind:?}: nobody runs it").into()),
        None => Ok(()),
    }
}

/// Blocks with their kinds, in order.
fn blocks(page: &str) -> impl Iterator<Item = (&str, String)> {
    page.split("\n```").collect::<Vec<_>>().into_iter().skip(1).step_by(2).map(|block| {
        let (kind, body) = block.split_once('\n').unwrap_or((block, ""));
        (kind, format!("{body}\n"))
    })
}

/// All blocks of a language as one program.
pub fn program(page: &str, language: &str) -> String {
    blocks(page).filter(|(kind, _)| *kind == language).map(|(_, body)| body).collect()
}

/// Lines that are promised have to be said, in this order; others may be between them.
fn compare<'a>(
    program: &'a str,
    promise: impl Fn(&'a str) -> Option<&'a str>,
    said: &str,
) -> Result<(), Failed> {
    let mut lines = said.lines();
    for promised in program.lines().filter_map(promise) {
        if !lines.any(|line| fits(promised, line)) {
            return Err(format!("`{promised}` was not said, or not there:\n{said}").into());
        }
    }
    Ok(())
}

/// Whether a line is the promised one, with anything where that has `...`.
fn fits(promised: &str, line: &str) -> bool {
    let Some((head, last)) = promised.rsplit_once("...") else { return promised == line };
    let mut parts = head.split("...");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// The comment of this kind beside a line that prints.
fn printed(mark: &'static str) -> impl Fn(&str) -> Option<&str> {
    move |line| {
        let calls = ["print(", "console.log("];
        let prints = calls.iter().any(|call| line.trim_start().starts_with(call));
        let at = line.rfind(mark).filter(|_| prints)?;
        Some(line[at + mark.len()..].trim())
    }
}
