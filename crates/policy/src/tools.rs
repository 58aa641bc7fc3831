//! Rules about tools that code calls.
//!
//! ```text
//!   github.create_issue              one tool of a server
//!   github.*, github.list_*, *       several
//!   github.create_issue repo=acme/*  a call with this argument
//! ```
//!
//! A rule with arguments fits a call that has all of them. An argument that is a list or an object
//! is not allowed by such a rule, and is always denied by it.

use crate::glob::Glob;
use crate::pattern::RuleKind;
use serde_json::Value;

const LONGEST: usize = 1024;
const MOST_ARGUMENTS: usize = 16;

/// A rule about calls of tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPattern {
    server: Glob,
    tool: Glob,
    /// The path of each argument, and its value.
    arguments: Vec<(Vec<String>, Glob)>,
}

impl ToolPattern {
    pub fn parse(text: &str) -> Result<ToolPattern, String> {
        let wrong = |hint: &str| {
            let shown: String = text.chars().take(80).collect();
            format!("{shown:?} is not a tool: {hint}")
        };
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        let (server, tool) = match name {
            "*" => ("*", "*"),
            name => name.split_once('.').unwrap_or((name, "")),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.*/".contains(&byte);
        let named = |name: &str| !name.is_empty() && name.bytes().all(plain);
        if !named(server) || !named(tool) || text.len() > LONGEST {
            return Err(wrong("write SERVER.TOOL, SERVER.* or SERVER.TOOL ARGUMENT=VALUE"));
        }
        let mut arguments = Vec::new();
        for word in words {
            let (path, value) = word.split_once('=').unwrap_or_default();
            if path.is_empty() || path.split('.').any(str::is_empty) {
                return Err(wrong("after the tool, write ARGUMENT=VALUE without spaces"));
            }
            arguments.push((path.split('.').map(str::to_owned).collect(), Glob::new(value)));
        }
        if arguments.len() > MOST_ARGUMENTS {
            return Err(wrong("a rule has at most 16 arguments"));
        }
        Ok(ToolPattern { server: Glob::new(server), tool: Glob::new(tool), arguments })
    }

    pub fn fits(&self, kind: RuleKind, server: &str, tool: &str, arguments: &Value) -> bool {
        let has = |(path, own): &(Vec<String>, Glob)| {
            let found = path.iter().try_fold(arguments, |value, part| value.get(part));
            found.is_some_and(|value| match value {
                Value::String(text) => own.fits(text),
                Value::Object(_) | Value::Array(_) => kind != RuleKind::Allow,
                value => own.fits(&value.to_string()),
            })
        };
        self.server.fits(server) && self.tool.fits(tool) && self.arguments.iter().all(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tools_by_name_and_arguments() {
        let call = json!({ "repo": "acme/site", "n": 3, "who": { "name": "x" }, "all": [1] });
        let fits = |rule: &str| {
            let rule = ToolPattern::parse(rule).expect(rule);
            rule.fits(RuleKind::Allow, "github", "create_issue", &call)
        };
        for rule in [
            "*",
            "*.*",
            "github.*",
            "github.create_issue",
            "github.create_*",
            "git*.*_issue",
            "github.create_issue repo=acme/*",
            "github.* n=3 who.name=x",
        ] {
            assert!(fits(rule), "{rule}");
        }
        for rule in [
            "gitlab.*",
            "github.delete_*",
            "github.create_issue repo=other/*",
            "github.* n=4",
            "github.* gone=*",
            "github.* all=*",
            "github.* who=*",
            "github.* n.x=3",
        ] {
            assert!(!fits(rule), "{rule}");
        }
        let list = ToolPattern::parse("github.* all=*").expect("a rule");
        assert!(list.fits(RuleKind::Deny, "github", "create_issue", &call));
        for rule in ["", "github", "github.", ".x", "github.x repo", "github.x =1", "a.b c..d=1"] {
            assert!(ToolPattern::parse(rule).is_err(), "{rule}");
        }
    }
}
