//! What an error looks like to a client: a stable code, a sentence, what to do, and the request.

use serde::{Deserialize, Serialize};

/// Which kind of trouble it is, and so which HTTP status and which exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    /// The request makes no sense as it is.
    Invalid,
    /// No token, or one that is unknown or over.
    Unauthorized,
    /// The token does not reach that far, or the request comes from a foreign place.
    Forbidden,
    NotFound,
    /// It is there already, or in a state in which this cannot be done.
    Conflict,
    /// Larger than allowed.
    TooLarge,
    /// There is nothing in the part that was asked for.
    Range,
    /// Over a quota; later it may work.
    TooMany,
    /// Not now: overloaded or stopping.
    Unavailable,
    /// This build or this host cannot do it.
    Unsupported,
    /// Our fault, or the host's.
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
    /// Stable, for programs: `machine.not_found`.
    pub code: String,
    /// What happened, on what.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The request this is about, as logs know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}
