//! Errors as clients get them: a stable code, a message, a hint, and the id of the request.

use serde::{Deserialize, Serialize};

/// The kind of an error, which determines the HTTP status and the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    /// The request is invalid: the API's document excludes it.
    Invalid,
    /// The token is missing, unknown or expired.
    Unauthorized,
    /// The token lacks the scope, or the request comes from a foreign origin.
    Forbidden,
    NotFound,
    /// It exists already, or its state does not allow this.
    Conflict,
    /// Larger than allowed.
    TooLarge,
    /// The request has its documented form, but content that cannot be used: a policy with a
    /// mistake, a damaged export, a path with `..`.
    Unprocessable,
    /// The requested range is empty.
    Range,
    /// A quota or rate limit is exceeded; the request may succeed later.
    TooMany,
    /// The service is overloaded or stopping.
    Unavailable,
    /// This build or this host does not support it.
    Unsupported,
    /// An internal error, or an error of the host.
    Internal,
}

impl Problem {
    pub fn status(self) -> u16 {
        match self {
            Problem::Invalid => 400,
            Problem::Unauthorized => 401,
            Problem::Forbidden => 403,
            Problem::NotFound => 404,
            Problem::Conflict => 409,
            Problem::TooLarge => 413,
            Problem::Range => 416,
            Problem::Unprocessable => 422,
            Problem::TooMany => 429,
            Problem::Internal => 500,
            Problem::Unsupported => 501,
            Problem::Unavailable => 503,
        }
    }
}

/// The body of every error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ErrorBody {
    /// A stable code for programs, such as `machine.not_found`.
    pub code: String,
    /// The failure, and its cause.
    pub message: String,
    /// The next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The id of the request, as it appears in the logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}
