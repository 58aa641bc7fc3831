//! Only the crate `agent` knows a language by name.
//!
//! Other crates may name one in keys of files and requests, which users and other products have
//! written, and in the words of other products for their clients.

use super::Finding;

/// Names of languages, and words that belong to one, in lower case.
const NAMES: [&str; 6] =
    ["python", "keyboardinterrupt", "pip install", "ensurepip", "javascript", "typescript"];

/// The seam; the surface of a product for one language; measurements and tests.
const OUTSIDE_THE_RULE: [&str; 4] =
    ["crates/agent/", "crates/mcpv8/", "crates/bench/", "crates/testbed/"];

/// Files that hold words of other products, for their clients.
const FOREIGN_WORDS: [&str; 3] =
    ["crates/forkd/src/tools.rs", "crates/mcp/src/forevervm.rs", "crates/server/src/repl.rs"];

/// Lines of code in a file below `crates/*/src` that name a language and may not.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let is_ours = path.starts_with("crates/") && path.contains("/src/") && !path.contains("tests");
    let is_free = OUTSIDE_THE_RULE.iter().any(|other| path.starts_with(other));
    if !is_ours || is_free || FOREIGN_WORDS.contains(&path) {
        return Vec::new();
    }
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let what = "names a language, which only crates/agent knows: add it to `Language` there";
    code.lines()
        .enumerate()
        .filter(|(_, line)| names_one(line))
        .map(|(index, _)| Finding::new(path, index + 1, what))
        .collect()
}

/// Whether a line of code names a language. Comments may, and so may keys of files and requests.
fn names_one(line: &str) -> bool {
    let line = line.trim_start().to_lowercase();
    let is_free = line.starts_with("//") || line.starts_with("#[serde(");
    !is_free && NAMES.iter().any(|name| line.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_named_in_one_crate() {
        let code = "// python\nlet x = \"Python\";\n#[cfg(test)]\nmod tests {\nlet y = \"python\";";
        let lines = |path: &str| check(path, code).iter().map(|one| one.line).collect::<Vec<_>>();
        assert_eq!(lines("crates/mcp/src/a.rs"), [2]);
        assert!(lines("crates/agent/src/a.rs").is_empty());
        assert!(lines("crates/mcp/tests/a.rs").is_empty());
        assert!(lines("crates/mcp/src/forevervm.rs").is_empty());
    }

    #[test]
    fn keys_that_users_have_written_stay() {
        let code = "#[serde(rename = \"python\")]\npub interpreter: PathBuf,";
        assert!(check("crates/template/src/a.rs", code).is_empty());
        assert_eq!(check("crates/template/src/a.rs", "let key = \"javascript\";").len(), 1);
    }
}
