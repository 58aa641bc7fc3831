//! Talking to a machine line by line.
//!
//!   source (terminal or pipe) ─► lines: whole yet? ─┬─► `:word` ─► words
//!                                                   └─► code   ─► session ─► screen
//!
//! The machine outlives the conversation: leaving is harmless, and so is losing the connection.

mod colour;
mod editor;
mod lines;
mod words;

use crate::client::Client;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::session::{self, Order, Timeout};
use crate::show::{self, Screen, show_chunk};
use editor::{Next, Terminal};
use serde_json::json;
use stasis_api::Chunk;
use std::io::{BufRead, IsTerminal};
use words::Word;

pub struct Repl<'a> {
    pub client: &'a Client,
    pub machine: String,
    pub timeout: Timeout,
    pub context: &'a Context,
}

/// What came of a piece of input.
enum Step {
    /// Code ran; whether it went well.
    Ran(bool),
    /// Nothing ran.
    Said,
    Leave,
}

impl Repl<'_> {
    /// Talks until the end of input; whether the last instruction went well.
    pub fn talk(&self) -> Result<bool> {
        match std::io::stdin().is_terminal() {
            true => self.talk_to_terminal(),
            false => self.talk_to_pipe(),
        }
    }

    fn talk_to_terminal(&self) -> Result<bool> {
        let history = self.context.config.data_dir().join("repl_history");
        let mut terminal = Terminal::open(self.client, &self.machine, history)?;
        let mut well = true;
        loop {
            match terminal.next()? {
                Next::Code(code) => match self.obey(&code) {
                    Ok(Step::Ran(ended)) => well = ended,
                    Ok(Step::Said) => {}
                    Ok(Step::Leave) => return Ok(well),
                    // a mistake is no reason to leave
                    Err(failure) => eprintln!("{failure}"),
                },
                Next::Again => {}
                Next::End => return Ok(well),
            }
        }
    }

    /// Lines of a pipe: the first failure of a service ends it, a failure of code does not.
    fn talk_to_pipe(&self) -> Result<bool> {
        let mut well = true;
        let mut lines = std::io::stdin().lock().lines();
        let mut text = String::new();
        loop {
            let line = lines.next().transpose();
            let line =
                line.map_err(|error| Failure::usage(format!("read standard input: {error}")))?;
            let over = line.is_none();
            text.extend(line.into_iter().flat_map(|line| [line, "\n".to_owned()]));
            if over || lines::are_whole(&text) {
                match self.obey(&std::mem::take(&mut text))? {
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

    /// Does what a piece of input says.
    fn obey(&self, text: &str) -> Result<Step> {
        let text = text.trim_end();
        if text.trim().is_empty() {
            return Ok(Step::Said);
        }
        match text.trim_start().strip_prefix(':').map(Word::parse).transpose()? {
            Some(Word::Quit) => Ok(Step::Leave),
            Some(word) => word.obey(self).map(|()| Step::Said),
            None => self.run(text).map(Step::Ran),
        }
    }

    fn run(&self, code: &str) -> Result<bool> {
        let order = Order { code: code.to_owned(), timeout: self.timeout, ..Order::default() };
        if self.context.json {
            return self.run_for_program(&order);
        }
        let instruction = session::run(self.client, &self.machine, &order, show_chunk)?;
        Screen::new().show(&self.machine, &instruction)
    }

    /// A line for each instruction, so that programs can follow.
    fn run_for_program(&self, order: &Order) -> Result<bool> {
        let mut outputs = Vec::new();
        let each = |chunk: &Chunk| outputs.push(chunk.clone());
        let instruction = session::run(self.client, &self.machine, order, each)?;
        let (machine, well) = (&self.machine, show::went_well(&instruction));
        let line = json!({ "machine": machine, "instruction": instruction, "outputs": outputs });
        show::say(&line.to_string());
        Ok(well)
    }
}
