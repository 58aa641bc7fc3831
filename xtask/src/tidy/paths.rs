//! Documents name only files that exist.

use super::{Finding, SourceFile};
use std::collections::BTreeSet;

/// Directories whose paths documents write from the root of the repository.
const TOP: [&str; 8] = ["crates", "dev", "docs", "fuzz", "packaging", "sdk", "tests", "xtask"];

/// It mentions files that may have been removed since.
const HISTORY: &str = "CHANGELOG.md";

pub fn check(sources: &[SourceFile]) -> Vec<Finding> {
    let known = known(sources);
    let documents = sources.iter().filter(|source| is_document(&source.path));
    documents.flat_map(|source| missing(source, &known)).collect()
}

fn is_document(path: &str) -> bool {
    path.ends_with(".md") && path != HISTORY && (!path.contains('/') || path.starts_with("docs/"))
}

/// All files, and their directories.
fn known(sources: &[SourceFile]) -> BTreeSet<&str> {
    let ends = |path: &str| path.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
    let dirs = sources.iter().flat_map(|source| {
        ends(&source.path).into_iter().map(|end| &source.path[..end]).collect::<Vec<_>>()
    });
    dirs.chain(sources.iter().map(|source| source.path.as_str())).collect()
}

fn missing(source: &SourceFile, known: &BTreeSet<&str>) -> Vec<Finding> {
    let lines = source.text().unwrap_or_default().lines().enumerate();
    lines
        .flat_map(|(index, line)| {
            let spans = line.split('`').skip(1).step_by(2);
            let lacking = spans.filter(|span| names_nothing(span, known));
            let found = |span| Finding::new(&source.path, index + 1, format!("no file `{span}`"));
            lacking.map(found).collect::<Vec<_>>()
        })
        .collect()
}

/// Whether a span is a path of the repository, as `crates/sys/src` or `sys/src`, and leads nowhere.
fn names_nothing(span: &str, known: &BTreeSet<&str>) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let path = span.trim_end_matches('/');
    let Some((first, rest)) = path.split_once('/').filter(|_| path.chars().all(plain)) else {
        return false;
    };
    let in_crate = format!("crates/{path}");
    let is_of_crate = ["src", "tests"].iter().any(|dir| rest.starts_with(dir))
        && known.contains(format!("crates/{first}").as_str());
    match is_of_crate {
        true => !known.contains(in_crate.as_str()),
        false => TOP.contains(&first) && !known.contains(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| SourceFile { path: path.into(), bytes: text.into() };
        let sources = [
            file("README.md", text),
            file("CHANGELOG.md", "`crates/gone`"),
            file("crates/sys/src/lib.rs", "`crates/gone`"),
        ];
        check(&sources).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_document_names_files_that_exist() {
        let fine = "`crates/sys`, `crates/sys/src/lib.rs`, `sys/src/lib.rs`, `a/b`, `crates/*/src`";
        assert_eq!(findings(fine), [""; 0]);
        let gone = "See `crates/sys/src/zone.rs`.\n`sys/src/zone.rs` and `docs/no.md`";
        let expected = [
            "README.md:1: no file `crates/sys/src/zone.rs`",
            "README.md:2: no file `sys/src/zone.rs`",
            "README.md:2: no file `docs/no.md`",
        ];
        assert_eq!(findings(gone), expected);
    }
}
