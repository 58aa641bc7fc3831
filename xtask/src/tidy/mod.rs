//! The rules of STYLE.md that a program can check.
//!
//!   every file     text    no notes to self, no paths of one machine, no large blobs
//!   Rust files     rust    module docs, line width, where `unsafe` may be, dead files
//!                  languages  only the seam names one
//!                  names   every visible type has a name of its own
//!                  sizes   functions and files, with exceptions listed by name
//!   documents      paths   files they name exist
//!                  prose   paragraphs are wrapped; sentences name their subjects
//!   the workspace  arrows  which crate may use which
//!
//! Each rule is a pure function from text to findings. Only this file reads the disk.

mod arrows;
mod exceptions;
mod languages;
mod names;
mod paths;
mod prose;
mod rust;
mod sizes;
#[cfg(test)]
mod tests;
mod text;
mod tokens;

use std::fmt;
use std::io;
use std::path::Path;

/// Names below which nothing is ours.
const NOT_OURS: [&str; 7] =
    [".git", ".dev", "target", "node_modules", "__pycache__", "corpus", "artifacts"];

/// One file of the repository, its path relative to the root.
pub struct SourceFile {
    pub path: String,
    pub bytes: Vec<u8>,
}

impl SourceFile {
    /// The contents, or nothing if they are not text.
    fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// A broken rule, and where. Line 0 is the file as a whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

pub struct TidyReport {
    pub files: usize,
    pub findings: Vec<Finding>,
}

/// Checks the repository at `root`.
pub fn run(root: &Path) -> io::Result<TidyReport> {
    let mut sources = Vec::new();
    collect(root, "", &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    let mut findings = check(&sources);
    findings.extend(arrows::check(&arrows::read(root)?));
    Ok(TidyReport { files: sources.len(), findings })
}

fn check(sources: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut long = Vec::new();
    let mut modules = rust::Modules::default();
    let mut types = Vec::new();
    for source in sources {
        findings.extend(text::check(source));
        findings.extend(prose::check(source));
        let Some(text) = source.text() else { continue };
        modules.add_manifest(&source.path, text);
        if !source.is_rust() {
            continue;
        }
        findings.extend(languages::check(&source.path, text));
        match tokens::parse(text) {
            Ok(tokens) => {
                findings.extend(rust::check(&source.path, text, &tokens));
                long.extend(sizes::measure(&source.path, text, &tokens));
                modules.add(&source.path, &tokens);
                types.extend(names::declared(&source.path, &tokens));
            }
            Err(line) => findings.push(Finding::new(&source.path, line, "this is not Rust")),
        }
    }
    findings.extend(sizes::check(&long, exceptions::LONG));
    findings.extend(modules.dead());
    findings.extend(names::check(&types));
    findings.extend(text::check_readme(sources));
    findings.extend(paths::check(sources));
    findings
}

fn collect(folder: &Path, prefix: &str, sources: &mut Vec<SourceFile>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if NOT_OURS.contains(&name.as_str()) {
            continue;
        }
        let (kind, path) = (entry.file_type()?, format!("{prefix}{name}"));
        if kind.is_dir() {
            collect(&entry.path(), &format!("{path}/"), sources)?;
        } else if kind.is_file() {
            sources.push(SourceFile { path, bytes: std::fs::read(entry.path())? });
        }
    }
    Ok(())
}
