//! Paragraphs of Markdown are wrapped. Tables, code, drawings and long addresses are not.

use super::{Finding, SourceFile};

const WIDTH: usize = 100;

pub fn check(source: &SourceFile) -> Vec<Finding> {
    let text = source.text().filter(|_| source.path.ends_with(".md")).unwrap_or_default();
    let mut fenced = false;
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let width = line.chars().count();
        if width > WIDTH && !fenced && !fence && is_prose(line) {
            let what = format!("{width} columns, {WIDTH} is the most: wrap the paragraph");
            findings.push(Finding::new(&source.path, index + 1, what));
        }
    }
    findings
}

/// Whether a line outside code fences can be wrapped.
fn is_prose(line: &str) -> bool {
    let indented_code = line.starts_with("    ");
    let table = line.trim_start().starts_with('|');
    let heading = line.starts_with('#');
    let one_word = line.split_whitespace().nth(1).is_none();
    !(indented_code || table || heading || one_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let source = SourceFile { path: path.into(), bytes: text.into() };
        check(&source).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn long_paragraphs_are_found() {
        let long = "word ".repeat(21);
        let text = format!("# Title\n\n{long}\n- {long}\n1. {long}\n{}", &long[..100]);
        assert_eq!(lines("README.md", &text), [3, 4, 5]);
        assert!(lines("dev/run.sh", &text).is_empty());
    }

    #[test]
    fn tables_code_and_addresses_may_be_long() {
        let long = "word ".repeat(21);
        let address = "x".repeat(120);
        let text = format!("| {long} |\n```sh\n{long}\n```\n    {long}\n{address}\n## {long}\n");
        assert!(lines("docs/a.md", &text).is_empty());
    }
}
