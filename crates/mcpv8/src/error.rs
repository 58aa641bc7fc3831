//! A failure as mcp-v8's clients read it: a sentence, and a status for those who use HTTP.

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

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(400, message)
    }

    pub(crate) fn missing(message: impl Into<String>) -> Error {
        Error::new(404, message)
    }
}

impl From<stasis_machine::Error> for Error {
    fn from(error: stasis_machine::Error) -> Error {
        let status = match error.problem() {
            Problem::NotFound => 404,
            Problem::TooMany => 429,
            Problem::Unavailable => 503,
            Problem::Invalid => 400,
            _ => 500,
        };
        let hint = error.hint();
        let message = match hint.is_empty() {
            true => error.to_string(),
            false => format!("{error}; {hint}"),
        };
        Error::new(status, message)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
