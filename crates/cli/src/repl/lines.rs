//! Decides whether the typed text is a complete instruction, as Python's own prompt does.
//!
//! A line that ends with `:` opens a block, which a blank line ends. Open brackets, open triple
//! quotes and a final backslash continue the instruction. Pure. Text that is not Python counts as
//! complete, and Python reports the error.

/// Whether the text is complete.
pub fn are_whole(text: &str) -> bool {
    let trimmed = text.trim_end_matches('\n');
    if trimmed.trim().is_empty() || trimmed.trim_start().starts_with(':') {
        return true;
    }
    let scan = Scan::of(trimmed);
    if scan.open > 0 || scan.in_string || trimmed.ends_with('\\') {
        return false;
    }
    !scan.block || ends_blank(text)
}

/// Whether the last line exists and is blank.
fn ends_blank(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.contains('\n') && body.rsplit('\n').next().is_some_and(|line| line.trim().is_empty())
}

/// The result of scanning the text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Scan {
    /// Number of open brackets.
    open: usize,
    /// Whether a triple-quoted string is open.
    in_string: bool,
    /// Whether a block was opened.
    block: bool,
}

impl Scan {
    fn of(text: &str) -> Scan {
        let mut scan = Scan { block: text.starts_with('@'), ..Scan::default() };
        let mut rest = text;
        let mut last = ' ';
        while let Some(c) = rest.chars().next() {
            match c {
                '#' => {
                    rest = rest.find('\n').map_or("", |end| &rest[end..]);
                    continue;
                }
                '\'' | '"' => match string_end(rest) {
                    Some(after) => {
                        (rest, last) = (after, c);
                        continue;
                    }
                    None => return Scan { in_string: true, ..scan },
                },
                '\n' => scan.line_end(last),
                '(' | '[' | '{' => scan.open += 1,
                ')' | ']' | '}' => scan.open = scan.open.saturating_sub(1),
                _ => {}
            }
            if !c.is_whitespace() {
                last = c;
            } else if c == '\n' {
                last = ' ';
            }
            rest = &rest[c.len_utf8()..];
        }
        scan.line_end(last);
        scan
    }

    fn line_end(&mut self, last: char) {
        self.block |= last == ':' && self.open == 0;
    }
}

/// The rest after the string at the start of the text. `None`: an open triple-quoted string. An
/// unclosed plain string ends with its line: Python reports the mistake.
fn string_end(text: &str) -> Option<&str> {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let (mark, mut rest, long) = match text.strip_prefix(&triple) {
        Some(rest) => (triple.as_str(), rest, true),
        None => (quote, &text[1..], false),
    };
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix(mark) {
            return Some(after);
        }
        if c == '\n' && !long {
            return Some(rest);
        }
        let skip = if c == '\\' { rest.chars().nth(1).map_or(0, char::len_utf8) } else { 0 };
        rest = &rest[c.len_utf8() + skip..];
    }
    if long { None } else { Some("") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole() {
        let texts = [
            "",
            "x = 1\n",
            "f(1,\n2)\n",
            "'a:'\n",
            "# if x:\n",
            "x = {'a': 1}\n",
            "d[1:\n2]\n",
            "def f():\n    return 1\n\n",
            ":vars\n",
            "'unclosed\n",
            "'''a\nb'''\n",
            "x = '\\''\n",
            ")\n",
            "é = 'ü'\n",
        ];
        for text in texts {
            assert!(are_whole(text), "{text:?}");
        }
    }

    #[test]
    fn not_yet() {
        let texts = [
            "def f():\n",
            "def f():\n    return 1\n",
            "if x: # why\n",
            "f(1,\n",
            "'''a\n",
            "x = 1 + \\\n",
            "@cache\n",
            "'\\",
            "@cache\ndef f():\n",
            "{'a': [\n",
            "for x in y:\n    if z:\n        w\n",
        ];
        for text in texts {
            assert!(!are_whole(text), "{text:?}");
        }
    }
}
