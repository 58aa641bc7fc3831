//! The length of functions and files. A longer one is listed by name, or it fails.

use super::Finding;
use super::tokens::{RustToken, find};

const FUNCTION_LINES: usize = 60;
const FILE_LINES: usize = 500;

/// An overlong function, or file (no name).
#[derive(Debug, PartialEq, Eq)]
pub struct Long {
    pub path: String,
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// Leave to be long, up to so many lines: path, function (none: the file), lines.
pub type Exception = (&'static str, &'static str, usize);

/// The items of this file over their limit.
pub fn measure(path: &str, text: &str, tokens: &[RustToken]) -> Vec<Long> {
    let mut long = Vec::new();
    let lines = file_lines(path, text);
    if lines > FILE_LINES {
        long.push(Long { path: path.into(), name: String::new(), line: 0, lines });
    }
    for at in find(tokens, &["fn"]) {
        let Some(name) = tokens.get(at + 1).filter(|next| next.is_name()) else { continue };
        let Some(lines) = function_lines(&tokens[at..]) else { continue };
        if lines > FUNCTION_LINES {
            let (name, line) = (name.text.clone(), tokens[at].line);
            long.push(Long { path: path.into(), name, line, lines });
        }
    }
    long
}

/// Lines from `fn` to the closing brace of the body; nothing if it has none.
fn function_lines(tokens: &[RustToken]) -> Option<usize> {
    let depth = tokens[0].depth;
    let mut own = tokens.iter().filter(|token| token.depth == depth);
    own.find(|token| token.is("{") || token.is(";")).filter(|token| token.is("{"))?;
    let end = own.next()?;
    Some(end.line - tokens[0].line + 1)
}

/// Lines of a file, its inline tests included. Files of tests and generated files have no limit.
fn file_lines(path: &str, text: &str) -> usize {
    const GENERATED: &str = "//! Written by ";
    let generated = text.lines().take(5).any(|line| line.starts_with(GENERATED));
    if generated || path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests") {
        return 0;
    }
    text.lines().count()
}

/// Everything long must be excepted, and every exception must be needed.
pub fn check(long: &[Long], exceptions: &[Exception]) -> Vec<Finding> {
    let matches =
        |long: &Long, (path, name, _): &Exception| long.path == *path && long.name == *name;
    let mut findings = Vec::new();
    for found in long {
        let leave = exceptions.iter().find(|exception| matches(found, exception));
        if leave.is_none_or(|(_, _, lines)| found.lines > *lines) {
            findings.push(Finding::new(&found.path, found.line, describe(found)));
        }
    }
    for exception in exceptions {
        if !long.iter().any(|found| matches(found, exception)) {
            let what =
                format!("`{}` needs no exception any more: take it off the list", exception.1);
            findings.push(Finding::new(exception.0, 0, what));
        }
    }
    findings
}

fn describe(long: &Long) -> String {
    match long.name.as_str() {
        "" => format!("{} lines, {FILE_LINES} is the most", long.lines),
        name => format!("`{name}` has {} lines, {FUNCTION_LINES} is the most", long.lines),
    }
}
