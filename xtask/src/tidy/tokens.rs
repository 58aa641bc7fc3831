//! Rust as a flat list of tokens with their lines: comments and strings cannot deceive a rule.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One token. A group is its opening and closing token with everything between in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RustToken {
    pub text: String,
    pub line: usize,
    /// Depth of groups around this token; brackets count as outside of their own group.
    pub depth: usize,
}

impl RustToken {
    pub fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub fn is_name(&self) -> bool {
        self.text.starts_with(|first: char| first.is_alphabetic() || first == '_')
    }
}

/// The tokens of a file; the line of the fault if it is not Rust. Literals have no text.
pub fn parse(text: &str) -> Result<Vec<RustToken>, usize> {
    let stream: TokenStream =
        text.parse().map_err(|error: proc_macro2::LexError| error.span().start().line)?;
    let mut tokens = Vec::new();
    flatten(stream, 0, &mut tokens);
    Ok(tokens)
}

fn flatten(stream: TokenStream, depth: usize, tokens: &mut Vec<RustToken>) {
    for tree in stream {
        let line = tree.span().start().line;
        let mut push = |text: &str, line| tokens.push(RustToken { text: text.into(), line, depth });
        match tree {
            TokenTree::Ident(name) => push(&name.to_string(), line),
            TokenTree::Punct(mark) => push(&mark.as_char().to_string(), line),
            TokenTree::Literal(_) => push("", line),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::None => ("", ""),
                };
                push(open, line);
                flatten(group.stream(), depth + 1, tokens);
                let line = group.span_close().start().line;
                tokens.push(RustToken { text: close.into(), line, depth });
            }
        }
    }
}

/// Where `pattern` occurs: the index of its first token.
pub fn find<'a>(tokens: &'a [RustToken], pattern: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
    tokens.windows(pattern.len()).enumerate().filter_map(move |(index, window)| {
        window.iter().zip(pattern).all(|(token, text)| token.is(text)).then_some(index)
    })
}
