//! The failure of a command: message, hint and exit code.

use stasis_api::ErrorBody;
use std::fmt;
use std::path::Path;

/// Why a command ended, as programs see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It did not work, or the instruction failed.
    Failed = 1,
    /// The command or the request makes no sense as it is.
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    Auth = 5,
    /// The service does not answer, or not now.
    Unavailable = 6,
}

impl Exit {
    pub fn of_status(status: u16) -> Exit {
        match status {
            400 | 413 | 422 => Exit::Usage,
            401 | 403 => Exit::Auth,
            404 => Exit::NotFound,
            409 => Exit::Conflict,
            429 | 502..=504 => Exit::Unavailable,
            _ => Exit::Failed,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit as u8)
    }
}

/// A stable code, a message, and a hint if there is one.
#[derive(Debug)]
pub struct CliFailure {
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
    pub exit: Exit,
}

pub type Result<T> = std::result::Result<T, CliFailure>;

impl CliFailure {
    pub fn new(code: &str, message: impl Into<String>) -> CliFailure {
        CliFailure { code: code.into(), message: message.into(), hint: None, exit: Exit::Failed }
    }

    pub fn usage(message: impl Into<String>) -> CliFailure {
        CliFailure::new("usage", message).exit(Exit::Usage)
    }

    /// A service's error.
    pub fn answered(status: u16, body: ErrorBody) -> CliFailure {
        let ErrorBody { code, message, hint, .. } = body;
        CliFailure { code, message, hint, exit: Exit::of_status(status) }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> CliFailure {
        self.hint = Some(hint.into());
        self
    }

    pub fn exit(mut self, exit: Exit) -> CliFailure {
        self.exit = exit;
        self
    }

    /// The form for programs: the same words as the service's.
    pub fn json(&self) -> serde_json::Value {
        let body = ErrorBody {
            code: self.code.clone(),
            message: self.message.clone(),
            hint: self.hint.clone(),
            id: None,
        };
        serde_json::json!({ "error": body })
    }
}

impl fmt::Display for CliFailure {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "error[{}]: {}", self.code, self.message)?;
        match &self.hint {
            Some(hint) => write!(out, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<stasis_engine::Error> for CliFailure {
    fn from(error: stasis_engine::Error) -> CliFailure {
        CliFailure::new(error.code(), error.to_string()).hint(error.hint())
    }
}

impl From<stasis_machine::Error> for CliFailure {
    fn from(error: stasis_machine::Error) -> CliFailure {
        let exit = Exit::of_status(error.problem().status());
        let failure = CliFailure::new(error.code(), error.to_string()).exit(exit);
        failure.hint(error.hint())
    }
}

impl From<stasis_template::Error> for CliFailure {
    fn from(error: stasis_template::Error) -> CliFailure {
        let exit = match &error {
            stasis_template::Error::Recipe { .. } => Exit::Usage,
            _ => Exit::Failed,
        };
        CliFailure::new(error.code(), error.to_string()).hint(error.hint()).exit(exit)
    }
}

/// Adds the failed action and its file to a system error.
pub trait PathContext<T> {
    fn at(self, doing: &str, path: &Path) -> Result<T>;
}

impl<T> PathContext<T> for std::io::Result<T> {
    fn at(self, doing: &str, path: &Path) -> Result<T> {
        self.map_err(|error| {
            CliFailure::new("system.io", format!("{doing} {}: {error}", path.display()))
        })
    }
}
