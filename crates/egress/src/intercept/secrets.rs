//! Puts values of secrets into the head of a request.
//!
//!   placeholders in headers and query ─► a secret of the machine's account? ─► bound to this host?
//!     ─► granted by policy? ─► opened, or its token got ─► in their place, for this request
//!
//! A placeholder that fails one of the questions stays as it is, and a report says why. Headers
//! that rules of mcp-v8 add come from the same book, and tokens for them from the same cache.

use super::InterceptedConnection;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use stasis_secrets::{SecretContent, SecretText, SubstitutionPlan, Substitutions};
use zeroize::Zeroizing;

/// Values that are added to the request of a machine.
pub struct Filled {
    values: Substitutions,
    added: Vec<(HeaderName, SecretText)>,
}

impl Filled {
    /// Finds what a request needs. An error says why a value cannot be got.
    pub async fn of(connection: &InterceptedConnection, parts: &Parts) -> Result<Filled, String> {
        let mut plan = SubstitutionPlan::default();
        parts.headers.values().for_each(|value| plan.header(value.as_bytes()));
        parts.uri.query().into_iter().for_each(|query| plan.query(query));
        let mut values = Substitutions::default();
        if !plan.is_empty() {
            let known = connection.machine.placeholders();
            for placeholder in plan.placeholders() {
                let found = known.iter().find(|one| one.placeholder.as_str() == placeholder);
                let Some(secret) = found else { continue };
                if connection.grants(&secret.name) {
                    values.add(placeholder, value(connection, &secret.name).await?);
                }
            }
        }
        Ok(Filled { values, added: added(connection, parts).await? })
    }

    pub fn query(&self, query: Option<&str>) -> Option<Zeroizing<String>> {
        self.values.query(query?)
    }

    pub fn headers(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.added {
            if let Ok(mut value) = HeaderValue::from_str(value.reveal()) {
                value.set_sensitive(true);
                headers.insert(name.clone(), value);
            }
        }
        if self.values.is_empty() {
            return;
        }
        for value in headers.values_mut() {
            let Some(filled) = self.values.header(value.as_bytes()) else { continue };
            if let Ok(mut filled) = HeaderValue::from_bytes(&filled) {
                // it is in no table of compressed headers either
                filled.set_sensitive(true);
                *value = filled;
            }
        }
    }
}

/// The headers that rules add to a request.
async fn added(
    connection: &InterceptedConnection,
    parts: &Parts,
) -> Result<Vec<(HeaderName, SecretText)>, String> {
    let mut all = Vec::new();
    for level in connection.rules.levels() {
        let Some(v8) = level.v8() else { continue };
        let has = |name: &str| parts.headers.contains_key(name);
        for header in v8.added_headers(&connection.host(), parts.method.as_str(), has) {
            let book = &connection.machine.shared.secrets;
            let opened = book.open_lent(level.name.as_str(), header.rule, &header.name);
            let (name, content) = opened.map_err(|error| error.to_string())?;
            let is_token = matches!(content, SecretContent::OauthClient(_));
            let mut value = revealed(connection, &name, content).await?;
            if is_token {
                let text = format!("Bearer {}", value.reveal());
                value = SecretText::new(text).map_err(|error| error.to_string())?;
            }
            let name = HeaderName::from_bytes(header.name.as_bytes());
            all.push((name.map_err(|error| error.to_string())?, value));
        }
    }
    Ok(all)
}

/// The value of a secret.
async fn value(connection: &InterceptedConnection, name: &str) -> Result<SecretText, String> {
    let machine = &connection.machine;
    let opened = machine.shared.secrets.open(&machine.account, name);
    revealed(connection, name, opened.map_err(|error| error.to_string())?).await
}

/// A value as it was set, or a token that is got for it.
async fn revealed(
    connection: &InterceptedConnection,
    name: &str,
    content: SecretContent,
) -> Result<SecretText, String> {
    match content {
        SecretContent::Value(value) => Ok(value),
        SecretContent::OauthClient(client) => {
            let tokens = &connection.machine.shared.tokens;
            let got = tokens.get(connection, name, &client).await;
            got.map_err(|error| format!("no token for secret `{name}`: {error}"))
        }
    }
}
