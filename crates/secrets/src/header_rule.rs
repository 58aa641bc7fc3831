//! Rules of mcp-v8 that add headers to requests (`--fetch-header`): read, checked, and taken apart
//! into what may be seen of them and what is sealed.
//!
//! ```text
//!   host=api.example,header=Authorization,value=Bearer …          ─┐
//!   {"host", "methods", "headers" | "auth", "override"}           ─┴► HeaderRule
//!        ├─► HeaderScope: hosts, methods, names ─► policies
//!        └─► SecretContent: values, client credentials ─► SecretBook, sealed
//! ```

use crate::error::SecretError;
use crate::value::{ClientCredentials, SecretContent, SecretText};
use serde::{Deserialize, Serialize};
use stasis_policy::v8::HeaderScope;
use std::collections::BTreeMap;

const OAUTH: &str = "oauth_client_credentials";
const AUTHORIZATION: &str = "authorization";
const BEARER: &str = "Bearer";

/// A rule as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRule {
    pub host: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<HeaderAuth>,
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub overrides: Option<bool>,
}

/// A header whose value is a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderAuth {
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    #[serde(flatten)]
    pub client: ClientCredentials,
}

/// A value that a rule puts into a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderValueOf {
    /// The name in small letters.
    pub header: String,
    pub content: SecretContent,
}

fn wrong(said: impl Into<String>) -> SecretError {
    SecretError::HeaderRule(said.into())
}

impl HeaderRule {
    /// Reads the short form: `host=…,header=…,value=…`, or with `token_url=…`.
    pub fn short(text: &str) -> Result<HeaderRule, SecretError> {
        let mut fields = BTreeMap::new();
        for part in text.split(',') {
            // the text may be a value, so it is not shown
            let (key, value) = part.split_once('=').ok_or_else(|| {
                wrong("its parts are KEY=VALUE with commas between; a value cannot have a comma")
            })?;
            if fields.insert(key.trim().to_ascii_lowercase(), value.to_owned()).is_some() {
                return Err(wrong("it has a key twice"));
            }
        }
        let host = fields.remove("host").ok_or_else(|| wrong("it needs `host`"))?;
        let methods = fields.remove("methods").unwrap_or_default();
        let methods = methods.split(';').map(str::trim).filter(|one| !one.is_empty());
        let methods = methods.map(str::to_owned).collect();
        let overrides = match fields.remove("override").as_deref() {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(_) => return Err(wrong("`override` is true or false")),
        };
        let (header, value) = (fields.remove("header"), fields.remove("value"));
        let mut headers = BTreeMap::new();
        let auth = match (header, value) {
            (Some(header), Some(value)) => {
                headers.insert(header, SecretText::new(value)?);
                None
            }
            (_, Some(_)) => return Err(wrong("it needs `header`")),
            (header, None) => Some(short_auth(header, &mut fields)?),
        };
        match fields.is_empty() {
            true => Ok(HeaderRule { host, methods, headers, auth, overrides }),
            false => Err(wrong("it has a key that mcp-v8 does not have")),
        }
    }

    /// The parts of the rule that are sealed, each with its header.
    pub fn values(&self) -> Vec<HeaderValueOf> {
        let own = self.headers.iter().map(|(name, value)| HeaderValueOf {
            header: name.to_ascii_lowercase(),
            content: SecretContent::Value(value.clone()),
        });
        let auth = self.auth.iter().map(|auth| HeaderValueOf {
            header: auth.header(),
            content: SecretContent::OauthClient(auth.client.clone()),
        });
        own.chain(auth).collect()
    }

