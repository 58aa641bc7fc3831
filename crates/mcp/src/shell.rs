//! Shell commands and packages, as code that the agent in a machine understands.
//!
//! The code is what the log shows, so it is as plain as the command allows. Its value is the exit
//! code.

use crate::error::{Error, Result};

/// Packages of one call.
const MAX_PACKAGES: usize = 100;

/// Code that runs a command.
pub fn command(command: &str) -> String {
    let command = command.trim();
    let line = if is_plain(command) { command.to_owned() } else { quoted(command) };
    format!("!{line}\n_exit_code")
}

/// Whether a notebook line carries the command as it is: braces mean variables there.
fn is_plain(command: &str) -> bool {
    let odd = |c: char| c == '{' || c.is_control();
    !command.contains(odd) && !command.starts_with(['!', '%', '=']) && !command.ends_with('\\')
}

/// The command as one word of one line.
fn quoted(command: &str) -> String {
    let mut word = String::from("bash -c $'");
    for c in command.chars() {
        match c {
            '\\' | '\'' => word.extend(['\\', c]),
            '\n' => word.push_str("\\n"),
            '{' => word.push_str("\\x7b"),
            c if c.is_ascii_control() => word.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() => word.push_str(&format!("\\u{:04x}", c as u32)),
            c => word.push(c),
        }
    }
    word + "'"
}

/// Code that installs packages.
pub fn install(packages: &[String]) -> Result<String> {
    if packages.is_empty() || packages.len() > MAX_PACKAGES {
        return Err(Error::Invalid(format!("one call installs 1 to {MAX_PACKAGES} packages")));
    }
    let words: Result<Vec<_>> = packages.iter().map(|package| requirement(package)).collect();
    Ok(format!("!pip install --retries 1 {}\n_exit_code", words?.join(" ")))
}

/// A requirement as a word; nothing that pip or a shell takes for anything else.
fn requirement(package: &str) -> Result<String> {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-[],<>=!~*+ ;".contains(c);
    let named = package.starts_with(|c: char| c.is_ascii_alphanumeric());
    if named && package.len() <= 200 && package.chars().all(known) {
        return Ok(format!("'{package}'"));
    }
    let shown: String = package.chars().take(80).collect();
    Err(Error::Invalid(format!("{shown:?} is not a package: write names such as `pandas==2.3`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_commands_stay_plain() {
        assert_eq!(command("ls -l | wc"), "!ls -l | wc\n_exit_code");
    }

    #[test]
    fn odd_commands_become_one_word() {
        let want = "!bash -c $'for x in \\x7b1..3}; do\\necho \\'$x\\' \\\\\\\\; done'\n_exit_code";
        assert_eq!(command("for x in {1..3}; do\necho '$x' \\\\; done"), want);
        assert_eq!(command("!ls"), "!bash -c $'!ls'\n_exit_code");
    }

    #[test]
    fn what_is_no_package() {
        for package in ["", "-r x", "a'b", "a\nb", "{a}", "$(id)", "/etc", "a&b"] {
            assert!(install(&[package.to_owned()]).is_err(), "{package:?}");
        }
        let code = install(&["pandas[sql]>=2".into(), "six".into()]).expect("packages");
        assert_eq!(code, "!pip install --retries 1 'pandas[sql]>=2' 'six'\n_exit_code");
    }
}
