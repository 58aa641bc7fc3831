//! A line of input for an instruction that requests one.
//!
//!   agent ── Input ──► driver ── prompt, as a line of output ──► the client
//!         ◄─ Input ──         ◄─ the line it typed ─────────────
//!
//! Only instructions submitted with `input` may request a line, and the client that submitted them
//! answers. An instruction that waits for a line can be interrupted, and its timeout keeps running.

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::lines::OutputLines;
use crate::machine::Machine;
use stasis_protocol::Order;

/// The longest line, in characters: a terminal's limit.
const LONGEST: usize = 4096;

impl Machine {
    /// Gives a line, or the end of input, to the instruction that waits for one. Whether one
    /// waited.
    pub fn give_input(&self, seq: u64, line: Option<String>) -> Result<bool> {
        if line.as_ref().is_some_and(|line| line.chars().count() > LONGEST) {
            return Err(Error::Invalid(format!(
                "a line of input has at most {LONGEST} characters"
            )));
        }
        let mut work = self.work();
        let asking = work.feed.as_mut().filter(|feed| feed.seq == seq && feed.asks);
        let Some(feed) = asking else { return Ok(false) };
        feed.asks = false;
        feed.input = Some(line);
        work.wake_driver();
        Ok(true)
    }
}

impl Driver {
    /// Shows a prompt to followers; the next given line answers it. One prompt at a time, so a
    /// machine cannot fill the output with prompts.
    pub(crate) fn ask_for_input(&mut self, prompt: String, lines: &mut OutputLines) {
        let asks = match &mut self.machine.work().feed {
            Some(feed) if feed.may_ask => !std::mem::replace(&mut feed.asks, true),
            _ => false,
        };
        if asks {
            self.push(lines.prompt(prompt));
        }
    }

    /// Delivers a given line to the code.
    pub(crate) fn pass_input(&mut self, seq: u64) -> Result<()> {
        let given = self.machine.work().feed.as_mut().and_then(|feed| feed.input.take());
        let (Some(line), Some(live)) = (given, &mut self.live) else { return Ok(()) };
        live.line.send(&Order::Input { seq, line })
    }
}
