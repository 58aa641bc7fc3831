//! The prompt on a terminal: editing over several lines, history, and completion from the machine.

use super::words::WORDS;
use super::{colour, lines};
use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::show;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Editor, Helper};
use serde::Deserialize;
use serde_json::json;
use std::borrow::Cow;
use std::path::PathBuf;

/// What the user did.
pub enum Next {
    Code(String),
    /// Nothing that matters: a line was thrown away.
    Again,
    End,
}

pub struct Terminal<'a> {
    editor: Editor<Live<'a>, DefaultHistory>,
    history: PathBuf,
}

fn broken(error: &ReadlineError) -> Failure {
    Failure::new("terminal", format!("the terminal: {error}"))
}

impl<'a> Terminal<'a> {
    pub fn open(client: &'a Client, machine: &'a str, history: PathBuf) -> Result<Terminal<'a>> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(10_000)
            .and_then(|builder| builder.history_ignore_dups(true))
            .map(|builder| builder.tab_stop(4).indent_size(4).auto_add_history(false).build())
            .map_err(|error| broken(&error))?;
        let mut editor = Editor::with_config(config).map_err(|error| broken(&error))?;
        editor.set_helper(Some(Live { client, machine }));
        // no history is no reason not to talk
        let _ = editor.load_history(&history);
        Ok(Terminal { editor, history })
    }

    pub fn next(&mut self) -> Result<Next> {
        match self.editor.readline(">>> ") {
            Ok(text) => {
                if !text.trim().is_empty() {
                    let _ = self.editor.add_history_entry(text.trim_end());
                    let _ = self.editor.append_history(&self.history);
                }
                Ok(Next::Code(text))
            }
            Err(ReadlineError::Interrupted) => Ok(Next::Again),
            Err(ReadlineError::Eof) => Ok(Next::End),
            Err(error) => Err(broken(&error)),
        }
    }
}

/// What the editor asks while the user types.
struct Live<'a> {
    client: &'a Client,
    machine: &'a str,
}

#[derive(Deserialize)]
struct Completed {
    start: usize,
    names: Vec<String>,
}

impl Completer for Live<'_> {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..pos];
        if let Some(word) = before.strip_prefix(':') {
            return Ok((1, words(word)));
        }
        // Tab at the beginning of a line indents
        if before.rsplit('\n').next().is_none_or(|line| line.trim().is_empty()) {
            return Ok((pos, vec!["    ".to_owned()]));
        }
        let path = format!("/v1/machine/{}/complete", self.machine);
        let body = json!({ "code": line, "cursor": before.chars().count() });
        Ok(match self.client.post::<Completed>(&path, &body) {
            Ok(Completed { start, names }) => (byte_of(line, start).min(pos), printable(names)),
            Err(_) => (pos, Vec::new()),
        })
    }
}

fn words(begun: &str) -> Vec<String> {
    let fits = WORDS.iter().filter(|(_, name, _)| name.starts_with(begun));
    fits.map(|(_, name, _)| (*name).to_owned()).collect()
}

/// Names come from a machine: what is not a plain word does not get to the terminal.
fn printable(names: Vec<String>) -> Vec<String> {
    let plain = |name: &String| name.len() <= 200 && !name.chars().any(char::is_control);
    names.into_iter().filter(plain).take(500).collect()
}

/// Where a character begins.
fn byte_of(line: &str, character: usize) -> usize {
    line.char_indices().nth(character).map_or(line.len(), |(at, _)| at)
}

impl Validator for Live<'_> {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(match lines::are_whole(&format!("{}\n", context.input())) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Hinter for Live<'_> {
    type Hint = String;
}

impl Highlighter for Live<'_> {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        match show::colours() && !line.starts_with(':') {
            true => colour::paint(line).into(),
            false => line.into(),
        }
    }

    fn highlight_char(&self, _: &str, _: usize, _: CmdKind) -> bool {
        show::colours()
    }
}

impl Helper for Live<'_> {}
