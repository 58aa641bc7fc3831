//! Syntax colours while the user types: keywords, strings, numbers, comments. Pure.

use stasis_agent::Syntax;

/// The style of a piece of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Keyword,
    Name,
    Text,
    Number,
    Comment,
    Other,
}

impl Kind {
    fn paint(self) -> Option<&'static str> {
        match self {
            Kind::Keyword => Some("\x1b[35m"),
            Kind::Text => Some("\x1b[32m"),
            Kind::Number => Some("\x1b[36m"),
            Kind::Comment => Some("\x1b[90m"),
            Kind::Name | Kind::Other => None,
        }
    }
}

/// The code with colours around its pieces; the characters are unchanged.
pub fn paint(syntax: &Syntax, code: &str) -> String {
    let mut painted = String::with_capacity(code.len() * 2);
    let mut rest = code;
    while !rest.is_empty() {
        let (kind, len) = piece(syntax, rest);
        let (text, after) = rest.split_at(len);
        match kind.paint() {
            Some(colour) => painted.extend([colour, text, "\x1b[0m"]),
            None => painted.push_str(text),
        }
        rest = after;
    }
    painted
}

/// The kind of the first piece, and its length in bytes.
fn piece(syntax: &Syntax, code: &str) -> (Kind, usize) {
    let first = code.chars().next().unwrap_or(' ');
    let while_ = |fits: &dyn Fn(char) -> bool| code.find(|c| !fits(c)).unwrap_or(code.len());
    let is_sign = |c: char| c == '_' || syntax.name_signs.contains(c);
    match first {
        _ if code.starts_with(syntax.comment) => {
            (Kind::Comment, code.find('\n').unwrap_or(code.len()))
        }
        c if syntax.quotes.contains(&c) => (Kind::Text, text(syntax, code, 0)),
        '0'..='9' => (Kind::Number, while_(&|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')),
        c if c.is_alphabetic() || is_sign(c) => {
            word(syntax, code, while_(&|c| c.is_alphanumeric() || is_sign(c)))
        }
        c => (Kind::Other, c.len_utf8()),
    }
}

/// A word, or a string with its prefix.
fn word(syntax: &Syntax, code: &str, len: usize) -> (Kind, usize) {
    let (word, rest) = code.split_at(len);
    let prefix = len <= 2 && word.chars().all(|c| syntax.prefixes.contains(c));
    match rest.chars().next() {
        Some(c) if prefix && syntax.quotes.contains(&c) => (Kind::Text, text(syntax, code, len)),
        _ if syntax.is_keyword(word) => (Kind::Keyword, len),
        _ => (Kind::Name, len),
    }
}

/// The end of the string whose quote is at `from`; one between plain quotes ends with its line.
fn text(syntax: &Syntax, code: &str, from: usize) -> usize {
    let quote = &code[from..=from];
    let triple = quote.repeat(3);
    let is_triple = syntax.long_strings && code[from..].starts_with(&triple);
    let long = is_triple || quote == "`";
    let mark = if is_triple { triple.as_str() } else { quote };
    let mut at = from + mark.len();
    while let Some(c) = code[at..].chars().next() {
        match c {
            _ if code[at..].starts_with(mark) => return at + mark.len(),
            '\n' if !long => return at,
            '\\' => at += 1 + code[at + 1..].chars().next().map_or(0, char::len_utf8),
            c => at += c.len_utf8(),
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    fn paint(code: &str) -> String {
        super::paint(stasis_agent::default().syntax(), code)
    }

    fn paint_javascript(code: &str) -> String {
        super::paint(stasis_agent::language("javascript").expect("a language").syntax(), code)
    }

    fn plain(painted: &str) -> String {
        let mut text = String::new();
        let mut rest = painted;
        while let Some((before, after)) = rest.split_once("\x1b[") {
            text.push_str(before);
            rest = after.split_once('m').expect("a colour").1;
        }
        text + rest
    }

    #[test]
    fn pieces_have_colours() {
        assert_eq!(paint("x"), "x");
        assert_eq!(paint("if x"), "\x1b[35mif\x1b[0m x");
        assert_eq!(paint("1_0.5e3"), "\x1b[36m1_0.5e3\x1b[0m");
        assert_eq!(paint("f'{a}' # b"), "\x1b[32mf'{a}'\x1b[0m \x1b[90m# b\x1b[0m");
        assert_eq!(paint("'''a\nif'''"), "\x1b[32m'''a\nif'''\x1b[0m");
        assert_eq!(paint("'a\nif"), "\x1b[32m'a\x1b[0m\n\x1b[35mif\x1b[0m");
        assert_eq!(paint("iffy.for_"), "iffy.for_");
    }

    #[test]
    fn each_language_has_its_own() {
        assert_eq!(paint_javascript("const x"), "\x1b[35mconst\x1b[0m x");
        assert_eq!(paint_javascript("def x"), "def x");
        assert_eq!(paint_javascript("1 // b"), "\x1b[36m1\x1b[0m \x1b[90m// b\x1b[0m");
        assert_eq!(paint_javascript("`a\nif ${b}`"), "\x1b[32m`a\nif ${b}`\x1b[0m");
        assert_eq!(paint_javascript("$if"), "$if");
        assert_eq!(paint("const x // b"), "const x // b");
    }

    #[test]
    fn not_a_letter_is_lost_or_added() {
        for code in ["'\\", "\"\\é", "x = [1, 'é', \"ü\"]\n\tdef", "𝒳 = '''", "b'", "#", "…"]
        {
            assert_eq!(plain(&paint(code)), code, "{code:?}");
            assert_eq!(plain(&paint_javascript(code)), code, "{code:?}");
        }
    }
}
