//! Rules about commands that clients have the service start in a machine.
//!
//! ```text
//!   git status       this command
//!   git log *        it, with any further words
//!   pip install a*   a `*` in a word
//!   *                every command
//! ```
//!
//! A shell reads more in a text than words: `;`, `|`, `$`, quotes, new lines. No rule but `*`
//! allows such a text, and every rule that denies or asks covers it. A rule that denies a program
//! covers it in every directory.

use crate::glob::Glob;
use crate::pattern::RuleKind;
use std::borrow::Cow;

const LONGEST: usize = 1024;
const MOST_WORDS: usize = 64;

/// A command that a client has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandText<'a> {
    /// A program and its arguments.
    Words(&'a [String]),
    /// A text that a shell reads.
    Shell(&'a str),
}

impl<'a> CommandText<'a> {
    /// Its words, if it is nothing more.
    pub fn words(self) -> Option<Vec<&'a str>> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@+, \t".contains(&byte);
        match self {
            CommandText::Words(words) => Some(words.iter().map(String::as_str).collect()),
            CommandText::Shell(text) => {
                text.bytes().all(plain).then(|| text.split_ascii_whitespace().collect())
            }
        }
    }

    /// It in one line.
    pub fn text(self) -> Cow<'a, str> {
        match self {
            CommandText::Words(words) => Cow::Owned(words.join(" ")),
            CommandText::Shell(text) => Cow::Borrowed(text),
        }
    }
}

/// A rule about commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern {
    words: Vec<Glob>,
    /// Whether any further words may follow.
    more: bool,
}

impl CommandPattern {
    pub fn parse(text: &str) -> Result<CommandPattern, String> {
        let shown: String = text.chars().take(80).collect();
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let more = words.last() == Some(&"*");
        if more {
            words.pop();
        }
        if words.is_empty() && !more {
            return Err(format!("{shown:?}: write a command, such as `git log *`"));
        }
        if text.len() > LONGEST || words.len() > MOST_WORDS || text.contains(char::is_control) {
            return Err(format!("{shown:?}: a command has at most 1024 bytes and 64 words"));
        }
        Ok(CommandPattern { words: words.into_iter().map(Glob::new).collect(), more })
    }

    pub fn fits(&self, kind: RuleKind, command: CommandText<'_>) -> bool {
        let is_all = self.words.is_empty();
        let Some(words) = command.words() else { return is_all || kind != RuleKind::Allow };
        let enough = match self.more {
            true => words.len() >= self.words.len(),
            false => words.len() == self.words.len(),
        };
        let fits = |(at, (own, word)): (usize, (&Glob, &&str))| {
            let name = word.rsplit('/').next().unwrap_or(word);
            own.fits(word) || (at == 0 && kind != RuleKind::Allow && own.fits(name))
        };
        enough && self.words.iter().zip(&words).enumerate().all(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(rule: &str, kind: RuleKind, text: &str) -> bool {
        CommandPattern::parse(rule).expect(rule).fits(kind, CommandText::Shell(text))
    }

    #[test]
    fn commands_by_their_words() {
        for (rule, text) in [
            ("*", "ls; rm -rf /"),
            ("git status", " git  status "),
            ("git *", "git"),
            ("git log *", "git log -1 --format=oneline"),
            ("pip install a*", "pip install a==1"),
        ] {
            assert!(fits(rule, RuleKind::Allow, text), "{rule}: {text}");
        }
        for (rule, text) in [
            ("git", "git status"),
            ("git *", "git status; ls"),
            ("git *", "git $(id)"),
            ("git *", "git status\nls"),
            ("git *", "gitk"),
            ("git *", "/tmp/git status"),
            ("git *", "PATH=/tmp git status"),
            ("git *", ""),
            ("git *", "git 'a b'"),
        ] {
            assert!(!fits(rule, RuleKind::Allow, text), "{rule}: {text}");
        }
    }

    #[test]
    fn a_denial_covers_what_a_shell_may_read_otherwise() {
        for (rule, text) in [
            ("rm *", "rm -rf x"),
            ("rm *", "/bin/rm x"),
            ("rm *", "ls; true"),
            ("rm *", "r''m x"),
            ("git push *", "git push origin"),
        ] {
            assert!(fits(rule, RuleKind::Deny, text), "{rule}: {text}");
        }
        assert!(!fits("rm *", RuleKind::Deny, "ls -l"));
        assert!(!fits("git push *", RuleKind::Deny, "git log"));
    }

    #[test]
    fn words_of_a_program_are_not_read_by_a_shell() {
        let words = ["git", "commit", "-m", "a; b"].map(str::to_owned);
        let rule = CommandPattern::parse("git commit -m *").expect("a rule");
        assert!(rule.fits(RuleKind::Allow, CommandText::Words(&words)));
        let other = CommandPattern::parse("rm *").expect("a rule");
        assert!(!other.fits(RuleKind::Deny, CommandText::Words(&words)));
        let long = "x ".repeat(MOST_WORDS + 1);
        for rule in ["", "  ", "a\nb", &"x".repeat(LONGEST + 1), &long] {
            assert!(CommandPattern::parse(rule).is_err(), "{rule}");
        }
    }
}
