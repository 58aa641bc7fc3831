//! A failure as forkd's clients read it: a status and a sentence.

use stasis_api::Problem;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub status: u16,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(status: u16, message: impl Into<String>) -> Error {
        Error { status, message: message.into() }
    }

    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self.status {
            400 => "forkd.invalid",
            403 => "token.scope",
            404 => "forkd.not_found",
            409 => "forkd.conflict",
            422 => "request.invalid",
            503 => "forkd.busy",
            _ => "forkd.failed",
        }
    }

    /// What an agent can do next.
    pub fn hint(&self) -> &'static str {
        match self.status {
            400 | 422 => "the tool's description says what it takes",
            403 => "ask the operator of the service for a token that may",
            404 => "list what there is",
            _ => "call it again; if it stays so, the log of the service says more",
        }
    }

    /// A failure of the host while something was being done.
    pub(crate) fn during(what: &str) -> impl Fn(stasis_machine::Error) -> Error {
        move |error| {
            let status = match error.problem() {
                Problem::NotFound => 404,
                Problem::TooMany | Problem::Unavailable => 503,
                Problem::Invalid => 400,
                _ => 500,
            };
            Error::new(status, format!("{what}: {error}"))
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
