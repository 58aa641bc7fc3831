//! Makes text from a machine harmless for a terminal.
//!
//! Colours stay. Sequences that move the cursor, set titles or query the terminal are shown as
//! text. Output to a file or a pipe is not changed.

use std::borrow::Cow;

/// A colour sequence has at most this many characters.
const LONGEST_COLOUR: usize = 32;

/// The text as it may be written to a terminal. `colour` keeps colours.
pub fn clean(text: &str, colour: bool) -> Cow<'_, str> {
    if !text.chars().any(is_risky) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let taken = match colour_at(rest) {
            Some(length) => {
                out.push_str(if colour { &rest[..length] } else { "" });
                length
            }
            None => {
                push(&mut out, next);
                next.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    Cow::Owned(out)
}

fn is_risky(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r')
}

fn push(out: &mut String, c: char) {
    if is_risky(c) {
        out.extend(c.escape_default());
    } else {
        out.push(c);
    }
}

/// The length of the colour sequence the text begins with: `ESC [ digits and semicolons m`.
fn colour_at(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("\x1b[")?;
    let end = inner.bytes().take(LONGEST_COLOUR).position(|b| !matches!(b, b'0'..=b'9' | b';'))?;
    (inner.as_bytes()[end] == b'm').then_some(2 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stay_and_the_rest_is_shown() {
        let cases = [
            ("plain\ttext ä", "plain\ttext ä"),
            ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
            ("\x1b[2J\x1b]0;title\x07", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("\x1b[31", "\\u{1b}[31"),
            ("a\u{9b}6n", "a\\u{9b}6n"),
            ("\x1b", "\\u{1b}"),
        ];
        for (given, wanted) in cases {
            assert_eq!(clean(given, true), wanted);
        }
        assert_eq!(clean("\x1b[1mbold\x1b[m", false), "bold");
    }
}
