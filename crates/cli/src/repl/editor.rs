//! The prompt on a terminal: editing over several lines, history, and completion from the machine.

use super::words::WORDS;
use super::{colour, lines};
use crate::client::{Client, escape};
use crate::failure::{CliFailure, Result};
use crate::session::Typed;
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
use stasis_agent::{Language, Syntax};
use stasis_api::{MachineInfo, TemplateInfo};
use std::borrow::Cow;
use std::path::PathBuf;

/// The user's action.
pub enum EditorInput {
    Code(String),
    /// The line was discarded.
    Again,
    End,
}

pub struct LineEditor<'a> {
    editor: Editor<Live<'a>, DefaultHistory>,
    history: PathBuf,
}

fn broken(error: &ReadlineError) -> CliFailure {
    CliFailure::new("terminal", format!("the terminal: {error}"))
}

/// The language of a machine's instructions; without it there are no colours.
fn language_of(client: &Client, machine: &str) -> &'static dyn Language {
    let found = client.get::<MachineInfo>(&format!("/v1/machine/{machine}"));
    let template = found.and_then(|machine| {
        client.get::<TemplateInfo>(&format!("/v1/template/{}", escape::part(&machine.template)))
    });
    let found = template.ok().and_then(|template| stasis_agent::language(&template.language));
    found.unwrap_or_else(stasis_agent::default)
}

impl<'a> LineEditor<'a> {
    pub fn open(client: &'a Client, machine: &'a str, history: PathBuf) -> Result<LineEditor<'a>> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(10_000)
            .and_then(|builder| builder.history_ignore_dups(true))
            .map(|builder| builder.tab_stop(4).indent_size(4).auto_add_history(false).build())
            .map_err(|error| broken(&error))?;
        let mut editor = Editor::with_config(config).map_err(|error| broken(&error))?;
        let syntax = language_of(client, machine).syntax();
        editor.set_helper(Some(Live { client, machine, syntax, asks: false }));
        // the session works without a history
        let _ = editor.load_history(&history);
        Ok(LineEditor { editor, history })
    }

    pub fn next(&mut self) -> Result<EditorInput> {
        match self.editor.readline(">>> ") {
            Ok(text) => {
                if !text.trim().is_empty() {
                    let _ = self.editor.add_history_entry(text.trim_end());
                    let _ = self.editor.append_history(&self.history);
                }
                Ok(EditorInput::Code(text))
            }
            Err(ReadlineError::Interrupted) => Ok(EditorInput::Again),
            Err(ReadlineError::Eof) => Ok(EditorInput::End),
            Err(error) => Err(broken(&error)),
        }
    }

    /// A line for `input()`. The same editor reads it and may already have it: a paste contains the
    /// code and its answers.
    pub fn ask(&mut self, prompt: &str) -> Result<Typed> {
        self.set_asks(true);
        let typed = self.editor.readline(show::clean(prompt, false).as_ref());
        self.set_asks(false);
        match typed {
            Ok(line) => Ok(Typed::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(broken(&error)),
        }
    }

    fn set_asks(&mut self, asks: bool) {
        if let Some(live) = self.editor.helper_mut() {
            live.asks = asks;
        }
    }
}

/// Callbacks of the editor while the user types.
struct Live<'a> {
    client: &'a Client,
    machine: &'a str,
    syntax: &'static Syntax,
    /// The line is for `input()`, not code.
    asks: bool,
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
        if self.asks {
            return Ok((pos, Vec::new()));
        }
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

/// Names come from a machine: only plain words reach the terminal.
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
        Ok(match self.asks || lines::are_whole(&format!("{}\n", context.input())) {
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
        match show::colours() && !self.asks && !line.starts_with(':') {
            true => colour::paint(self.syntax, line).into(),
            false => line.into(),
        }
    }

    fn highlight_char(&self, _: &str, _: usize, _: CmdKind) -> bool {
        show::colours()
    }
}

impl Helper for Live<'_> {}
