//! Types of secrets.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A secret that the policies of a machine grant, as its code knows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineSecret {
    pub hosts: Vec<String>,
    pub name: String,
    /// The text that code writes instead of the value.
    pub placeholder: String,
    pub variable: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineSecrets {
    pub secrets: Vec<MachineSecret>,
}

/// OAuth client credentials.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OauthClient {
    pub client_id: String,
    pub client_secret: String,
    /// Seconds before the end of a token at which it is renewed; 30, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_buffer_secs: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Where tokens are obtained: an `https:` or `http:` URL.
    pub token_url: String,
}

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Secret {
    pub changed_at: Timestamp,
    pub hosts: Vec<String>,
    pub kind: SecretKind,
    pub name: String,
    /// The variable that has the placeholder, in machines whose policy grants the secret.
    pub variable: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SecretKind {
    Value,
    Oauth,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SecretList {
    pub secrets: Vec<Secret>,
}

/// A secret to keep. It has either `value` or `oauth`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SetSecret {
    /// Hosts whose requests get the value: `api.example.com`, `*.example.com` or `HOST:PORT`.
    /// Without a port the value goes out over TLS on port 443 only.
    pub hosts: Vec<String>,
    /// Client credentials; requests get a token that the service obtains with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OauthClient>,
    /// The value: printable ASCII, at most 16 KiB. It is never shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}
