//! Errors of the service's start and end.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot listen on {place}: {source}")]
    Listen { place: String, source: std::io::Error },
    #[error("{}: {what}", path.display())]
    Certificate { path: PathBuf, what: String },
    #[error("traces: {0}")]
    Traces(String),
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    #[error("the root token is invalid: write `id.secret`, with a secret of 16 or more characters")]
    RootToken,
    #[error("mcp.toml: {0}")]
    Words(String),
    #[error("the key set {place}: {what}")]
    Jwks { place: String, what: String },
    #[error(transparent)]
    Machine(#[from] stasis_machine::Error),
    #[error("{} machines could not be saved: {}", .0.len(), .0.join("; "))]
    Unsaved(Vec<String>),
}

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Listen { .. } => "service.listen",
            Error::Certificate { .. } => "service.certificate",
            Error::Traces(_) => "service.traces",
            Error::Io { .. } => "service.io",
            Error::RootToken => "service.root_token",
            Error::Words(_) => "service.mcp_words",
            Error::Jwks { .. } => "service.jwks",
            Error::Machine(error) => error.code(),
            Error::Unsaved(_) => "service.unsaved",
        }
    }

    /// The next step for the caller.
    pub fn hint(&self) -> String {
        match self {
            Error::Machine(error) => return error.hint(),
            Error::Listen { .. } => "another service may use this address: choose another",
            Error::Certificate { .. } => "certificate and key are PEM files",
            Error::Traces(_) => {
                "set otlp_endpoint, or OTEL_EXPORTER_OTLP_ENDPOINT, to a collector of OTLP \
                 over HTTP, such as http://127.0.0.1:4318"
            }
            Error::Io { .. } => "check the permissions and free space of the data directory",
            Error::RootToken => "unset STASIS_ROOT_TOKEN to generate one",
            Error::Words(_) => "fix mcp.toml in the data directory, or remove it",
            Error::Jwks { .. } => "jwt.jwks is a file or an https address with a JSON Web Key Set",
            Error::Unsaved(_) => "they return to their last checkpoints; see `stasis history`",
        }
        .into()
    }
}

stasis_machine::error_context!(Error);
