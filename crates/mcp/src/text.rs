//! Text of a readable size: the middle of a long text is replaced by a mark.

/// Maximum characters of one text in a result.
pub const MAX_TEXT: usize = 30_000;

/// The text, or its beginning and end with a mark in between that gives the omitted length and the
/// address of the full text.
pub fn cut(text: &str, max: usize, whole: &str) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let (head, tail) = (max * 2 / 3, max / 3);
    let at = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    let mark = format!("\n[... {} characters cut; whole in {whole} ...]\n", count - head - tail);
    format!("{}{mark}{}", &text[..at(head)], &text[at(count - tail)..])
}

/// The first line, shortened.
pub fn first_line(text: &str, max: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let short: String = line.chars().take(max).collect();
    if short.len() < text.trim().len() { short + " ..." } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_stays() {
        assert_eq!(cut("äöü", 3, "x"), "äöü");
        assert_eq!(first_line("  one\n", 80), "one");
    }

    #[test]
    fn long_text_loses_its_middle() {
        let text = format!("{}{}{}", "ä".repeat(10), "m".repeat(100), "z".repeat(5));
        let short = cut(&text, 15, "stasis://machine/m/transcript");
        let want = "ääääääääää\n[... 100 characters cut; whole in \
                    stasis://machine/m/transcript ...]\nzzzzz";
        assert_eq!(short, want);
        assert_eq!(first_line("one\ntwo", 80), "one ...");
    }
}
