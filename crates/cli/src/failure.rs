//! What a command says when it cannot go on, and the exit code that goes with it.

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
    /// Nobody answers, or not now.
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

/// A stable code, a sentence, and where there is one a way out.
#[derive(Debug)]
pub struct Failure {
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
    pub exit: Exit,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.into(), message: message.into(), hint: None, exit: Exit::Failed }
    }

    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new("usage", message).exit(Exit::Usage)
    }

    /// What a service said.
    pub fn answered(status: u16, body: ErrorBody) -> Failure {
        let ErrorBody { code, message, hint, .. } = body;
        Failure { code, message, hint, exit: Exit::of_status(status) }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    pub fn exit(mut self, exit: Exit) -> Failure {
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
        Failure::new(error.code(), error.to_string()).hint(error.hint())
    }
}

impl From<stasis_machine::Error> for Failure {
    fn from(error: stasis_machine::Error) -> Failure {
        let exit = Exit::of_status(error.problem().status());
        let failure = Failure::new(error.code(), error.to_string()).exit(exit);
        failure.hint(error.hint())
    }
}

impl From<stasis_template::Error> for Failure {
    fn from(error: stasis_template::Error) -> Failure {
        let exit = match &error {
            stasis_template::Error::Recipe { .. } => Exit::Usage,
            _ => Exit::Failed,
        };
        Failure::new(error.code(), error.to_string()).hint(error.hint()).exit(exit)
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
