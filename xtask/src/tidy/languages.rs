//! Only the crate `agent` knows a language by name. The few lines of others that do are counted
//! here, each with its reason, and the counts only fall.

use super::Finding;

/// What names a language, in lower case.
const NAMES: [&str; 6] =
    ["python", "keyboardinterrupt", "pip install", "ensurepip", "javascript", "typescript"];

/// The crate whose business it is, the surface of a product for one language, and those that are
/// no part of the product.
const ALLOWED: [&str; 4] = ["crates/agent/", "crates/mcpv8/", "crates/bench/", "crates/testbed/"];

/// Files of other crates, how many of their lines of code do it, and why.
pub const LEFT: &[(&str, usize, &str)] = &[
    ("crates/cli/src/commands/mcp_v8.rs", 1, "the template of mcp-v8's machines"),
    ("crates/forkd/src/tools.rs", 2, "forkd's tools run one language, and say which"),
    ("crates/mcp/src/forevervm.rs", 7, "names and words of foreverVM's tools"),
    ("crates/mcp/src/guide.rs", 1, "names of foreverVM's tools"),
    ("crates/mcp/src/input.rs", 2, "an argument of foreverVM's, and one that models guess"),
    ("crates/server/src/repl.rs", 4, "foreverVM's clients name themselves so"),
    ("crates/template/src/modules/web.rs", 4, "content types of the web"),
    ("crates/template/src/recipe.rs", 1, "a key of recipes, which users have written"),
    ("crates/template/src/root.rs", 2, "keys of descriptions on disk"),
];

/// Files below `crates/*/src` that name a language, and how often.
pub fn count(path: &str, text: &str) -> Option<(String, usize)> {
    let ours = path.starts_with("crates/") && path.contains("/src/") && !path.contains("tests");
    if !ours || ALLOWED.iter().any(|other| path.starts_with(other)) {
        return None;
    }
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let names = |line: &&str| {
        let line = line.trim_start().to_lowercase();
        !line.starts_with("//") && NAMES.iter().any(|name| line.contains(name))
    };
    let found = code.lines().filter(names).count();
    (found > 0).then(|| (path.to_owned(), found))
}

pub fn check(found: &[(String, usize)], left: &[(&str, usize, &str)]) -> Vec<Finding> {
    let known =
        |path: &str| left.iter().find(|(own, ..)| *own == path).map_or(0, |(_, count, _)| *count);
    let mut findings: Vec<Finding> = found
        .iter()
        .filter(|(path, count)| *count > known(path))
        .map(|(path, count)| {
            let what = format!(
                "{count} lines name a language, {} may: it belongs into crates/agent",
                known(path)
            );
            Finding::new(path, 0, what)
        })
        .collect();
    for (path, count, _) in left {
        let now = found.iter().find(|(own, _)| own == path).map_or(0, |(_, now)| *now);
        if now < *count {
            let what = format!("{now} lines name a language: lower its {count} in languages.rs");
            findings.push(Finding::new(path, 0, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_named_in_one_crate() {
        let code = "// python\nlet x = \"Python\";\n#[cfg(test)]\nmod tests {\nlet y = \"python\";";
        assert_eq!(count("crates/mcp/src/a.rs", code), Some(("crates/mcp/src/a.rs".into(), 1)));
        assert_eq!(count("crates/agent/src/a.rs", code), None);
        assert_eq!(count("crates/mcp/tests/a.rs", code), None);
        let found = vec![("a".to_owned(), 2)];
        assert!(check(&found, &[("a", 2, "")]).is_empty());
        assert_eq!(check(&found, &[("a", 1, "")]).len(), 1);
        assert_eq!(check(&found, &[("a", 3, ""), ("b", 1, "")]).len(), 2);
    }
}
