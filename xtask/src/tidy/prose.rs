//! Paragraphs of Markdown are wrapped, and sentences name their subjects. Tables, code, drawings
//! and long addresses are not wrapped. Code between backticks may have any words.

use super::{Finding, SourceFile};

const WIDTH: usize = 100;

/// Subjects that hide the part of the program that acts.
const RIDDLES: [&str; 6] = ["whoever", "whomever", "somebody", "nobody", "anybody", "everybody"];

pub fn check(source: &SourceFile) -> Vec<Finding> {
    match source.text() {
        Some(text) if source.path.ends_with(".md") => document(source, text),
        Some(text) if source.is_rust() => comments(source, text),
        _ => Vec::new(),
    }
}

fn comments(source: &SourceFile, text: &str) -> Vec<Finding> {
    let comments = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
    comments.filter_map(|(index, line)| riddle(source, index, line)).collect()
}

fn riddle(source: &SourceFile, index: usize, line: &str) -> Option<Finding> {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
    let word = prose.split(|c: char| !c.is_alphanumeric()).find(|word| RIDDLES.contains(word))?;
    Some(Finding::new(&source.path, index + 1, format!("`{word}`: name the part that acts")))
}

fn document(source: &SourceFile, text: &str) -> Vec<Finding> {
    let mut fenced = false;
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fenced && !fence {
            findings.extend(riddle(source, index, line));
        }
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

    #[test]
    fn sentences_name_their_subjects() {
        let text =
            "// Whoever asks is answered.\nlet nobody = 1;\n// runs as `nobody`\n//! Nobody's.";
        assert_eq!(lines("crates/a/src/a.rs", text), [1, 4]);
        let text = "Somebody asks.\n```sh\nid nobody\n```\nEverybodyX, anybody\n";
        assert_eq!(lines("docs/a.md", text), [1, 5]);
    }
}
