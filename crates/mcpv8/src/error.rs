//! A failure in mcp-v8's form: a message, and a status for HTTP.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
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
        let hint = error.hint();
        let message = match hint.is_empty() {
            true => error.to_string(),
            false => format!("{error}; {hint}"),
        };
        Error::new(error.surface_status(), message)
    }
}
