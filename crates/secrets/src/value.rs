//! Values, wiped from memory when they are dropped and never printed.

use crate::error::SecretError;
use serde::{Deserialize, Serialize};
use std::fmt;
use url::Url;
use zeroize::Zeroizing;

const LONGEST: usize = 16 << 10;

/// A secret text. Its characters can stand in a header.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Takes a value without the line break at its end, which files and pipes add.
    pub fn new(text: String) -> Result<SecretText, SecretError> {
        let text = Zeroizing::new(text);
        let trimmed = text.strip_suffix('\n').unwrap_or(&text);
        let trimmed = trimmed.strip_suffix('\r').unwrap_or(trimmed);
        let printable = trimmed.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        let edges = trimmed.trim() == trimmed;
        if trimmed.is_empty() || trimmed.len() > LONGEST || !printable || !edges {
            return Err(SecretError::Value);
        }
        Ok(SecretText(Zeroizing::new(trimmed.to_owned())))
    }

    /// The value itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SecretText(…)")
    }
}

impl Serialize for SecretText {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.reveal())
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<SecretText, D::Error> {
        let text = String::deserialize(from)?;
        SecretText::new(text).map_err(serde::de::Error::custom)
    }
}

/// How a token is got with OAuth client credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCredentials {
    pub token_url: String,
    pub client_id: String,
    pub client_secret: SecretText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// How long before its end a token is replaced.
    #[serde(default = "default_buffer")]
    pub refresh_buffer_secs: u64,
}

fn default_buffer() -> u64 {
    30
}

impl ClientCredentials {
    pub fn check(&self) -> Result<Url, SecretError> {
        let wrong = |said: &str| SecretError::Credentials(said.to_owned());
        let url = Url::parse(&self.token_url).map_err(|_| wrong("token_url is no URL"))?;
        if !matches!(url.scheme(), "https" | "http") || url.host().is_none() {
            return Err(wrong("token_url is an https: or http: URL"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("token_url has no user and password; use client_id"));
        }
        let plain = |text: &str| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        let fits = |text: &str| text.len() <= 1024 && plain(text);
        if self.client_id.is_empty() || !fits(&self.client_id) {
            return Err(wrong("client_id has 1 to 1024 printable characters"));
        }
        if !self.scope.as_deref().is_none_or(fits) || self.token_url.len() > 2048 {
            return Err(wrong("scope has at most 1024 characters, token_url 2048"));
        }
        Ok(url)
    }
}

/// The sealed content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretContent {
    Value(SecretText),
    OauthClient(ClientCredentials),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fit_a_header_and_are_not_printed() {
        let value = SecretText::new("s3cret value\r\n".into()).expect("a value");
        assert_eq!(value.reveal(), "s3cret value");
        let shown = format!("{:?} {:?}", value, SecretContent::Value(value.clone()));
        assert!(!shown.contains("s3cret"), "{shown}");
        for bad in ["", "\n", "a\nb", "a\0", "gr\u{fc}n", " a", &"x".repeat(LONGEST + 1)] {
            assert!(SecretText::new(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn client_credentials_are_checked() {
        let good = ClientCredentials {
            token_url: "https://id.example/token".into(),
            client_id: "app".into(),
            client_secret: SecretText::new("x".into()).expect("a value"),
            scope: None,
            refresh_buffer_secs: 30,
        };
        good.check().expect("good");
        for url in ["nonsense", "ftp://id.example/", "https://u:p@id.example/"] {
            let bad = ClientCredentials { token_url: url.into(), ..good.clone() };
            bad.check().expect_err(url);
        }
        ClientCredentials { client_id: String::new(), ..good }.check().expect_err("no id");
    }
}
