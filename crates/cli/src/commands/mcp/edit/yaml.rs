//! YAML, edited by lines: a section is a key at the margin, an entry is a key below it. The caller
//! parses the result, so a file in another style is refused and not damaged.

use super::{Edited, EntryKey};
use serde_json::Value;
use std::fmt::Write;
use std::ops::Range;

pub fn read(text: &str) -> Result<Value, String> {
    if text.lines().all(|line| content(line).is_empty()) {
        return Ok(Value::Null);
    }
    serde_saphyr::from_str(text).map_err(|error| {
        let words = error.to_string();
        words.lines().next().unwrap_or("it cannot be read").to_owned()
    })
}

/// A line without its comment and surrounding spaces.
fn content(line: &str) -> &str {
    let line = line.trim();
    if line.starts_with('#') {
        return "";
    }
    line.split_once(" #").map_or(line, |(content, _)| content.trim_end())
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The lines of a section.
struct Section {
    head: usize,
    /// Its body, without blank lines and comments at the end.
    body: Range<usize>,
    /// The indentation of its entries.
    indent: usize,
}

fn find(lines: &[String], name: &str) -> Option<Section> {
    let is_head = |line: &String| {
        let key = content(line).split_once(':').map(|(key, _)| key.trim_matches(['"', '\'']));
        indent(line) == 0 && key == Some(name)
    };
    let head = lines.iter().position(is_head)?;
    let body = block(lines, head, 0);
    let first = lines[body.clone()].iter().find(|line| !content(line).is_empty());
    let indent = first.map_or(2, |line| indent(line));
    Some(Section { head, body, indent })
}

/// The lines below a key that is indented by `outer`.
fn block(lines: &[String], head: usize, outer: usize) -> Range<usize> {
    let rest = lines[head + 1..].iter();
    let inside = rest.take_while(|line| content(line).is_empty() || indent(line) > outer);
    let mut end = head + 1 + inside.count();
    while end > head + 1 && content(&lines[end - 1]).is_empty() {
        end -= 1;
    }
    head + 1..end
}

/// The lines of an entry.
fn entry_lines(lines: &[String], section: &Section, name: &str) -> Option<Range<usize>> {
    let is_own = |line: &String| {
        let key = content(line).split_once(':').map(|(key, _)| key.trim_matches(['"', '\'']));
        indent(line) == section.indent && key == Some(name)
    };
    let head = section.body.start + lines[section.body.clone()].iter().position(is_own)?;
    Some(head..block(lines, head, section.indent).end)
}

fn split(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn join(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// An entry; its values are JSON, which is YAML too.
fn render(name: &str, entry: &Value, indent: usize) -> Vec<String> {
    let mut text = format!("{:indent$}{name}:\n", "");
    for (key, value) in entry.as_object().into_iter().flatten() {
        let _ = writeln!(text, "{:indent$}{:indent$}{key}: {value}", "", "");
    }
    split(&text)
}

pub fn put(text: &str, at: EntryKey, entry: &Value) -> Edited {
    let mut lines = split(text);
    if find(&lines, at.section).is_none() {
        lines.push(format!("{}:", at.section));
    }
    let Some(section) = find(&lines, at.section) else {
        return Err(format!("`{}` was not found", at.section));
    };
    if content(&lines[section.head]).ends_with("{}") {
        lines[section.head] = lines[section.head].replacen("{}", "", 1).trim_end().to_owned();
    }
    let own = entry_lines(&lines, &section, at.name);
    let own = own.unwrap_or(section.body.end..section.body.end);
    lines.splice(own, render(at.name, entry, section.indent));
    Ok(join(&lines))
}

pub fn take(text: &str, at: EntryKey) -> Edited {
    let mut lines = split(text);
    let section = find(&lines, at.section);
    if let Some(own) = section.and_then(|section| entry_lines(&lines, &section, at.name)) {
        lines.drain(own);
    }
    Ok(join(&lines))
}
