//! Errors of the store, with a code for programs, a message for people, and the cause for the log.

use stasis_fault::Injected;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
    #[error("image {id}: {source}")]
    Image { id: String, source: stasis_image::ImageError },
    #[error("pack {root}: {source}")]
    Pack { root: String, source: stasis_image::PackError },
    /// A truncated file, or an inconsistent image.
    #[error("image: {0}")]
    Unfit(String),
    /// Another program has the store open.
    #[error("another program uses {}", .0.display())]
    Busy(PathBuf),
    /// The needs of an image are unknown, so nothing may be removed.
    #[error("cannot read image {id}, which is in use, so nothing was removed: {source}")]
    Keep { id: String, source: Box<Error> },
    #[error(transparent)]
    Remote(#[from] crate::remote::ObjectError),
    /// More than an image may have.
    #[error("{0}")]
    TooLarge(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Io { .. } => "engine.io",
            Error::Image { source, .. } => source.code(),
            Error::Pack { source, .. } => source.code(),
            Error::Unfit(_) => "image.unfit",
            Error::Busy(_) => "store.busy",
            Error::Keep { .. } => "store.keep",
            Error::Remote(error) => error.code(),
            Error::TooLarge(_) => "file.too_large",
        }
    }

    /// The next step for the caller.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Io { .. } => "check the permissions and free space of the data directory",
            Error::Image { .. } | Error::Pack { .. } | Error::Keep { .. } => {
                "`stasis store check` lists the damage; `--repair` repairs what is repairable"
            }
            Error::Unfit(_) => "use a host like the one that made it, or an earlier checkpoint",
            Error::Busy(_) => "use the program that has it open, or stop it",
            Error::Remote(_) => "check that the remote store is reachable and has space",
            Error::TooLarge(_) => "request a part of it",
        }
    }

    /// Whether a file of the store was not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl From<Injected> for Error {
    fn from(Injected { name, source }: Injected) -> Error {
        Error::Io { doing: format!("pass {name}"), source }
    }
}

stasis_sys::error_context!(Error);
