//! Parses reports. They come from inside a machine, so their size, number of values and depth are
//! bounded before anything is allocated for them.
//!
//!   bytes ─► looked over: values, depth ─► parsed
//!               └─ too many ─► the same report without its contents, and a note
//!
//! An oversized report still ends its instruction: `cut` builds one from its first bytes, so that a
//! machine with a huge result keeps its state.

use crate::{Bundle, Done, Report, ToolRequest};
use std::fmt;

/// Maximum bytes of one report: a value and a bundle of 16 MiB each, and the rest.
pub const LONGEST: usize = 34 << 20;
/// Values of one report, with all that are inside others.
const VALUES: usize = 200_000;
/// Maximum nesting of values. The parser has a bound of its own, above this one.
const DEEPEST: usize = 100;
/// Bytes read of a cut report: kind and number come first.
const HEAD: usize = 200;
/// Maximum length of an agent's description of what it renewed.
const WORDS: usize = 64;
const LONGEST_WORD: usize = 500;
/// Bytes of a prompt; a longer one is cut.
const LONGEST_PROMPT: usize = 4096;

/// Why a report cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportError {
    /// It has too many values, or too deep ones.
    TooMuch(&'static str),
    /// It is no report.
    Nonsense(String),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReportError::TooMuch(what) => write!(f, "it sent a report with {what}"),
            ReportError::Nonsense(what) => {
                write!(f, "it sent a malformed report: {what}")
            }
        }
    }
}

impl Report {
    /// Reads one line, without its end.
    pub fn parse(line: &[u8]) -> Result<Report, ReportError> {
        match look_over(line) {
            None => {}
            Some(what) => return Report::cut(line, what).ok_or(ReportError::TooMuch(what)),
        }
        let report = serde_json::from_slice(line);
        report.map(tidy).map_err(|error| ReportError::Nonsense(error.to_string()))
    }

    /// A report of the same kind without its contents, from the beginning of an oversized one;
    /// none, if the kind needs its contents.
    pub fn cut(line: &[u8], what: &str) -> Option<Report> {
        let head = &line[..line.len().min(HEAD)];
        let head = String::from_utf8_lossy(head);
        let seq = number(&head, "seq")?;
        if head.starts_with("{\"type\":\"tool\"") {
            let id = number(&head, "id")?;
            return Some(Report::Tool { seq, id, what: ToolRequest::Cut(what.to_owned()) });
        }
        let note = format!("the result was cut: it had {what}");
        if head.starts_with("{\"type\":\"done\"") {
            return Some(Report::Done(Done { seq, cut: Some(note), ..Done::default() }));
        }
        let shown = format!("[stasis: a display was cut: it had {what}]");
        let data = Bundle::from([("text/plain".to_owned(), shown.into())]);
        let is_display = head.starts_with("{\"type\":\"display\"");
        is_display.then_some(Report::Display { seq, data, cut: Some(note) })
    }
}

/// The number of an instruction or a request, which come right after the kind.
fn number(head: &str, name: &str) -> Option<u64> {
    let (_, rest) = head.split_once(&format!(",\"{name}\":"))?;
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..digits].parse().ok()
}

/// The excess, if any. Counts separators: never less than the number of values.
fn look_over(line: &[u8]) -> Option<&'static str> {
    let (mut values, mut depth, mut in_text, mut escaped) = (1_usize, 0_usize, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b',' | b':' => values += 1,
            b'[' | b'{' => {
                values += 1;
                depth += 1;
                if depth > DEEPEST {
                    return Some("values more than 100 deep in others");
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    (values > VALUES).then_some("more than 200,000 values")
}

/// An agent's own description is for people, and short.
fn tidy(report: Report) -> Report {
    match report {
        Report::Awake { generation, mut changed } => {
            changed.truncate(WORDS);
            changed.retain(|word| word.len() <= LONGEST_WORD);
            Report::Awake { generation, changed }
        }
        Report::Ready { generation, language, version, mut orders } => {
            orders.truncate(WORDS);
            orders.retain(|word| word.len() <= LONGEST_WORD);
            Report::Ready { generation, language, version, orders }
        }
        Report::Input { seq, mut prompt } => {
            prompt.truncate(prompt.floor_char_boundary(LONGEST_PROMPT));
            Report::Input { seq, prompt }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn display(data: &str) -> String {
        format!("{{\"type\":\"display\",\"seq\":7,\"data\":{{\"application/json\":{data}}}}}")
    }

    #[test]
    fn what_is_decent_is_read() {
        let text = "{\"a\": [1, 2, {\"b\": \"[[[[,,,,\\\"::::\"}]}";
        let Ok(Report::Display { seq: 7, data, cut: None }) =
            Report::parse(display(text).as_bytes())
        else {
            panic!("a display")
        };
        assert_eq!(data["application/json"]["a"][1], 2);
        assert!(matches!(Report::parse(b"{"), Err(ReportError::Nonsense(_))));
    }

    #[test]
    fn too_many_and_too_deep_values_are_cut() {
        let many = format!("[{}0]", "0,".repeat(VALUES));
        let deep = "[".repeat(1 << 20);
        for text in [many, deep] {
            let Ok(Report::Display { seq: 7, data, cut: Some(note) }) =
                Report::parse(display(&text).as_bytes())
            else {
                panic!("a display that was cut")
            };
            assert!(note.contains("cut") && data.len() == 1, "{note}");
        }
        let done = format!("{{\"type\":\"done\",\"seq\":3,\"touched\":[{}]}}", "[".repeat(200));
        let cut = Report::parse(done.as_bytes());
        assert!(matches!(cut, Ok(Report::Done(Done { seq: 3, cut: Some(_), .. }))), "{cut:?}");
        let arguments = format!("{{\"x\":{}}}", "[".repeat(100_000));
        let tool = format!("{{\"type\":\"tool\",\"seq\":3,\"id\":9,\"what\":{arguments}}}");
        let cut = Report::parse(tool.as_bytes());
        let is_cut = matches!(cut, Ok(Report::Tool { seq: 3, id: 9, what: ToolRequest::Cut(_) }));
        assert!(is_cut, "{cut:?}");
        let vars = format!("{{\"type\":\"vars\",\"vars\":[{}]}}", "[".repeat(200));
        assert!(matches!(Report::parse(vars.as_bytes()), Err(ReportError::TooMuch(_))));
    }

    #[test]
    fn prompts_are_short() {
        let report = Report::Input { seq: 7, prompt: "é".repeat(LONGEST_PROMPT) };
        let text = serde_json::to_vec(&report).expect("JSON");
        let Ok(Report::Input { seq: 7, prompt }) = Report::parse(&text) else { panic!("input") };
        assert_eq!(prompt.len(), LONGEST_PROMPT);
    }

    #[test]
    fn words_of_an_agent_are_few() {
        let words = vec!["x".to_owned(); 1000];
        let text = serde_json::to_vec(&Report::Awake { generation: 1, changed: words });
        let Ok(Report::Awake { changed, .. }) = Report::parse(&text.expect("JSON")) else {
            panic!("awake")
        };
        assert_eq!(changed.len(), WORDS);
    }
}
