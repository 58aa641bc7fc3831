//! Puts values of secrets into the head of a request.
//!
//!   placeholders in headers and query ─► a secret of the machine's account? ─► bound to this host?
//!     ─► granted by policy? ─► opened, or its token got ─► in their place, for this request
//!
//! A placeholder that fails one of the questions stays as it is, and a report says why.

use super::InterceptedConnection;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use stasis_secrets::{SecretContent, SecretText, SubstitutionPlan, Substitutions};
use zeroize::Zeroizing;

/// Values that are added to the request of a machine.
pub struct Filled {
    values: Substitutions,
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
        Ok(Filled { values })
    }

    pub fn query(&self, query: Option<&str>) -> Option<Zeroizing<String>> {
        self.values.query(query?)
    }

    pub fn headers(&self, headers: &mut HeaderMap) {
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

/// The value of a secret: as it was set, or a token that is got for it.
async fn value(connection: &InterceptedConnection, name: &str) -> Result<SecretText, String> {
    let machine = &connection.machine;
    match machine.shared.secrets.open(&machine.account, name) {
        Ok(SecretContent::Value(value)) => Ok(value),
        Ok(SecretContent::OauthClient(client)) => {
            let tokens = &machine.shared.tokens;
            let got = tokens.get(connection, name, &client).await;
            got.map_err(|error| format!("no token for secret `{name}`: {error}"))
        }
        Err(error) => Err(error.to_string()),
    }
}
