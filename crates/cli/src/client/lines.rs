//! A response of lines, each a JSON value.
//!
//! A line may arrive in pieces. A line that is too long or not JSON is an error. `None` is the end
//! of the answer, complete or broken off: the caller knows which line is the last.

use crate::failure::{CliFailure, Result};
use reqwest::Response;
use serde::de::DeserializeOwned;

/// Maximum length of a line: results may contain images.
const LONGEST: usize = 256 << 20;

pub struct LineStream {
    answer: Response,
    buffer: Vec<u8>,
    /// Length of the buffer already searched for a newline.
    searched: usize,
}

impl LineStream {
    pub fn new(answer: Response) -> LineStream {
        LineStream { answer, buffer: Vec::new(), searched: 0 }
    }

    /// The next line. Cancel-safe.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        loop {
            if let Some(line) = self.take() {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let value = serde_json::from_slice(&line);
                return value.map(Some).map_err(|error| strange(&error.to_string()));
            }
            match self.answer.chunk().await {
                Ok(Some(part)) => self.buffer.extend_from_slice(&part),
                Ok(None) | Err(_) => return Ok(None),
            }
            if self.buffer.len() > LONGEST {
                return Err(strange("a line without an end"));
            }
        }
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(found) = found else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + found + 1;
        self.searched = 0;
        Some(self.buffer.drain(..end).collect())
    }
}

fn strange(what: &str) -> CliFailure {
    CliFailure::new("service.foreign", format!("the service sent a malformed line: {what}"))
}
