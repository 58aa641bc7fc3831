//! What can go wrong. Each has a stable code, a sentence and mostly a hint.

use crate::types::{ErrorBody, Failure};
use std::time::Duration;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The service refused.
    #[error("[{}] {}", .0.code, .0.message)]
    Api(ApiError),
    /// The service did not answer, or the connection broke for good.
    #[error("[service.unreachable] {message}")]
    Unreachable {
        message: String,
        /// Whether the service may have acted on the request.
        sent: bool,
        source: Option<reqwest::Error>,
    },
    /// The answer is not one of a Stasis service.
    #[error("[service.answer] {message}")]
    Protocol { message: String, status: Option<u16> },
    /// A result did not come in the time that was given. The instruction goes on.
    #[error("[client.wait_timeout] {address} has no result yet")]
    WaitTimeout { address: String },
    /// The caller stopped waiting for a result, and the code was interrupted.
    #[error("[client.stopped] {address} was stopped")]
    Stopped { address: String },
    /// Code ended with an error of its own.
    #[error("{}", .0.traceback.trim_end())]
    Instruction(Failure),
    /// A file of this computer cannot be read or written.
    #[error("[client.file] {message}: {source}")]
    Local { message: String, source: std::io::Error },
    /// The client cannot be made as told.
    #[error("[client.setup] {0}")]
    Setup(String),
}

/// A refusal of the service.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ApiError {
    pub kind: Kind,
    /// Stable, for programs: `machine.not_found`.
    pub code: String,
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    pub status: u16,
    /// The request this is about, as the service's logs know it.
    pub request_id: Option<String>,
    /// How long the service asks to wait.
    pub retry_after: Option<Duration>,
}

/// Kinds of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The request makes no sense as it is.
    Invalid,
    /// No token, or one that is unknown or over.
    Unauthorized,
    /// The token does not reach that far.
    Forbidden,
    /// The named thing does not exist, or belongs to another account.
    NotFound,
    /// It is there already, or in a state in which this cannot be done.
    Conflict,
    TooLarge,
    /// Over a quota; later it may work.
    TooMany,
    /// Not now: overloaded or stopping.
    Unavailable,
    /// This service cannot do it.
    Unsupported,
    /// The service's fault, or its host's.
    Internal,
    /// A refusal that this version does not know.
    Other,
}

impl Kind {
    fn of(status: u16) -> Kind {
        match status {
            400 | 405 | 416 => Kind::Invalid,
            401 => Kind::Unauthorized,
            403 => Kind::Forbidden,
            404 => Kind::NotFound,
            409 => Kind::Conflict,
            413 => Kind::TooLarge,
            429 => Kind::TooMany,
            501 => Kind::Unsupported,
            503 => Kind::Unavailable,
            500.. => Kind::Internal,
            _ => Kind::Other,
        }
    }
}

impl Error {
    /// The error that an answer with this status and this body is.
    pub(crate) fn refusal(status: u16, body: &[u8]) -> Error {
        match serde_json::from_slice::<ErrorBody>(body) {
            Ok(body) => Error::of(status, body),
            Err(_) => Error::Protocol {
                message: format!("an answer with status {status} that is not ours"),
                status: Some(status),
            },
        }
    }

    pub(crate) fn of(status: u16, body: ErrorBody) -> Error {
        Error::Api(ApiError {
            kind: Kind::of(status),
            code: body.code,
            message: body.message,
            hint: body.hint,
            status,
            request_id: body.id,
            retry_after: None,
        })
    }

    pub(crate) fn invalid(message: String) -> Error {
        Error::of(
            400,
            ErrorBody { code: "request.invalid".into(), message, ..ErrorBody::default() },
        )
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Error {
        Error::Protocol { message: message.into(), status: None }
    }

    pub(crate) fn broken(message: impl Into<String>) -> Error {
        Error::Unreachable { message: message.into(), sent: true, source: None }
    }

    /// Which kind of refusal it is, if it is one.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Error::Api(error) => Some(error.kind),
            _ => None,
        }
    }

    /// Stable, for programs.
    pub fn code(&self) -> &str {
        match self {
            Error::Api(error) => &error.code,
            Error::Unreachable { .. } => "service.unreachable",
            Error::Protocol { .. } => "service.answer",
            Error::WaitTimeout { .. } => "client.wait_timeout",
            Error::Stopped { .. } => "client.stopped",
            Error::Instruction(_) => "instruction.failed",
            Error::Local { .. } => "client.file",
            Error::Setup(_) => "client.setup",
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Api(error) => error.hint.as_deref(),
            Error::Unreachable { .. } => Some("does `stasis serve` run?"),
            Error::Protocol { .. } => Some("is the address that of a Stasis service?"),
            Error::WaitTimeout { .. } => Some("it goes on: ask for its result later, or stop it"),
            _ => None,
        }
    }
}

impl From<reqwest::Error> for Error {
    fn from(source: reqwest::Error) -> Error {
        let message = format!("no answer from the service: {source}");
        Error::Unreachable { message, sent: !source.is_connect(), source: Some(source) }
    }
}
