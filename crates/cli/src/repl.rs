//! The interactive session on a machine.
//!
//!   source (terminal or pipe) ─► lines: whole yet? ─┬─► `:word` ─► words
//!                                                   └─► code   ─► session ─► screen
//!
//! The machine outlives the session: it keeps its state when the user leaves or the connection
//! breaks.

mod colour;
mod editor;
mod lines;
mod words;

use crate::client::Client;
use crate::context::Context;
use crate::failure::{CliFailure, Result};
use crate::session::{self, RunRequest, TimeoutArg};
use crate::show::{self, Screen, show_chunk};
use editor::{EditorInput, LineEditor};
use serde_json::json;
use stasis_api::{Chunk, Instruction, Status};
use std::cell::RefCell;
use std::io::{BufRead, IsTerminal};
use words::ReplCommand;

/// Words that leave a Python prompt leave this one too.
const LEAVING: [&str; 4] = ["exit", "exit()", "quit", "quit()"];

pub struct Repl<'a> {
    pub client: &'a Client,
    pub machine: String,
    pub timeout: TimeoutArg,
    pub context: &'a Context,
}

/// The result of a piece of input.
enum Step {
    /// Code ran; whether it succeeded.
    Ran(bool),
    /// Nothing ran.
    Said,
    Leave,
}

impl Repl<'_> {
    /// Runs until the end of input; whether the last instruction succeeded.
    pub fn talk(&self) -> Result<bool> {
        match std::io::stdin().is_terminal() {
            true => self.talk_to_terminal(),
            false => self.talk_to_pipe(),
        }
    }

    fn talk_to_terminal(&self) -> Result<bool> {
        let history = self.context.config.data_dir().join("repl_history");
        let terminal = RefCell::new(LineEditor::open(self.client, &self.machine, history)?);
        let mut well = true;
        loop {
            let next = terminal.borrow_mut().next()?;
            match next {
                EditorInput::Code(code) => match self.obey(&code, Some(&terminal)) {
                    Ok(Step::Ran(ended)) => well = ended,
                    Ok(Step::Said) => {}
                    Ok(Step::Leave) => return Ok(well),
                    // a mistake does not end the session
                    Err(failure) => eprintln!("{failure}"),
                },
                EditorInput::Again => {}
                EditorInput::End => return Ok(well),
            }
        }
    }

    /// Lines of a pipe: an error of the service ends it, an error of the code does not.
    fn talk_to_pipe(&self) -> Result<bool> {
        let mut well = true;
        let mut lines = std::io::stdin().lock().lines();
        let mut text = String::new();
        loop {
            let line = lines.next().transpose();
            let line =
                line.map_err(|error| CliFailure::usage(format!("read standard input: {error}")))?;
            let over = line.is_none();
            text.extend(line.into_iter().flat_map(|line| [line, "\n".to_owned()]));
            if over || lines::are_whole(&text) {
                match self.obey(&std::mem::take(&mut text), None)? {
                    Step::Ran(ended) => well = ended,
                    Step::Said => {}
                    Step::Leave => return Ok(well),
                }
            }
            if over {
                return Ok(well);
            }
        }
    }

    /// Executes a piece of input. At a terminal, code may request more input.
    fn obey(&self, text: &str, terminal: Option<&RefCell<LineEditor>>) -> Result<Step> {
        let text = text.trim_end();
        if text.trim().is_empty() {
            return Ok(Step::Said);
        }
        match text.trim_start().strip_prefix(':').map(ReplCommand::parse).transpose()? {
            Some(ReplCommand::Quit) => Ok(Step::Leave),
            Some(word) => word.obey(self).map(|()| Step::Said),
            None if LEAVING.contains(&text.trim()) => Ok(Step::Leave),
            None => self.run(text, terminal),
        }
    }

    fn run(&self, code: &str, terminal: Option<&RefCell<LineEditor>>) -> Result<Step> {
        let order =
            RunRequest { code: code.to_owned(), timeout: self.timeout, ..RunRequest::default() };
        if self.context.json {
            return self.run_for_program(&order);
        }
        let instruction = match terminal {
            Some(terminal) => {
                let ask = &mut |prompt: &str| terminal.borrow_mut().ask(prompt);
                session::run_asking(self.client, &self.machine, &order, show_chunk, ask)?
            }
            None => session::run(self.client, &self.machine, &order, show_chunk)?,
        };
        if is_exit(&instruction) {
            return Ok(Step::Leave);
        }
        Screen::new().show(&self.machine, &instruction).map(Step::Ran)
    }

    /// A line for each instruction, so that programs can follow.
    fn run_for_program(&self, order: &RunRequest) -> Result<Step> {
        let mut outputs = Vec::new();
        let each = |chunk: &Chunk| outputs.push(chunk.clone());
        let instruction = session::run(self.client, &self.machine, order, each)?;
        let (machine, well) = (&self.machine, show::went_well(&instruction));
        let line = json!({ "machine": machine, "instruction": instruction, "outputs": outputs });
        show::say(&line.to_string());
        Ok(if is_exit(&instruction) { Step::Leave } else { Step::Ran(well) })
    }
}

/// Whether the code requested to leave, as `sys.exit()` does.
fn is_exit(instruction: &Instruction) -> bool {
    let error = instruction.outcome.as_ref().and_then(|outcome| outcome.error.as_ref());
    instruction.status == Status::Failed && error.is_some_and(|error| error.name == "SystemExit")
}
