//! Authentication: the caller of a request, and its scopes.

use crate::failure::{FailureWithoutHint, HttpFailure, Result};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use stasis_api::Problem;
use std::sync::Arc;

/// The account of the private socket and of the first token.
pub const ROOT: &str = "root";

/// A token's scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The account's machines, and everything on them.
    Machines,
    /// Building and removing templates.
    Templates,
    /// Making and revoking tokens.
    Tokens,
    /// The whole host: its store, its metrics.
    Host,
    /// Setting and removing secrets of its account.
    Secrets,
    /// Answers to calls of tools that wait for a person.
    Approve,
}

const WORDS: [(Scope, &str); 6] = [
    (Scope::Machines, "machines"),
    (Scope::Templates, "templates"),
    (Scope::Tokens, "tokens"),
    (Scope::Host, "host"),
    (Scope::Secrets, "secrets"),
    (Scope::Approve, "approve"),
];

impl Scope {
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(own, _)| *own == self).map_or("", |(_, word)| word)
    }

    pub fn all() -> Vec<String> {
        WORDS.iter().map(|(_, word)| (*word).to_owned()).collect()
    }

    pub fn is_word(word: &str) -> bool {
        WORDS.iter().any(|(_, own)| *own == word)
    }
}

/// The caller of a request.
#[derive(Debug, Clone)]
pub struct Caller {
    pub account: String,
    pub scopes: Arc<[String]>,
    /// The token's id; absent on the private socket.
    pub token: Option<String>,
}

impl Caller {
    /// A client of the private socket.
    pub fn private() -> Caller {
        Caller { account: ROOT.to_owned(), scopes: Scope::all().into(), token: None }
    }

    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| own == scope.word())
    }

    pub fn need(&self, scope: Scope) -> Result<()> {
        if self.may(scope) {
            return Ok(());
        }
        let own = match self.scopes.is_empty() {
            true => "none".to_owned(),
            false => self.scopes.join(", "),
        };
        let said = format!("the token does not have the scope `{}`; it has {own}", scope.word());
        let failure = HttpFailure::about(Problem::Forbidden, "token.scope", said);
        let all = Scope::all().join(", ");
        Err(failure.hint(format!("`stasis token new --scope` creates one; scopes are {all}")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = HttpFailure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller> {
        parts.extensions.get().cloned().ok_or_else(unauthorized)
    }
}

/// A request without a token.
pub fn unauthorized() -> HttpFailure {
    refused("token.unknown", "no token was sent").hint(
        "send `authorization: Bearer id.secret`, or set STASIS_TOKEN; `stasis token new` \
             creates one",
    )
}

/// A token that does not exist, or was revoked.
pub fn unknown() -> HttpFailure {
    refused("token.unknown", "the token is unknown")
        .hint("it was revoked, or belongs to another service; `stasis token new` creates one")
}

pub fn refused(code: &'static str, message: &str) -> FailureWithoutHint {
    HttpFailure::about(Problem::Unauthorized, code, message)
}
