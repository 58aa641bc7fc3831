//! Only the crate `agent` knows a language by name. Where another still does, it is counted here,
//! and the counts only fall.

use super::Finding;

/// What names a language, in lower case.
const NAMES: [&str; 4] = ["python", "keyboardinterrupt", "pip install", "ensurepip"];

/// The crate whose business it is, and those that are no part of the product.
const ALLOWED: [&str; 3] = ["crates/agent/", "crates/bench/", "crates/testbed/"];

/// Files of other crates, and how many of their lines of code do it.
pub const LEFT: &[(&str, usize)] = &[
    ("crates/cli/src/doctor/tools.rs", 8),
    ("crates/forkd/src/tools.rs", 2),
    ("crates/mcp/src/forevervm.rs", 9),
    ("crates/mcp/src/guide.rs", 1),
    ("crates/mcp/src/input.rs", 3),
    ("crates/mcp/src/output.rs", 1),
    ("crates/mcp/src/sets.rs", 1),
    ("crates/template/src/build.rs", 6),
    ("crates/template/src/check.rs", 4),
    ("crates/template/src/debian.rs", 5),
    ("crates/template/src/host/mod.rs", 14),
    ("crates/template/src/host/probe.rs", 11),
    ("crates/template/src/index.rs", 3),
    ("crates/template/src/jailed.rs", 1),
    ("crates/template/src/packages.rs", 23),
    ("crates/template/src/recipe.rs", 3),
    ("crates/template/src/root.rs", 2),
    ("crates/template/src/uv.rs", 4),
];

/// Files below `crates/*/src` that name a language, and how often.
pub fn count(path: &str, text: &str) -> Option<(String, usize)> {
    let ours = path.starts_with("crates/") && path.contains("/src/") && !path.contains("tests");
    if !ours || ALLOWED.iter().any(|other| path.starts_with(other)) {
        return None;
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let names = |line: &&str| {
        let line = line.trim_start().to_lowercase();
        !line.starts_with("//") && NAMES.iter().any(|name| line.contains(name))
    };
    let found = code.lines().filter(names).count();
    (found > 0).then(|| (path.to_owned(), found))
}

pub fn check(found: &[(String, usize)], left: &[(&str, usize)]) -> Vec<Finding> {
    let known =
        |path: &str| left.iter().find(|(own, _)| *own == path).map_or(0, |(_, count)| *count);
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
    for (path, count) in left {
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
        let code = "// python\nlet x = \"Python\";\n#[cfg(test)]\nlet y = \"python\";";
        assert_eq!(count("crates/mcp/src/a.rs", code), Some(("crates/mcp/src/a.rs".into(), 1)));
        assert_eq!(count("crates/agent/src/a.rs", code), None);
        assert_eq!(count("crates/mcp/tests/a.rs", code), None);
        let found = vec![("a".to_owned(), 2)];
        assert!(check(&found, &[("a", 2)]).is_empty());
        assert_eq!(check(&found, &[("a", 1)]).len(), 1);
        assert_eq!(check(&found, &[("a", 3), ("b", 1)]).len(), 2);
    }
}
