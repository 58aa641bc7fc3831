//! A failed request, as the client sees it.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use stasis_api::{ErrorBody, Problem};
use std::borrow::Cow;

tokio::task_local! {
    /// The request this task answers.
    pub static REQUEST: String;
}

#[derive(Debug, Clone)]
pub struct HttpFailure {
    pub problem: Problem,
    pub code: Cow<'static, str>,
    pub message: String,
    pub hint: String,
}

/// A failure without a hint. Only one with a hint can be sent.
pub struct FailureWithoutHint {
    problem: Problem,
    code: Cow<'static, str>,
    message: String,
}

impl FailureWithoutHint {
    pub fn hint(self, hint: impl Into<String>) -> HttpFailure {
        let FailureWithoutHint { problem, code, message } = self;
        HttpFailure { problem, code, message, hint: hint.into() }
    }
}

pub type Result<T> = std::result::Result<T, HttpFailure>;

/// `retry-after` of a refused client, in seconds.
const LATER: HeaderValue = HeaderValue::from_static("1");

impl HttpFailure {
    pub fn about(
        problem: Problem,
        code: &'static str,
        message: impl Into<String>,
    ) -> FailureWithoutHint {
        FailureWithoutHint { problem, code: code.into(), message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> HttpFailure {
        let failure = HttpFailure::about(Problem::Invalid, "request.invalid", message);
        failure.hint("/docs shows the fields of each route")
    }

    /// A number out of its range.
    pub fn range(message: impl Into<String>) -> HttpFailure {
        let failure = HttpFailure::about(Problem::Invalid, stasis_api::OutOfRange::CODE, message);
        failure.hint("/docs shows the range of every number")
    }

    pub fn stopping() -> HttpFailure {
        let failure =
            HttpFailure::about(Problem::Unavailable, "service.stopping", "the service is stopping");
        failure.hint("retry when it is back; accepted instructions are not lost")
    }

    /// A bug of ours.
    pub fn internal(code: &'static str, message: impl Into<String>) -> HttpFailure {
        let failure = HttpFailure::about(Problem::Internal, code, message);
        failure.hint("retry; if it fails again, see the service's log under this request id")
    }

    pub fn overloaded(message: impl Into<String>) -> HttpFailure {
        let failure = HttpFailure::about(Problem::Unavailable, "service.overloaded", message);
        failure.hint("ask again after `retry-after`; nothing was begun")
    }

    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            code: self.code.to_string(),
            message: self.message.clone(),
            hint: Some(self.hint.clone()),
            id: REQUEST.try_with(String::clone).ok(),
        }
    }

    /// As a result of an instruction, for clients that support no other failure.
    pub fn words(&self) -> String {
        format!("{}: {}", self.code, self.message)
    }
}

impl From<stasis_api::OutOfRange> for HttpFailure {
    fn from(fault: stasis_api::OutOfRange) -> HttpFailure {
        HttpFailure::range(fault.to_string())
    }
}

impl From<stasis_machine::Error> for HttpFailure {
    fn from(error: stasis_machine::Error) -> HttpFailure {
        let problem = error.problem();
        if problem == Problem::Internal {
            tracing::error!(code = error.code(), %error, "a request failed");
        }
        let (code, message, hint) = (error.code().into(), error.to_string(), error.hint());
        HttpFailure { problem, code, message, hint }
    }
}

impl IntoResponse for HttpFailure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self.body())).into_response();
        let headers = response.headers_mut();
        match self.problem {
            Problem::TooMany | Problem::Unavailable => {
                headers.insert(header::RETRY_AFTER, LATER);
            }
            Problem::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}
