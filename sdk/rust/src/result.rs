//! The result of an instruction.

use crate::types::{Chunk, Failure, Instruction, Receipt, Shown, Status, Stream};
use crate::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// The result of an instruction, with all of its output.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RunResult {
    pub machine: String,
    /// The service's full description of it.
    pub instruction: Instruction,
    pub output: Vec<Chunk>,
}

impl RunResult {
    pub fn seq(&self) -> u64 {
        self.instruction.seq
    }

    /// The state after it, as `machine@seq`.
    pub fn address(&self) -> String {
        format!("{}@{}", self.machine, self.seq())
    }

    pub fn status(&self) -> Status {
        self.instruction.status
    }

    /// The state of the machine after it.
    pub fn receipt(&self) -> Option<&Receipt> {
        self.instruction.receipt.as_ref()
    }

    /// repr of the last expression.
    pub fn value(&self) -> Option<&str> {
        self.instruction.outcome.as_ref()?.value.as_deref()
    }

    /// The last expression's value in every form it offers: MIME type to content.
    pub fn data(&self) -> Option<&BTreeMap<String, Value>> {
        self.instruction.outcome.as_ref()?.data.as_ref()
    }

    /// Content displayed while the code ran: figures, `display(...)`.
    pub fn shown(&self) -> &[Shown] {
        self.instruction.outcome.as_ref().map_or(&[], |outcome| &outcome.shown)
    }

    pub fn error(&self) -> Option<&Failure> {
        self.instruction.outcome.as_ref()?.error.as_ref()
    }

    pub fn runtime_ms(&self) -> f64 {
        self.instruction.outcome.as_ref().map_or(0.0, |outcome| outcome.runtime_ms)
    }

    pub fn is_ok(&self) -> bool {
        self.error().is_none() && self.status() == Status::Done
    }

    /// This result, if it is a success; [`Error::Instruction`] otherwise.
    pub fn check(self) -> Result<RunResult> {
        if self.is_ok() {
            return Ok(self);
        }
        Err(Error::Instruction(self.error().cloned().unwrap_or_else(|| Failure {
            name: "instruction.unfinished".into(),
            message: format!("{} ended as {:?}", self.address(), self.status()),
            traceback: format!("{} ended as {:?}", self.address(), self.status()),
        })))
    }

    pub fn stdout(&self) -> String {
        self.text(Stream::Stdout)
    }

    pub fn stderr(&self) -> String {
        self.text(Stream::Stderr)
    }

    /// The value's own image, or else the last displayed one: PNG in base64.
    pub fn png(&self) -> Option<&str> {
        let shown = self.shown().iter().rev().map(|shown| &shown.data);
        self.data().into_iter().chain(shown).find_map(|data| data.get("image/png")?.as_str())
    }

    fn text(&self, stream: Stream) -> String {
        let own = self.output.iter().filter(|chunk| chunk.stream == stream);
        own.map(|chunk| format!("{}\n", chunk.data)).collect()
    }
}
