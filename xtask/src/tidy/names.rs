//! A type that other modules can see has a name no other such type of the workspace has, so that a
//! reader always knows which one is meant. No type hides a name of Rust's prelude.

use super::Finding;
use super::tokens::RustToken;
use std::collections::BTreeMap;

/// Names with the same meaning wherever they are declared, and that meaning.
const CONVENTIONAL: [(&str, &str); 4] = [
    ("Args", "the options of one command, as clap reads them"),
    ("Error", "how calls into a crate fail"),
    ("ErrorContext", "adds to an error of the system what a crate was doing"),
    ("Result", "the standard one with the crate's error"),
];

/// Names that every Rust file can use without an import, and the common derives.
const PRELUDE: [&str; 30] = [
    "AsMut",
    "AsRef",
    "Box",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Drop",
    "Eq",
    "Extend",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "FromIterator",
    "Future",
    "Hash",
    "Into",
    "IntoIterator",
    "Iterator",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Send",
    "String",
    "Sync",
    "TryFrom",
    "TryInto",
    "Vec",
];

/// A type's declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredType {
    pub name: String,
    pub path: String,
    pub line: usize,
    /// Whether other modules of the workspace's programs can see it.
    pub is_visible: bool,
}

/// The types a file declares. Associated types are not declarations.
pub fn declared(path: &str, tokens: &[RustToken]) -> Vec<DeclaredType> {
    let is_program =
        path.starts_with("xtask/src/") || path.starts_with("crates/") && path.contains("/src/");
    let declaration = |(index, pair): (usize, &[RustToken])| {
        let [keyword, name] = pair else { return None };
        let is_public = is_public(&tokens[..index]);
        let declares = match keyword.text.as_str() {
            "struct" | "enum" | "trait" | "union" => name.is_name(),
            "type" => name.is_name() && is_public,
            _ => false,
        };
        declares.then(|| DeclaredType {
            name: name.text.clone(),
            path: path.into(),
            line: name.line,
            is_visible: is_public && is_program,
        })
    };
    tokens.windows(2).enumerate().filter_map(declaration).collect()
}

/// Whether the tokens end with `pub` or `pub(…)`.
fn is_public(before: &[RustToken]) -> bool {
    match before {
        [.., token] if token.is("pub") => true,
        [.., token] if token.is(")") => {
            let open = before[..before.len() - 1]
                .iter()
                .rposition(|other| other.is("(") && other.depth == token.depth);
            open.is_some_and(|open| open > 0 && before[open - 1].is("pub"))
        }
        _ => false,
    }
}

pub fn check(types: &[DeclaredType]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut first: BTreeMap<&str, &DeclaredType> = BTreeMap::new();
    for found in types {
        let name = found.name.as_str();
        if PRELUDE.contains(&name) {
            let what = format!("`{name}` hides a name of Rust's prelude: choose another");
            findings.push(Finding::new(&found.path, found.line, what));
        }
        if !found.is_visible || CONVENTIONAL.iter().any(|(known, _)| *known == name) {
            continue;
        }
        if let Some(other) = first.get(name) {
            let what = format!("`{name}` is also a type in {}: name one of them anew", other.path);
            findings.push(Finding::new(&found.path, found.line, what));
        } else {
            first.insert(name, found);
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tokens;
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let types = |(path, text): &(&str, &str)| declared(path, &tokens::parse(text).unwrap());
        let types: Vec<DeclaredType> = files.iter().flat_map(types).collect();
        check(&types).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_visible_type_has_a_name_of_its_own() {
        let (a, b) = ("crates/a/src/lib.rs", "xtask/src/b.rs");
        for (left, right) in [
            ("pub struct Found;", "pub enum Found {}"),
            ("pub(crate) trait Found {}", "\npub(in crate::x) type Found = u8;"),
        ] {
            let line = if right.starts_with('\n') { 2 } else { 1 };
            let what = format!("{b}:{line}: `Found` is also a type in {a}: name one of them anew");
            assert_eq!(findings(&[(a, left), (b, right)]), [what]);
        }
        let once = "pub struct Found;\nmod inner { pub struct Found; }";
        assert_eq!(findings(&[(a, once)]).len(), 1, "two in one file");
    }

    #[test]
    fn private_types_tests_and_conventional_names_may_repeat() {
        let (a, b) = ("crates/a/src/lib.rs", "crates/b/src/lib.rs");
        assert!(findings(&[(a, "pub struct Found;"), (b, "struct Found;")]).is_empty());
        assert!(findings(&[(a, "pub enum Error {}"), (b, "pub struct Error;")]).is_empty());
        let test = "crates/b/tests/common/mod.rs";
        assert!(findings(&[(a, "pub struct Found;"), (test, "pub struct Found;")]).is_empty());
        let associated = "impl A for B { type Found = u8; }\nfn pub_like(a: u8) {}";
        assert!(findings(&[(a, "pub struct Found;"), (b, associated)]).is_empty());
    }

    #[test]
    fn no_type_hides_a_name_of_the_prelude() {
        let found = findings(&[("crates/a/tests/a.rs", "struct Into;")]);
        let what = "crates/a/tests/a.rs:1: `Into` hides a name of Rust's prelude: choose another";
        assert_eq!(found, [what]);
        assert!(findings(&[("crates/a/src/a.rs", "impl A for B { type Future = C; }")]).is_empty());
    }
}
