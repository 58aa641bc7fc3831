//! What a command says when it cannot go on.

use std::fmt;
use std::path::Path;

/// A stable code, a sentence, and where there is one a way out.
#[derive(Debug)]
pub struct Failure {
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.into(), message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "error[{}]: {}", self.code, self.message)?;
        match &self.hint {
            Some(hint) => write!(out, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<stasis_engine::Error> for Failure {
    fn from(error: stasis_engine::Error) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}

impl From<stasis_machine::Error> for Failure {
    fn from(error: stasis_machine::Error) -> Failure {
        Failure { hint: error.hint(), ..Failure::new(error.code(), error.to_string()) }
    }
}

/// Adds to an error of the system what was being done with which file.
pub trait At<T> {
    fn at(self, doing: &str, path: &Path) -> Result<T>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, doing: &str, path: &Path) -> Result<T> {
        self.map_err(|error| {
            Failure::new("system.io", format!("{doing} {}: {error}", path.display()))
        })
    }
}
