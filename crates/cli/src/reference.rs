//! A test that generates the command reference, `docs/reference/cli.md`, from the program.
//! `STASIS_WRITE_DOCUMENT=1 cargo test -p stasis-cli reference` writes it.

use crate::Cli;
use crate::config::KEYS;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const HEAD: &str = "\
# Commands

A test generates this page from the program: `STASIS_WRITE_DOCUMENT=1 cargo test -p stasis-cli
reference`.

Commands write data to standard output, and messages to standard error. An error is
`error[code]: message` with a hint. With `--json` it is an object
`{\"error\": {\"code\", \"message\", \"hint\"}}` on standard output.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | the command or the instruction failed |
| 2 | the command or the request is invalid |
| 3 | not found |
| 4 | conflict with the current state |
| 5 | the token is unknown or lacks a scope |
| 6 | the service is unreachable or busy |

`NO_COLOR` disables colours. `STASIS_IMAGES` (`kitty`, `iterm`, `sixel`, `file`) selects how images
are shown if the terminal does not identify itself. Images that cannot be shown are saved to a file.
";

#[test]
fn the_reference_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    let text = text();
    if std::env::var_os("STASIS_WRITE_DOCUMENT").is_some() {
        std::fs::write(path, &text).expect("it is written");
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    let hint = "STASIS_WRITE_DOCUMENT=1 cargo test -p stasis-cli reference";
    assert!(there == text, "docs/reference/cli.md is not what the commands are: {hint}");
}

fn text() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut text = HEAD.to_owned();
    text.push_str("\n## Global options\n\n");
    options(&mut text, cli.get_arguments().filter(|arg| arg.is_global_set()));
    for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
        describe(&mut text, command, "stasis", 2);
    }
    settings(&mut text);
    text
}

fn describe(text: &mut String, command: &Command, above: &str, depth: usize) {
    let name = format!("{above} {}", command.get_name());
    while text.ends_with("\n\n") {
        text.pop();
    }
    let _ = write!(text, "\n{} {name}\n\n", "#".repeat(depth));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "{about}.\n\n");
    let inner: Vec<_> =
        command.get_subcommands().filter(|command| command.get_name() != "help").collect();
    if inner.is_empty() {
        let usage = command.clone().render_usage().to_string();
        let _ = write!(text, "`{}`\n\n", usage.trim_start_matches("Usage: "));
    }
    options(text, command.get_arguments().filter(|arg| !arg.is_global_set()));
    for command in inner {
        describe(text, command, &name, depth + 1);
    }
    while text.ends_with("\n\n") {
        text.pop();
    }
}

fn options<'a>(text: &mut String, all: impl Iterator<Item = &'a Arg>) {
    let shown = |arg: &&Arg| !["help", "version"].contains(&arg.get_id().as_str());
    for arg in all.filter(shown).filter(|arg| !arg.is_hide_set()) {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let help = if help.is_empty() { String::new() } else { format!(": {help}") };
        let name = arg.to_string().replace('`', "");
        text.push_str(&wrapped(&format!("- `{name}`{help}{}", default(arg))));
    }
}

/// A list item in lines of at most 100 columns, broken at spaces outside code spans.
fn wrapped(item: &str) -> String {
    let mut in_code = false;
    let words = item.split(|c: char| {
        in_code ^= c == '`';
        c == ' ' && !in_code
    });
    let mut lines = String::new();
    let mut width = 0;
    for word in words {
        let length = word.chars().count();
        let (before, start) = match width {
            0 => ("", 0),
            width if width + 1 + length <= 100 => (" ", width + 1),
            _ => ("\n  ", 2),
        };
        lines.push_str(before);
        lines.push_str(word);
        width = start + length;
    }
    lines.push('\n');
    lines
}

/// The default of an option, and its possible values.
fn default(arg: &Arg) -> String {
    if !arg.get_action().takes_values() {
        return String::new();
    }
    let given = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let given = given.collect::<Vec<_>>().join(" ");
    let known: Vec<String> =
        arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
    let given = if given.is_empty() { String::new() } else { format!(" [default: {given}]") };
    known + &given
}

fn settings(text: &mut String) {
    text.push_str(
        "\n## Settings\n\nFlags take precedence, then the environment, `config.toml`, the stored \
         login, and the defaults.\n`stasis config` shows the values in use.\n\n\
         | key | environment | default | meaning |\n|---|---|---|---|\n",
    );
    for key in KEYS.iter() {
        // values that differ between hosts
        let default = match key.name {
            "data_dir" => "$XDG_DATA_HOME/stasis".to_owned(),
            "limits.cpus" => "three quarters of the host's".to_owned(),
            _ => (key.default)().map_or_else(|| "none".to_owned(), |value| value.to_string()),
        };
        let _ =
            writeln!(text, "| `{}` | `{}` | {default} | {} |", key.name, key.variable(), key.about);
    }
}
