//! What can go wrong with a call, and with a connection.

use stasis_api::ErrorBody;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Machine(#[from] stasis_machine::Error),
    #[error("{0}")]
    Invalid(String),
    /// A thread that worked for a call ended without an answer.
    #[error("the call was not finished: {0}")]
    Unfinished(String),
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    #[error("the client's first message was not understood: {0}")]
    Handshake(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Machine(error) => error.code(),
            Error::Invalid(_) => "request.invalid",
            Error::Unfinished(_) => "mcp.unfinished",
            Error::Io { .. } => "mcp.io",
            Error::Handshake(_) => "mcp.handshake",
        }
    }

    /// What an agent can do next: in the words of tools, where the host speaks of commands.
    pub fn hint(&self) -> Option<String> {
        use stasis_machine::Error as Machine;
        Some(match self {
            Error::Machine(Machine::NoMachine(_)) => "list_machines shows those there are".into(),
            Error::Machine(Machine::NoTemplate(_)) => "list_templates shows those there are".into(),
            Error::Machine(Machine::NoCheckpoint { .. }) => {
                "show_history shows which instructions have a checkpoint".into()
            }
            Error::Machine(error) => return error.hint(),
            _ => return None,
        })
    }

    pub(crate) fn body(&self) -> ErrorBody {
        ErrorBody {
            code: self.code().to_owned(),
            message: self.to_string(),
            hint: self.hint(),
            id: None,
        }
    }
}
