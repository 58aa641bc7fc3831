//! Errors. Each has a stable code, a message and usually a hint.

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
    /// The response does not come from a Stasis service.
    #[error("[service.answer] {message}")]
    Protocol { message: String, status: Option<u16> },
    /// The result did not arrive in time. The instruction continues.
    #[error("[client.wait_timeout] {address} has no result yet")]
    WaitTimeout { address: String },
    /// The caller stopped waiting for a result, and the code was interrupted.
    #[error("[client.stopped] {address} was stopped")]
    Stopped { address: String },
    /// The code ended with an error.
    #[error("{}", .0.traceback.trim_end())]
    Instruction(Failure),
    /// A local file cannot be read or written.
    #[error("[client.file] {message}: {source}")]
    Local { message: String, source: std::io::Error },
    /// The client's settings are invalid.
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
    /// The next step.
    pub hint: Option<String>,
    pub status: u16,
    /// The request's id in the service's logs.
    pub request_id: Option<String>,
    /// Requested wait of the service.
    pub retry_after: Option<Duration>,
}

/// Kinds of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The request is invalid.
    Invalid,
    /// The token is missing, unknown or expired.
    Unauthorized,
    /// The token lacks the scope.
    Forbidden,
    /// The named thing does not exist, or belongs to another account.
    NotFound,
    /// It exists already, or its state does not allow this.
    Conflict,
    TooLarge,
    /// A quota is exceeded; a later attempt may succeed.
    TooMany,
    /// The service is overloaded or stopping.
    Unavailable,
    /// The service does not support it.
    Unsupported,
    /// An internal error of the service or its host.
    Internal,
    /// A kind of refusal that this version does not know.
    Other,
}

impl Kind {
    fn of(status: u16) -> Kind {
        match status {
            400 | 405 | 416 | 422 => Kind::Invalid,
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
    /// The error for a response with this status and body.
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

    /// The kind of refusal, if it is one.
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

    /// The next step.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Api(error) => error.hint.as_deref(),
            Error::Unreachable { .. } => Some("does `stasis serve` run?"),
            Error::Protocol { .. } => Some("is the address that of a Stasis service?"),
            Error::WaitTimeout { .. } => {
                Some("it is still running: fetch its result later, or interrupt it")
            }
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
