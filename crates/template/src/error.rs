//! Errors, for three readers: a code for programs, a message for people with a hint, and the cause
//! for the log.

use std::io;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recipe is not one. `line` counts from 1.
    #[error("recipe: {}{key}: {what}", line.map(|n| format!("line {n}: ")).unwrap_or_default())]
    Recipe { key: String, line: Option<usize>, what: String },
    /// The base cannot be laid out.
    #[error("base {base}: {what}")]
    Base { base: &'static str, what: String, hint: &'static str },
    /// An image, or a registry's answer, does not match its digest or format.
    #[error("image: {0}")]
    Image(String),
    #[error("packages: {0}")]
    Packages(String),
    /// The recipe's own code failed while the root was built.
    #[error("prepare: {0}")]
    Prepare(String),
    /// An imported module cannot be fetched.
    #[error("{0}")]
    Module(String),
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
    #[error("building a root file system needs root")]
    Privilege,
    #[error("no root file system is named {0}")]
    Unknown(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Recipe { .. } => "template.recipe",
            Error::Base { .. } => "template.base",
            Error::Image(_) => "template.image",
            Error::Packages(_) => "template.packages",
            Error::Prepare(_) => "template.prepare",
            Error::Module(_) => "template.module",
            Error::Io { source, .. } if is_full(source) => "template.disk",
            Error::Io { .. } => "template.io",
            Error::Privilege => "template.privilege",
            Error::Unknown(_) => "template.unknown",
        }
    }

    /// The next step for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Recipe { .. } => "`stasis template sample` prints a recipe to start from",
            Error::Base { hint, .. } => hint,
            Error::Image(_) => "pull or export the image again, and compare its digest",
            Error::Packages(_) => {
                "packages are wheels from the index of the host's pip; \
                 `source-builds = true` allows source packages"
            }
            Error::Prepare(_) => "the code runs as an ordinary user, without a network",
            Error::Module(_) => "check the name, and that the host reaches the registry",
            Error::Io { source, .. } if is_full(source) => "free disk space and build again",
            Error::Io { .. } => "build again; downloads are kept",
            Error::Privilege => "run it with sudo",
            Error::Unknown(_) => "`stasis template list` lists the templates",
        }
    }

    pub(crate) fn key(key: &str, what: impl Into<String>) -> Error {
        Error::Recipe { key: key.to_owned(), line: None, what: what.into() }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

stasis_sys::error_context!(Error);
