//! Secrets of an account: values go in and never come out.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// A secret to keep. It has either `value` or `oauth`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// The value: printable ASCII, at most 16 KiB. It is never shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 16384)]
    pub value: Option<String>,
    /// Client credentials; requests get a token that the service obtains with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OauthClient>,
    /// Hosts whose requests get the value: `api.example.com`, `*.example.com` or `HOST:PORT`.
    /// Without a port the value goes out over TLS on port 443 only.
    #[schema(min_items = 1, max_items = 100)]
    pub hosts: Vec<String>,
}

impl fmt::Debug for SetSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SetSecret").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// OAuth client credentials.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OauthClient {
    /// Where tokens are obtained: an `https:` or `http:` URL.
    #[schema(max_length = 2048)]
    pub token_url: String,
    #[schema(min_length = 1, max_length = 1024)]
    pub client_id: String,
    #[schema(max_length = 16384)]
    pub client_secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub scope: Option<String>,
    /// Seconds before the end of a token at which it is renewed; 30, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_buffer_secs: Option<u64>,
}

impl fmt::Debug for OauthClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OauthClient").field("token_url", &self.token_url).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SecretKind {
    /// A value.
    Value,
    /// Client credentials, which tokens are obtained with.
    Oauth,
}

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Secret)]
pub struct SecretInfo {
    pub name: String,
    pub kind: SecretKind,
    pub hosts: Vec<String>,
    /// The variable that has the placeholder, in machines whose policy grants the secret.
    pub variable: String,
    #[schema(value_type = String, format = DateTime)]
    pub changed_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretList {
    pub secrets: Vec<SecretInfo>,
}

/// A secret that the policies of a machine grant, as its code knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineSecret {
    pub name: String,
    pub variable: String,
    /// The text that code writes instead of the value.
    pub placeholder: String,
    pub hosts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineSecrets {
    pub secrets: Vec<MachineSecret>,
}
