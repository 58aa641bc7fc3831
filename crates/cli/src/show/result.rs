//! Output and results of instructions, for people.
//!
//! Lines are printed as they arrive. At the end follow displays, the value, or the traceback. Lost
//! state is reported on standard error. The rest of the receipt is for programs.

use super::image::{self, ImageProtocol};
use super::{clean, say};
use crate::failure::Result;
use stasis_api::{Chunk, Data, Instruction, Outcome, Status, Stream};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// The destination of results.
pub struct Screen {
    drawing: ImageProtocol,
    /// The directory for images.
    dir: PathBuf,
    /// Cleaned for a terminal, or as it is.
    terminal: bool,
}

/// Prints a line of output as it arrives.
pub fn show_chunk(chunk: &Chunk) {
    match chunk.stream {
        Stream::Stdout if std::io::stdout().is_terminal() => say(&clean(&chunk.data, colours())),
        Stream::Stdout => say(&chunk.data),
        Stream::Stderr => complain(&chunk.data),
    }
}

/// Prints a message, or a line of a machine's standard error.
fn complain(text: &str) {
    let mut err = std::io::stderr();
    let terminal = err.is_terminal();
    let text = if terminal { clean(text, colours()) } else { text.into() };
    // a closed pipe is not a reason to stop
    let _ = writeln!(err, "{text}");
}

/// Whether colours are enabled.
pub fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Screen {
    pub fn new() -> Screen {
        let terminal = std::io::stdout().is_terminal();
        Screen { drawing: ImageProtocol::of_terminal(), dir: PathBuf::new(), terminal }
    }

    /// Prints the end of an instruction; whether it succeeded.
    pub fn show(&self, machine: &str, instruction: &Instruction) -> Result<bool> {
        let mut number = 0;
        if let Some(outcome) = &instruction.outcome {
            self.shown(machine, instruction.seq, outcome, &mut number)?;
            self.value(machine, instruction.seq, outcome, &mut number)?;
            self.trouble(outcome);
        }
        if let Some(word) = ending(instruction) {
            complain(&word);
        }
        if let Some(lost) = instruction.receipt.as_ref().and_then(|receipt| receipt.lost.as_ref()) {
            complain(&format!("lost: {lost}"));
        }
        Ok(went_well(instruction))
    }

    fn shown(&self, machine: &str, seq: u64, outcome: &Outcome, number: &mut usize) -> Result<()> {
        for shown in &outcome.shown {
            match plain(&shown.data) {
                _ if self.image(machine, seq, &shown.data, number)? => {}
                Some(text) => self.print(text),
                None => {}
            }
        }
        Ok(())
    }

    fn value(&self, machine: &str, seq: u64, outcome: &Outcome, number: &mut usize) -> Result<()> {
        if let Some(data) = &outcome.data {
            self.image(machine, seq, data, number)?;
        }
        if let Some(value) = &outcome.value {
            self.print(value);
        }
        Ok(())
    }

    fn trouble(&self, outcome: &Outcome) {
        if let Some(error) = &outcome.error {
            match error.traceback.trim_end() {
                "" => complain(&format!("{}: {}", error.name, error.message)),
                traceback => complain(traceback),
            }
        }
        if let Some(cut) = &outcome.cut {
            complain(&format!("note: {cut}"));
        }
    }

    /// Draws or saves the image of a bundle; whether there was one.
    fn image(&self, machine: &str, seq: u64, data: &Data, number: &mut usize) -> Result<bool> {
        let Some(png) = image::png(data) else { return Ok(false) };
        let name = format!("stasis-{machine}-{seq}-{number}.png");
        *number += 1;
        if let Some(path) = image::show(&png, self.drawing, &self.dir, &name)? {
            complain(&format!("image saved: {}", path.display()));
        }
        Ok(true)
    }

    fn print(&self, text: &str) {
        match self.terminal {
            true => say(&clean(text, colours())),
            false => say(text),
        }
    }
}

fn plain(data: &Data) -> Option<&str> {
    ["text/plain", "text/markdown", "text/html"].iter().find_map(|kind| data.get(*kind)?.as_str())
}

/// The message for an instruction that did not simply end.
fn ending(instruction: &Instruction) -> Option<String> {
    let seq = instruction.seq;
    match instruction.status {
        Status::Done | Status::Failed | Status::Queued | Status::Running => None,
        Status::Interrupted => {
            Some(format!("note: instruction {seq} was interrupted; the machine kept its state"))
        }
        Status::Cancelled => Some(format!("note: instruction {seq} was cancelled and never ran")),
        Status::Lost => Some(format!("note: instruction {seq} is lost")),
    }
}

/// Whether an instruction ended without an error of any kind.
pub fn went_well(instruction: &Instruction) -> bool {
    let error = instruction.outcome.as_ref().is_some_and(|outcome| outcome.error.is_some());
    instruction.status == Status::Done && !error
}
