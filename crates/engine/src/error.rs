//! What can go wrong, for three readers: a code for programs, a sentence for people, and the
//! cause for the log.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something the engine does not carry. The tree is left as it was, running.
    #[error("process {pid}: {what}")]
    Refused { pid: i32, what: String },
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
    #[error("image {id}: {source}")]
    Image { id: String, source: stasis_image::ImageError },
    #[error("pack {root}: {source}")]
    Pack { root: String, source: stasis_image::PackError },
    /// The image cannot come back on this host, or lies.
    #[error("image: {0}")]
    Unfit(String),
    /// A restored process stopped at a step of its program.
    #[error("restore: {step} failed: {source}")]
    Step { step: String, source: io::Error },
    /// Another program has the store open.
    #[error("{} is in use by another program: ask that one, or end it first", .0.display())]
    Busy(PathBuf),
    /// What an image needs is not known, so nothing may be removed.
    #[error("image {id} is to be kept and cannot be read, so nothing was removed: {source}")]
    Keep { id: String, source: Box<Error> },
    /// More than was asked for at most.
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
            Error::Image { source, .. } => source.code(),
            Error::Pack { source, .. } => source.code(),
            Error::Unfit(_) => "image.unfit",
            Error::Step { .. } => "restore.step",
            Error::Busy(_) => "store.busy",
            Error::Keep { .. } => "store.keep",
            Error::TooLarge(_) => "file.too_large",
            Error::Gone => "tree.gone",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Refused { .. } => "end or close what is named; docs/concepts/state.md has more",
            Error::Io { .. } => "look at the data directory: its rights, and room on its disk",
            Error::Image { .. } | Error::Pack { .. } | Error::Keep { .. } => {
                "`stasis store check` says what is damaged, and mends what it can"
            }
            Error::Unfit(_) => "use a host like the one it was made on, or an earlier checkpoint",
            Error::Step { .. } => {
                "try again; `stasis doctor` says whether this host lacks something"
            }
            Error::Busy(_) => "use the program that has it open, or end it first",
            Error::TooLarge(_) => "ask for a part of it",
            Error::Gone => "try again: the machine is back at its last checkpoint",
        }
    }

    /// Whether a file of the store was not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    pub(crate) fn refused(pid: i32, what: impl Into<String>) -> Error {
        Error::Refused { pid, what: what.into() }
    }
}

/// Adds to an error of the system what was being done.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what(), source })
    }
}
