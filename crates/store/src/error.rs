//! What can go wrong with records.

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("records: {0}")]
    Database(#[from] rusqlite::Error),
    #[error("records: a field cannot be read: {0}")]
    Field(#[from] serde_json::Error),
    #[error("the records were written by a newer Stasis (form {found}, this one knows {known})")]
    Newer { found: i64, known: i64 },
    #[error("there is a machine named `{0}` already")]
    NameTaken(String),
    #[error("template {0} was removed")]
    NoTemplate(String),
    #[error("machine number {0} was removed")]
    Removed(i64),
    #[error("image {0} would be recorded, and nobody holds it")]
    NotHeld(String),
    #[error("no record of {0}")]
    Missing(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Database(_) => "store.database",
            Error::Field(_) => "store.field",
            Error::Newer { .. } => "store.newer",
            Error::NameTaken(_) => "machine.name_taken",
            Error::NoTemplate(_) => "template.not_found",
            Error::Removed(_) => "machine.removed",
            Error::NotHeld(_) => "store.not_held",
            Error::Missing(_) => "store.missing",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Database(_) => "look at the data directory: its rights, and room on its disk",
            Error::Field(_) => "records.db was changed by another program: restore it from a copy",
            Error::Newer { .. } => "use the newer Stasis, or a data directory of its own",
            Error::NameTaken(_) => "use that one, or another name",
            Error::NoTemplate(_) => "`stasis template list` shows those there are",
            Error::Removed(_) => "make another one, or use another name",
            Error::NotHeld(_) => "please report this: it is a bug of Stasis",
            Error::Missing(_) => "it was removed meanwhile: list what there is",
        }
    }
}
