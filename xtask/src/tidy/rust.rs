//! Rules for Rust files: docs, width, `unsafe`, and files that nothing includes.

use super::Finding;
use super::tokens::{RustToken, find};
use std::collections::BTreeSet;

const WIDTH: usize = 100;

/// The one crate that may use `unsafe` freely.
const DOOR: &str = "crates/sys/";

/// Files outside it that may, and on how many lines: a process gives itself up there.
const UNSAFE_ELSEWHERE: [(&str, usize); 1] = [("crates/spawner/src/blank.rs", 2)];

pub fn check(path: &str, text: &str, tokens: &[RustToken]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(Finding::new(path, 1, "open with `//!`: what is this file for?"));
    }
    for (index, line) in text.lines().enumerate() {
        let width = line.chars().count();
        if width > WIDTH {
            let what = format!("{width} columns, {WIDTH} is the most");
            findings.push(Finding::new(path, index + 1, what));
        }
    }
    if !path.starts_with(DOOR) {
        findings.extend(check_unsafe(path, tokens));
        findings.extend(check_lint(path, text));
    }
    findings
}

fn check_unsafe(path: &str, tokens: &[RustToken]) -> Vec<Finding> {
    let elsewhere = UNSAFE_ELSEWHERE.iter().find(|(file, _)| *file == path);
    let allowed = elsewhere.map_or(0, |(_, lines)| *lines);
    let uses = find(tokens, &["unsafe"])
        .skip(allowed)
        .map(|at| Finding::new(path, tokens[at].line, format!("`unsafe` belongs in {DOOR}")));
    let lifted = ["allow", "expect"].into_iter().flat_map(|word| {
        let at: Vec<usize> = find(tokens, &[word, "(", "unsafe_code"]).collect();
        at.into_iter().skip(allowed)
    });
    let lifted = lifted
        .map(|at| Finding::new(path, tokens[at].line, "the lint against `unsafe` is lifted here"));
    uses.chain(lifted).collect()
}

/// The root of every crate forbids `unsafe`; a crate with an exception denies it, which a line of
/// code can lift.
fn check_lint(path: &str, text: &str) -> Option<Finding> {
    let (package, "lib.rs" | "main.rs") = path.split_once("/src/")? else { return None };
    let excepted =
        UNSAFE_ELSEWHERE.iter().any(|(file, _)| file.starts_with(&format!("{package}/")));
    let lint = if excepted { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    let has = text.lines().any(|line| line.trim() == lint);
    (!has).then(|| Finding::new(path, 0, format!("lacks `{lint}`")))
}

/// All Rust files, and those that some `mod` names.
#[derive(Default)]
pub struct Modules {
    files: BTreeSet<String>,
    named: BTreeSet<String>,
    /// Packages that list their tests, and those they list.
    listing: BTreeSet<String>,
    listed: BTreeSet<String>,
}

impl Modules {
    /// Reads which files of a package Cargo compiles as tests. Before its Rust files.
    pub fn add_manifest(&mut self, path: &str, text: &str) {
        let Some(package) = path.strip_suffix("/Cargo.toml") else { return };
        if text.lines().any(|line| line == "autotests = false") {
            self.listing.insert(package.to_owned());
        }
        let paths =
            text.lines().filter_map(|line| line.strip_prefix("path = \"")?.split('"').next());
        self.listed.extend(paths.map(|file| format!("{package}/{file}")));
    }

    pub fn add(&mut self, path: &str, tokens: &[RustToken]) {
        self.files.insert(path.into());
        let folder = self.folder_of_children(path);
        for at in find(tokens, &["mod"]) {
            let Some([name, end]) = tokens.get(at + 1..at + 3) else { continue };
            if name.is_name() && end.is(";") {
                self.named.insert(format!("{folder}{}.rs", name.text));
                self.named.insert(format!("{folder}{}/mod.rs", name.text));
            }
        }
    }

    /// Files that no crate includes.
    pub fn dead(&self) -> Vec<Finding> {
        let dead = self.files.difference(&self.named).filter(|path| !self.is_root(path));
        dead.map(|path| Finding::new(path, 0, "no `mod` includes this file")).collect()
    }

    /// Where the files of a file's modules lie, with a slash at its end.
    fn folder_of_children(&self, path: &str) -> String {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name == "mod.rs" || self.is_root(path) {
            return format!("{folder}/");
        }
        format!("{}/", path.trim_end_matches(".rs"))
    }

    fn is_root(&self, path: &str) -> bool {
        match path.split_once("/tests/") {
            Some((package, _)) if self.listing.contains(package) => self.listed.contains(path),
            _ => is_root(path),
        }
    }
}

/// Whether Cargo compiles this file without a `mod` in another.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        [.., "src", "lib.rs" | "main.rs"] | [.., "build.rs"] | [.., "src", "bin", _] => true,
        [.., "tests" | "examples" | "benches" | "bin", _, "main.rs"] => true,
        [.., "src", "tests", _] => false,
        [.., "tests" | "examples" | "benches" | "fuzz_targets", _] => !path.contains("/src/"),
        _ => false,
    }
}