    /// The part of the rule that policies may see. An error names the fault in the rule.
    pub fn scope(&self) -> Result<HeaderScope, SecretError> {
        if self.headers.is_empty() == self.auth.is_none() {
            return Err(wrong("it has either `headers` or `auth`"));
        }
        if let Some(auth) = &self.auth {
            auth.client.check()?;
            if auth.kind.as_deref().is_some_and(|kind| kind != OAUTH) {
                return Err(wrong(format!("`auth` has the type {OAUTH}")));
            }
        }
        let values = self.values();
        let mut names: Vec<&str> = values.iter().map(|own| own.header.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() != values.len() {
            return Err(wrong("it has a header twice"));
        }
        let headers = values.iter().map(|own| (own.header.as_str(), scheme(&own.content)));
        // a token fills what the code left open
        let overrides = self.overrides.unwrap_or(true) && self.auth.is_none();
        let scope = HeaderScope::new(&self.host, &self.methods, headers, overrides);
        scope.map_err(|fault| wrong(fault.0))
    }
}

fn short_auth(
    header: Option<String>,
    fields: &mut BTreeMap<String, String>,
) -> Result<HeaderAuth, SecretError> {
    let mut take = |key: &str| {
        let said = "it needs `header` and `value`, or `token_url`, `client_id` and `client_secret`";
        fields.remove(key).ok_or_else(|| wrong(said))
    };
    let (token_url, client_id) = (take("token_url")?, take("client_id")?);
    let client_secret = SecretText::new(take("client_secret")?)?;
    let scope = fields.remove("scope");
    let buffer = fields.remove("refresh_buffer_secs").map(|text| text.parse());
    let buffer = buffer.transpose().map_err(|_| wrong("`refresh_buffer_secs` is a number"))?;
    let refresh_buffer_secs = buffer.unwrap_or(30);
    let client =
        ClientCredentials { token_url, client_id, client_secret, scope, refresh_buffer_secs };
    Ok(HeaderAuth { kind: None, header, client })
}

impl HeaderAuth {
    fn header(&self) -> String {
        self.header.as_deref().unwrap_or(AUTHORIZATION).to_ascii_lowercase()
    }
}

/// The scheme of a value, which is no secret: `Bearer` and the like.
fn scheme(content: &SecretContent) -> Option<&'static str> {
    match content {
        SecretContent::OauthClient(_) => Some(BEARER),
        SecretContent::Value(value) => {
            let (first, _) = value.reveal().split_once(' ')?;
            ["Basic", BEARER, "Token"].into_iter().find(|one| one.eq_ignore_ascii_case(first))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "host=api.example,token_url=https://id.example/t,client_id=app,\
                        client_secret=s3cret,scope=a b,refresh_buffer_secs=5,header=X-Token";

    #[test]
    fn the_short_form_is_that_of_mcp_v8() {
        let rule = HeaderRule::short(
            "host=*.a.example,header=Authorization,value=Bearer a=b,methods=GET;PUT,override=false",
        )
        .expect("a rule");
        assert_eq!((rule.host.as_str(), rule.methods.len()), ("*.a.example", 2));
        assert_eq!(rule.headers["Authorization"].reveal(), "Bearer a=b");
        assert_eq!(
            (rule.overrides, rule.values()[0].header.as_str()),
            (Some(false), "authorization")
        );
        rule.scope().expect("a scope");
        let auth = HeaderRule::short(LONG).expect("a rule").auth.expect("auth");
        assert_eq!((auth.header(), auth.client.refresh_buffer_secs), ("x-token".into(), 5));
        assert_eq!(auth.client.scope.as_deref(), Some("a b"));
        for odd in [
            "",
            "host=a.example",
            "header=x,value=y",
            "host=a.example,value=y",
            "host=a.example,header=x,value=y,z",
            "host=a.example,header=x,value=y,host=b.example",
            "host=a.example,header=x,value=y,override=maybe",
            "host=a.example,header=x,value=y,client_id=z",
            "host=a.example,token_url=https://id.example,client_id=z",
        ] {
            HeaderRule::short(odd).expect_err(odd);
        }
    }

    #[test]
    fn the_long_form_is_checked_and_never_shown() {
        let text = r#"[{"host": "a.example", "headers": {"X-Key": "s3cret", "X-More": "t"}},
            {"host": "b.example", "auth": {"type": "oauth_client_credentials",
             "token_url": "https://id.example/t", "client_id": "app",
             "client_secret": "s3cret"}}]"#;
        let rules: Vec<HeaderRule> = serde_json::from_str(text).expect("rules");
        assert!(!format!("{rules:?}").contains("s3cret"));
        assert_eq!(rules[0].values().len(), 2);
        assert_eq!(rules[1].values()[0].header, "authorization");
        for rule in &rules {
            let again = serde_json::to_string(rule).expect("JSON");
            assert_eq!(serde_json::from_str::<HeaderRule>(&again).expect("it"), *rule);
            rule.scope().expect("a scope");
        }
        for odd in [
            r#"{"host": "a.example"}"#,
            r#"{"host": "*", "headers": {"x": "y"}}"#,
            r#"{"host": "a.example", "headers": {"Host": "y"}}"#,
            r#"{"host": "a.example", "headers": {"x": "y", "X": "z"}}"#,
            r#"{"host": "a.example", "auth": {"type": "other", "token_url": "https://i.example",
                "client_id": "a", "client_secret": "b"}}"#,
        ] {
            serde_json::from_str::<HeaderRule>(odd).expect(odd).scope().expect_err(odd);
        }
        let line_break = r#"{"host": "a.example", "headers": {"x": "y\nz"}}"#;
        serde_json::from_str::<HeaderRule>(line_break).expect_err("a line break");
    }

    #[test]
    fn what_is_seen_of_a_value_is_its_scheme() {
        let of = |text: &str| {
            scheme(&SecretContent::Value(SecretText::new(text.into()).expect("a value")))
        };
        assert_eq!((of("bearer abc"), of("Basic eDp5")), (Some("Bearer"), Some("Basic")));
        assert_eq!((of("s3cret"), of("s3cret word")), (None, None));
    }
}
