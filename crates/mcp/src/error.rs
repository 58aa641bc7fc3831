//! Errors of a call, and of a connection.

use stasis_api::ErrorBody;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Machine(#[from] stasis_machine::Error),
    /// An error for forkd's clients.
    #[error(transparent)]
    Forkd(#[from] stasis_forkd::Error),
    #[error("{0}")]
    Invalid(String),
    /// Too many calls are waiting.
    #[error("{0}")]
    Busy(String),
    /// A thread of a call ended without an answer.
    #[error("the call did not finish: {0}")]
    Unfinished(String),
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    #[error("cannot parse the client's first message: {0}")]
    Handshake(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Machine(error) => error.code(),
            Error::Forkd(error) => error.code(),
            Error::Invalid(_) => "request.invalid",
            Error::Busy(_) => "service.overloaded",
            Error::Unfinished(_) => "mcp.unfinished",
            Error::Io { .. } => "mcp.io",
            Error::Handshake(_) => "mcp.handshake",
        }
    }

    /// The agent's next step: in terms of tools, where the host's hint names commands.
    pub fn hint(&self) -> String {
        use stasis_machine::Error as Machine;
        match self {
            Error::Machine(Machine::NoMachine(_)) => "list_machines lists the machines",
            Error::Machine(Machine::NoTemplate(_)) => "list_templates lists the templates",
            Error::Machine(Machine::NoInstruction { .. } | Machine::NoCheckpoint { .. }) => {
                "show_history shows which instructions have a checkpoint"
            }
            Error::Machine(Machine::Invalid(_)) | Error::Invalid(_) => {
                "see the tool's description for its arguments"
            }
            Error::Machine(error) => return error.hint(),
            Error::Forkd(error) => error.hint(),
            Error::Busy(_) => "call it again in a moment; nothing was started",
            Error::Unfinished(_) => "check whether it took effect before you call it again",
            Error::Io { .. } => "call it again; if it fails again, see the service's log",
            Error::Handshake(_) => "start with `initialize`",
        }
        .into()
    }

    pub(crate) fn body(&self) -> ErrorBody {
        ErrorBody {
            code: self.code().to_owned(),
            message: self.to_string(),
            hint: Some(self.hint()),
            id: None,
        }
    }
}
