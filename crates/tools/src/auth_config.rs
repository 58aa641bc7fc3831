//! How the service proves to an upstream server that it may use it: OAuth, with a person in a
//! browser or with client credentials.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use url::{Host, Url};

const LONGEST: usize = 2048;
const MOST_SCOPES: usize = 64;

/// `auth` of a server. The first form is mcp-v8's.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum ServerAuth {
    /// A person allows it once in a browser.
    #[serde(rename = "oauth_browser")]
    Browser(BrowserAuth),
    /// The service has credentials of its own.
    #[serde(rename = "oauth_client_credentials")]
    Client(ClientAuth),
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrowserAuth {
    pub scope: Vec<String>,
    /// Without one, the service registers itself.
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    /// The port of the callback; any free one, if absent.
    pub redirect_port: Option<u16>,
    /// Where tokens are kept; a file in the user's configuration directory, if absent.
    pub token_cache: Option<PathBuf>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientAuth {
    pub token_url: String,
    pub client_id: String,
    pub client_secret: String,
    #[serde(default)]
    pub scope: Option<String>,
}

/// Without the secrets.
impl fmt::Debug for ServerAuth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAuth::Browser(own) => write!(out, "Browser({:?}, …)", own.client_id),
            ServerAuth::Client(own) => write!(out, "Client({:?}, …)", own.client_id),
        }
    }
}

impl ServerAuth {
    pub(crate) const SHAPE: &'static str = "{\"type\": \"oauth_browser\"} or {\"type\": \
        \"oauth_client_credentials\", \"token_url\", \"client_id\", \"client_secret\"}; a fixed \
        token goes into `headers`";

    /// With variables in the place of `${NAME}`.
    pub(crate) fn filled(
        self,
        fill: impl Fn(&str) -> Result<String, String>,
    ) -> Result<ServerAuth, String> {
        let maybe = |text: Option<String>| text.map(|text| fill(&text)).transpose();
        Ok(match self {
            ServerAuth::Browser(own) => ServerAuth::Browser(BrowserAuth {
                client_id: maybe(own.client_id)?,
                client_secret: maybe(own.client_secret)?,
                ..own
            }),
            ServerAuth::Client(own) => ServerAuth::Client(ClientAuth {
                client_id: fill(&own.client_id)?,
                client_secret: fill(&own.client_secret)?,
                ..own
            }),
        })
    }

    /// Tokens travel over TLS, or stay on the host.
    pub(crate) fn check(&self, server: &Url) -> Result<(), String> {
        check_endpoint(server, server)?;
        match self {
            ServerAuth::Browser(own) => {
                let decent = |scope: &String| {
                    (1..=256).contains(&scope.len()) && scope.bytes().all(|b| b.is_ascii_graphic())
                };
                if own.scope.len() > MOST_SCOPES || !own.scope.iter().all(decent) {
                    return Err(format!("`scope` is a list of at most {MOST_SCOPES} words"));
                }
                if own.client_secret.is_some() && own.client_id.is_none() {
                    return Err("`client_secret` needs `client_id`".into());
                }
                Ok(())
            }
            ServerAuth::Client(own) => {
                let url = Url::parse(&own.token_url);
                let url = url.map_err(|error| format!("`token_url`: {error}"))?;
                if own.client_id.is_empty() || own.client_secret.is_empty() {
                    return Err("`client_id` and `client_secret` are not empty".into());
                }
                check_endpoint(&url, server)
            }
        }
    }
}

/// An address that tokens are sent to: `https:`, or `http:` on the host itself. Only a server that
/// is on the host can name others there.
pub(crate) fn check_endpoint(url: &Url, server: &Url) -> Result<(), String> {
    let shown: String = url.as_str().chars().take(200).collect();
    if url.as_str().len() > LONGEST || url.host().is_none() {
        return Err(format!("{shown}: not an address for OAuth"));
    }
    match (url.scheme(), is_loopback(url)) {
        ("https", false) => Ok(()),
        ("http" | "https", true) if is_loopback(server) => Ok(()),
        ("http" | "https", true) => {
            Err(format!("{shown}: a server elsewhere cannot name an address on this host"))
        }
        _ => Err(format!("{shown}: OAuth needs https:, except on this host")),
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect(text)
    }

    #[test]
    fn tokens_travel_over_tls_or_stay_here() {
        let (far, near) = (url("https://tools.example/mcp"), url("http://127.0.0.1:9/mcp"));
        assert!(check_endpoint(&far, &far).is_ok() && check_endpoint(&near, &near).is_ok());
        assert!(check_endpoint(&far, &near).is_ok());
        assert!(check_endpoint(&near, &far).is_err(), "the host's own services");
        assert!(check_endpoint(&url("https://[::1]/"), &far).is_err());
        assert!(check_endpoint(&url("http://tools.example/"), &far).is_err());
        assert!(check_endpoint(&url("file:///etc/passwd"), &near).is_err());
    }

    #[test]
    fn forms() {
        let read = |text: &str| serde_json::from_str::<ServerAuth>(text);
        let own = read(r#"{"type": "oauth_browser", "scope": ["a"], "client_secret": "s"}"#);
        let own = own.expect("auth");
        assert!(own.check(&url("https://tools.example/")).is_err(), "no client");
        assert!(!format!("{own:?}").contains("\"s\""));
        assert!(read(r#"{"type": "oauth_browser", "other": 1}"#).is_err());
        assert!(read(r#"{"type": "basic"}"#).is_err());
        let own = r#"{"type": "oauth_client_credentials", "token_url": "http://id.example/t",
                      "client_id": "a", "client_secret": "b"}"#;
        assert!(read(own).expect("auth").check(&url("https://tools.example/")).is_err());
    }
}
