//! Samples in pages are programs: each page's blocks of a language are run one after another, and
//! what is promised beside them has to be said.
//!
//!   python, ts   against the service; a comment beside `print` or `console.log` is what it prints
//!   sh           with a home and machines of their own; `#=> text` is what the line prints
//!   console      not run, since it changes the host; its commands have to exist
//!   json         has to be JSON
//!   rust         run by rustdoc, or an excerpt
//!
//! A block of any other kind but `text` is an error: nothing gets into a page unread.

use crate::{JAVASCRIPT, PYTHON, WORK, output, root, service};
use libtest_mimic::Failed;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const KINDS: [&str; 9] =
    ["python", "ts", "sh", "console", "json", "rust,no_run", "text", "toml", "http"];

/// Pages with samples: all there are.
pub fn pages() -> Vec<PathBuf> {
    let sdks = ["python", "js", "rust"].map(|name| root().join("sdk").join(name).join("README.md"));
    let mut pages = vec![root().join("README.md")];
    pages.extend(sdks);
    let mut dirs = vec![root().join("docs")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => dirs.push(path),
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
    let name = page.with_extension("").display().to_string().replace('/', "-");
    let (python, script) = (program(&text, "python"), program(&text, "ts"));
    let shell = program(&text, "sh");
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
    if !shell.is_empty() {
        compare(&shell, |line| Some(line.split_once("#=> ")?.1.trim()), &in_shell(&name, &shell)?)?;
    }
    for block in blocks(&text).filter(|(kind, _)| *kind == "json") {
        serde_json::from_str::<serde_json::Value>(&block.1).map_err(|error| format!("{error}"))?;
    }
    commands_exist(&(program(&text, "console") + &shell))
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
fn program(page: &str, language: &str) -> String {
    blocks(page).filter(|(kind, _)| *kind == language).map(|(_, body)| body).collect()
}

/// Runs a page's commands in a home of its own, with machines of its own.
fn in_shell(name: &str, script: &str) -> Result<String, Failed> {
    let home = WORK.path().join(format!("home{name}"));
    std::fs::create_dir_all(home.join(".local/share"))?;
    let data = stasis_testbed::data_dir();
    symlink(data.path(), home.join(".local/share/stasis"))?;
    let bin = stasis_testbed::program();
    let bin = bin.parent().ok_or("a program has a directory")?.display().to_string();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    let command = |line: &str| {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", line]).env_clear().current_dir(&home);
        command.env("PATH", &path).env("HOME", &home).env("STASIS_TIMEOUT_SECONDS", "300");
        command
    };
    let said = output(&mut command(script));
    // whatever became of it, nobody keeps the directory afterwards
    let _ = output(&mut command("stasis stop"));
    said
}

/// Commands of pages that are read, not run, have to be ours.
fn commands_exist(script: &str) -> Result<(), Failed> {
    let lines = script.lines().map(|line| line.trim_start_matches("sudo "));
    for line in lines.filter_map(|line| line.strip_prefix("stasis ")) {
        let word = line.split(' ').find(|word| word.chars().all(|c| c.is_ascii_lowercase()));
        let Some(word) = word else { continue };
        output(Command::new(stasis_testbed::program()).args([word, "--help"]))?;
    }
    Ok(())
}

/// Lines that are promised have to be said, in this order; others may be between them.
fn compare<'a>(
    program: &'a str,
    promise: impl Fn(&'a str) -> Option<&'a str>,
    said: &str,
) -> Result<(), Failed> {
    let mut lines = said.lines();
    for promised in program.lines().filter_map(promise) {
        if !lines.any(|line| line == promised) {
            return Err(format!("`{promised}` was not said, or not there:\n{said}").into());
        }
    }
    Ok(())
}

/// What a comment of this kind beside a line that prints says.
fn printed(mark: &'static str) -> impl Fn(&str) -> Option<&str> {
    move |line| {
        let calls = ["print(", "console.log("];
        let prints = calls.iter().any(|call| line.trim_start().starts_with(call));
        let at = line.rfind(mark).filter(|_| prints)?;
        Some(line[at + mark.len()..].trim())
    }
}
