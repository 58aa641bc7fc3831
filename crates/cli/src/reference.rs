//! The reference of commands, `docs/reference/cli.md`, out of what the program itself knows of
//! them. A test: `STASIS_WRITE_DOCUMENT=1 cargo test -p stasis-cli reference` writes it anew.

use crate::Cli;
use crate::config::KEYS;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const HEAD: &str = "\
# Commands

Written by a test from the program itself: `STASIS_WRITE_DOCUMENT=1 cargo test -p stasis-cli
reference`.

Standard output is data, standard error is talk. A failure is `error[code]: message` with a hint,
or with `--json` an object `{\"error\": {\"code\", \"message\", \"hint\"}}` on standard output.

| exit | means |
|---|---|
| 0 | it worked |
| 1 | it did not work, or the instruction failed |
| 2 | the command or the request makes no sense as it is |
| 3 | there is no such thing |
| 4 | it conflicts with what is there |
| 5 | the token is unknown, or does not allow it |
| 6 | nobody answers, or not now |

`NO_COLOR` turns colours off. `STASIS_IMAGES` (`kitty`, `iterm`, `sixel`, `file`) says how images
are shown where the terminal does not say what it is; without it those that cannot be drawn are
saved to a file.
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
    text.push_str("\n## Options of every command\n\n");
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
        let _ = writeln!(text, "- `{}`{help}{}", arg.to_string().replace('`', ""), default(arg));
    }
}

/// What holds if an option is not given, and what it may say.
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
        "\n## Settings\n\nFlags come first, then the environment, then `config.toml`, then what \
         `login` kept, then defaults. `stasis config` shows what is in force.\n\n\
         | key | environment | default | is |\n|---|---|---|---|\n",
    );
    for key in KEYS.iter() {
        // what differs from host to host
        let default = match key.name {
            "data_dir" => "$XDG_DATA_HOME/stasis".to_owned(),
            "limits.cpus" => "three quarters of the host's".to_owned(),
            _ => (key.default)().map_or_else(|| "none".to_owned(), |value| value.to_string()),
        };
        let _ =
            writeln!(text, "| `{}` | `{}` | {default} | {} |", key.name, key.variable(), key.about);
    }
}
