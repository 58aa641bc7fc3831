//! Rules about files that clients read and write through the service.
//!
//! ```text
//!   /home/user/*          everything below this directory, and the list of its names
//!   read /home/user/in/*  only reading: contents, lists, watches
//!   write /home/user/out  only writing: a new file, a link, a removal
//!   *                     every file
//! ```
//!
//! An operation on a directory with everything below it is allowed by a rule that covers all of
//! it, and denied by a rule about any of it.

use crate::glob::Glob;
use crate::pattern::RuleKind;
use std::fmt;

const LONGEST: usize = 1024;

/// The use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOperation {
    /// Its contents, its description, the names in a directory, its changes.
    Read,
    /// New contents, a link, its removal.
    Write,
}

impl FileOperation {
    pub fn named(word: &str) -> Option<FileOperation> {
        match word {
            "read" => Some(FileOperation::Read),
            "write" => Some(FileOperation::Write),
            _ => None,
        }
    }
}

impl fmt::Display for FileOperation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            FileOperation::Read => "read",
            FileOperation::Write => "write",
        })
    }
}

/// A file that a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileUse<'a> {
    pub operation: FileOperation,
    /// Absolute, without `.`, `..` and empty parts.
    pub path: &'a str,
    /// With everything below it.
    pub below: bool,
}

/// A rule about files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePattern {
    /// None means every operation.
    operation: Option<FileOperation>,
    text: String,
    path: Glob,
}

/// Whether a path has the form that operations have.
pub(crate) fn is_plain(path: &str) -> bool {
    let odd = |part: &str| part.is_empty() || part == "." || part == "..";
    let parts = path.strip_prefix('/');
    path == "/" || parts.is_some_and(|parts| !parts.split('/').any(odd) && !path.contains('\0'))
}

impl FilePattern {
    pub fn parse(text: &str) -> Result<FilePattern, String> {
        let shown: String = text.chars().take(80).collect();
        let wrong = |hint: &str| format!("{shown:?}: {hint}");
        let (operation, path) = match text.split_once(' ') {
            Some((word, path)) if !word.starts_with('/') => {
                let operation = FileOperation::named(word);
                (
                    Some(operation.ok_or_else(|| wrong("write `read` or `write`, then a path"))?),
                    path,
                )
            }
            _ => (None, text),
        };
        if path.len() > LONGEST || path.contains(char::is_control) {
            return Err(wrong("a path has at most 1024 bytes, and no control characters"));
        }
        if path != "*" && !is_plain(path) {
            return Err(wrong(
                "write an absolute path without `.`, `..`, `//` and a slash at its end, such as \
                 `/home/user/*`",
            ));
        }
        Ok(FilePattern { operation, text: path.to_owned(), path: Glob::new(path) })
    }

    pub fn fits(&self, kind: RuleKind, what: FileUse<'_>) -> bool {
        let FileUse { operation, path, below } = what;
        let path = match (below, kind) {
            (false, _) => self.path.fits(path) || self.lists(operation, path),
            (true, RuleKind::Allow) => {
                (self.path.fits(path) || self.lists(operation, path)) && self.has_all_below(path)
            }
            (true, _) => self.may_be_below(path),
        };
        path && self.operation.is_none_or(|own| own == operation)
    }

    /// Whether it is about everything in a directory that is read: its names.
    fn lists(&self, operation: FileOperation, dir: &str) -> bool {
        let all = self.text.ends_with("/*") && self.has_all_below(dir);
        operation == FileOperation::Read && all
    }

    /// Whether it fits every path below a directory. Its last star takes whatever follows.
    fn has_all_below(&self, dir: &str) -> bool {
        let dir = dir.trim_end_matches('/');
        self.text.ends_with('*') && self.path.fits(&format!("{dir}/"))
    }

    /// Whether it may fit a directory, or a path below it.
    fn may_be_below(&self, dir: &str) -> bool {
        if self.text == "*" {
            return true;
        }
        let parts = |path: &str| -> Vec<String> {
            path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let (own, dir) = (parts(&self.text), parts(dir));
        for (at, name) in dir.iter().enumerate() {
            let Some(rule) = own.get(at) else { return false };
            let last = at + 1 == own.len() && rule.ends_with('*');
            if last {
                return Glob::new(rule.as_str()).fits(&dir[at..].join("/"));
            }
            if !Glob::new(rule.as_str()).fits(name) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fits(rule: &str, kind: RuleKind, operation: FileOperation, path: &str, below: bool) -> bool {
        let rule = FilePattern::parse(rule).expect(rule);
        rule.fits(kind, FileUse { operation, path, below })
    }

    #[test]
    fn files_by_operation_and_path() {
        use FileOperation::{Read, Write};
        for (rule, operation, path) in [
            ("*", Write, "/"),
            ("/srv/user/*", Read, "/srv/user/a/b"),
            ("/srv/user/*", Read, "/srv/user"),
            ("/*", Read, "/"),
            ("read /etc/hosts", Read, "/etc/hosts"),
            ("write /srv/*/out/*", Write, "/srv/user/out/x"),
            ("/a b/c", Read, "/a b/c"),
        ] {
            assert!(fits(rule, RuleKind::Allow, operation, path, false), "{rule}");
        }
        for (rule, operation, path) in [
            ("/srv/user/*", Write, "/srv/user"),
            ("/srv/user/a*", Read, "/srv/user"),
            ("/srv/*/a/*", Read, "/srv/user/b"),
            ("read /etc/hosts", Write, "/etc/hosts"),
            ("/srv/*/out", Read, "/srv/a/b/out"),
            ("write *", Read, "/x"),
        ] {
            assert!(!fits(rule, RuleKind::Allow, operation, path, false), "{rule}");
        }
        for rule in ["", "srv", "/a/", "/a//b", "/a/../b", "read", "list /a", "~/x", "/a\nb"] {
            assert!(FilePattern::parse(rule).is_err(), "{rule}");
        }
    }

    #[test]
    fn a_directory_with_all_below_it() {
        let all = |rule, kind, path| fits(rule, kind, FileOperation::Write, path, true);
        for (rule, path, allows, denies) in [
            ("*", "/a", true, true),
            ("/a*", "/a", true, true),
            ("/a/*", "/a", false, true),
            ("/a/*", "/a/b", true, true),
            ("/a/keep", "/a", false, true),
            ("/a/keep", "/b", false, false),
            ("/a/*/keep", "/a/x", false, true),
            ("/a/*/keep", "/a/x/other", false, false),
            ("/a", "/a/b", false, false),
            ("/a/b", "/", false, true),
        ] {
            assert_eq!(all(rule, RuleKind::Allow, path), allows, "allow {rule} {path}");
            assert_eq!(all(rule, RuleKind::Deny, path), denies, "deny {rule} {path}");
        }
    }

    proptest! {
        /// A directory is as narrow as everything in it.
        #[test]
        fn all_below_is_never_wider(
            rule in "(/[ab*]{1,2}){1,3}", dir in "(/[ab]{1,2}){1,2}", rest in "(/[ab]{1,2}){1,2}",
        ) {
            let below = format!("{dir}{rest}");
            let write = FileOperation::Write;
            if fits(&rule, RuleKind::Allow, write, &dir, true) {
                prop_assert!(fits(&rule, RuleKind::Allow, write, &below, false));
                prop_assert!(fits(&rule, RuleKind::Allow, write, &dir, false));
            }
            let denied = |path: &str| fits(&rule, RuleKind::Deny, write, path, false);
            if denied(&below) || denied(&dir) {
                prop_assert!(fits(&rule, RuleKind::Deny, write, &dir, true));
            }
        }
    }
}
