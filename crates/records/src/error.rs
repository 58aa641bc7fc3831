//! Errors of records.

use stasis_image::ImageId;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("records: {0}")]
    Database(#[from] rusqlite::Error),
    #[error("the records were not written: {0}")]
    NotWritten(#[source] Arc<dyn std::error::Error + Send + Sync>),
    #[error("records: cannot start the writer: {0}")]
    Writer(#[from] std::io::Error),
    #[error("records: cannot read a field: {0}")]
    Field(#[from] serde_json::Error),
    #[error("a newer Stasis wrote the records (format {found}; this version reads up to {known})")]
    Newer { found: i64, known: i64 },
    #[error("a machine named `{0}` already exists")]
    NameTaken(String),
    #[error("template {0} was removed")]
    NoTemplate(String),
    #[error("machine number {0} was removed")]
    Removed(i64),
    #[error("image {0} would be recorded although nothing keeps it in use")]
    NotHeld(ImageId),
    #[error("there is no record of {0}")]
    Missing(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Database(_) => "store.database",
            Error::NotWritten(_) => "store.not_written",
            Error::Writer(_) => "store.writer",
            Error::Field(_) => "store.field",
            Error::Newer { .. } => "store.newer",
            Error::NameTaken(_) => "machine.name_taken",
            Error::NoTemplate(_) => "template.not_found",
            Error::Removed(_) => "machine.removed",
            Error::NotHeld(_) => "store.not_held",
            Error::Missing(_) => "store.missing",
        }
    }

    /// The next step for the caller.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Database(_) => "check the permissions and free space of the data directory",
            Error::NotWritten(_) => "free space on the disk of the data directory, then try again",
            Error::Writer(_) => "raise the limit of threads (`ulimit -u`), then start again",
            Error::Field(_) => "another program changed records.db: restore a backup",
            Error::Newer { .. } => "use the newer Stasis, or another data directory",
            Error::NameTaken(_) => "use it, or choose another name",
            Error::NoTemplate(_) => "`stasis template list` lists the templates",
            Error::Removed(_) => "create a new one, or use another name",
            Error::NotHeld(_) => "this is a bug in Stasis: please report it",
            Error::Missing(_) => "it was removed in the meantime: list again",
        }
    }
}
