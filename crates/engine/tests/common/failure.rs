//! Why a test did not go through.

use std::fmt;

#[derive(Debug)]
pub enum Failure {
    /// The program cannot show anything here, and says why.
    Skip(String),
    /// The engine returned an error.
    Engine { doing: String, error: stasis_engine::Error },
    /// A program answered wrongly, not at all, or ended.
    Program(String),
    /// The test could not be set up.
    Setup(String),
}

impl Failure {
    pub fn setup(what: impl fmt::Display) -> Failure {
        Failure::Setup(what.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Failure::Skip(why) => write!(f, "skipped: {why}"),
            Failure::Engine { doing, error } => write!(f, "{doing}: [{}] {error}", error.code()),
            Failure::Program(what) => write!(f, "{what}"),
            Failure::Setup(what) => write!(f, "set-up: {what}"),
        }
    }
}

/// Names the engine's failed call.
pub trait Asked<T> {
    fn asked(self, doing: impl Into<String>) -> super::Result<T>;
}

impl<T, E: Into<stasis_engine::Error>> Asked<T> for Result<T, E> {
    fn asked(self, doing: impl Into<String>) -> super::Result<T> {
        self.map_err(|error| Failure::Engine { doing: doing.into(), error: error.into() })
    }
}
