//! Errors, for three readers: a code for programs, a message for people, and the cause for the log.

use stasis_fault::Injected;
use std::io;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// State the engine does not support. The tree keeps running unchanged.
    #[error("process {pid}: {what}")]
    Refused { pid: i32, what: String },
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
    #[error(transparent)]
    Store(#[from] stasis_store::Error),
    /// The image cannot come back on this host, or lies.
    #[error("image: {0}")]
    Unfit(String),
    /// A restored process stopped at a step of its program.
    #[error("restore: {step} failed: {source}")]
    Step { step: String, source: io::Error },
    /// More than the requested maximum.
    #[error("{0}")]
    TooLarge(String),
    #[error("the process tree has ended")]
    Gone,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Refused { .. } => "capture.refused",
            Error::Io { .. } => "engine.io",
            Error::Store(error) => error.code(),
            Error::Unfit(_) => "image.unfit",
            Error::Step { .. } => "restore.step",
            Error::TooLarge(_) => "file.too_large",
            Error::Gone => "tree.gone",
        }
    }

    /// The next step for the caller.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Refused { .. } => "close the named resource; see docs/concepts/state.md",
            Error::Io { .. } => "check the permissions and free space of the data directory",
            Error::Store(error) => error.hint(),
            Error::Unfit(_) => "use a host like the one that made it, or an earlier checkpoint",
            Error::Step { .. } => "try again; `stasis doctor` checks this host",
            Error::TooLarge(_) => "request a part of it",
            Error::Gone => "try again: the machine is back at its last checkpoint",
        }
    }

    /// Whether a file of the store was not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Store(error) if error.is_missing())
            || matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the system failed, as opposed to the data being invalid.
    pub fn is_io(&self) -> bool {
        matches!(self, Error::Io { .. } | Error::Store(stasis_store::Error::Io { .. }))
    }

    pub(crate) fn refused(pid: i32, what: impl Into<String>) -> Error {
        Error::Refused { pid, what: what.into() }
    }
}

impl From<Injected> for Error {
    fn from(injected: Injected) -> Error {
        Error::Store(injected.into())
    }
}

stasis_sys::error_context!(Error);
