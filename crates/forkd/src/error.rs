//! A failure as forkd's clients read it: a status and a sentence.

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

    /// The agent's next step.
    pub fn hint(&self) -> &'static str {
        match self.status {
            400 | 422 => "see the tool's description for its arguments",
            403 => "ask the operator of the service for a token with that scope",
            404 => "list the existing ones",
            _ => "call it again; if it fails again, see the service's log",
        }
    }

    /// A failure of the host while something was being done. forkd has one status for "later".
    pub(crate) fn during(what: &str) -> impl Fn(stasis_machine::Error) -> Error {
        move |error| {
            let status = match error.surface_status() {
                429 => 503,
                other => other,
            };
            Error::new(status, format!("{what}: {error}"))
        }
    }
}
