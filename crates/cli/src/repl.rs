//! Talking to a machine line by line.
//!
//!   source (terminal or pipe) ─► lines: whole yet? ─┬─► `:word` ─► words
//!                                                   └─► code   ─► session ─► screen
//!
//! The machine outlives the conversation: leaving is harmless, and so is losing the connection.

mod editor;
mod lines;
mod words;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Result;
use crate::session::{self, Order, Timeout};
use crate::show::{Screen, show_chunk};
use editor::{Next, Terminal};
use std::io::{BufRead, IsTerminal};
use words::Word;

pub struct Repl<'a> {
    pub client: &'a Client,
    pub machine: String,
    pub timeout: Timeout,
    pub context: &'a Context,
}

impl Repl<'_> {
    /// Talks until the end of input; whether the last instruction went well.
    pub fn talk(&self) -> Result<bool> {
        match std::io::stdin().is_terminal() {
            true => self.at_terminal(),
            false => self.from_pipe(),
        }
    }

    fn at_terminal(&self) -> Result<bool> {
        let history = self.context.config.data_dir().join("repl_history");
        let mut terminal = Terminal::open(self.client, &self.machine, history)?;
        let mut well = true;
        loop {
            match terminal.next()? {
                Next::Code(code) => match self.obey(&code) {
                    Ok(Some(ended)) => well = ended,
                    Ok(None) => return Ok(well),
                    // a mistake is no reason to leave
                    Err(failure) => eprintln!("{failure}"),
                },
                Next::Again => {}
                Next::End => return Ok(well),
            }
        }
    }

    /// Lines of a pipe: the first failure of a service ends it, a failure of code does not.
    fn from_pipe(&self) -> Result<bool> {
        let mut well = true;
        let mut text = String::new();
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|error| {
                crate::failure::Failure::usage(format!("read standard input: {error}"))
            })?;
            text.push_str(&line);
            text.push('\n');
            if lines::are_whole(&text) {
                match self.obey(&std::mem::take(&mut text))? {
                    Some(ended) => well = ended,
                    None => return Ok(well),
                }
            }
        }
        Ok(self.obey(&text)?.unwrap_or(well) && well)
    }

    /// Does what a piece of input says. `None`: it says to leave.
    fn obey(&self, text: &str) -> Result<Option<bool>> {
        let text = text.trim_end();
        if text.trim().is_empty() {
            return Ok(Some(true));
        }
        match text.trim_start().strip_prefix(':') {
            Some(word) => match Word::parse(word) {
                Ok(Word::Quit) => Ok(None),
                Ok(word) => word.obey(self).map(|()| Some(true)),
                Err(unknown) => Err(unknown),
            },
            None => self.run(text).map(Some),
        }
    }

    fn run(&self, code: &str) -> Result<bool> {
        let order = Order { code: code.to_owned(), timeout: self.timeout, ..Order::default() };
        let instruction = session::run(self.client, &self.machine, &order, show_chunk)?;
        Screen::new().show(&self.machine, &instruction)
    }
}
