//! The hosts that get a secret: a name or every name below one, and ports.
//!
//! Without ports a secret goes out over TLS on port 443 only. A port that is written down is meant:
//! requests to it may be plain.

use crate::error::SecretError;
use serde::{Deserialize, Serialize};
use stasis_policy::pattern::normal_name;
use std::fmt;

const HTTPS: u16 = 443;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HostBinding {
    text: String,
    name: String,
    /// Every name below it instead of it.
    below: bool,
    port: Option<u16>,
}

impl HostBinding {
    pub fn parse(text: &str) -> Result<HostBinding, SecretError> {
        let wrong = |why: &str| SecretError::Host(text.to_owned(), why.to_owned());
        let (host, port) = match text.split_once(':') {
            None => (text, None),
            Some((host, port)) => {
                let port = port.parse::<u16>().ok().filter(|port| *port != 0);
                (host, Some(port.ok_or_else(|| wrong("its port is no number"))?))
            }
        };
        let (below, host) = match host.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, host),
        };
        let name = normal_name(host).ok_or_else(|| wrong("it is no name"))?;
        if below && !name.contains('.') {
            return Err(wrong("a wildcard needs two labels after it"));
        }
        Ok(HostBinding { text: text.to_owned(), name, below, port })
    }

    /// Whether a request to this host gets the secret.
    pub fn covers(&self, name: &str, port: u16, is_tls: bool) -> bool {
        let named = match self.below {
            true => name.strip_suffix(&self.name).is_some_and(|rest| rest.ends_with('.')),
            false => name == self.name,
        };
        let reached = match self.port {
            Some(own) => own == port,
            None => port == HTTPS && is_tls,
        };
        named && reached
    }

    /// A host and port that it covers: a name of its own, or one below it.
    pub fn example(&self) -> (String, u16) {
        let name = if self.below { format!("x.{}", self.name) } else { self.name.clone() };
        (name, self.port.unwrap_or(HTTPS))
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for HostBinding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl From<HostBinding> for String {
    fn from(binding: HostBinding) -> String {
        binding.text
    }
}

impl TryFrom<String> for HostBinding {
    type Error = SecretError;

    fn try_from(text: String) -> Result<HostBinding, SecretError> {
        HostBinding::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(binding: &str, name: &str, port: u16, is_tls: bool) -> bool {
        HostBinding::parse(binding).expect(binding).covers(name, port, is_tls)
    }

    #[test]
    fn a_secret_goes_to_its_hosts_over_tls() {
        assert!(covers("API.example", "api.example", 443, true));
        assert!(!covers("api.example", "api.example", 443, false), "plain");
        assert!(!covers("api.example", "api.example", 8443, true));
        assert!(!covers("api.example", "x.api.example", 443, true));
        assert!(!covers("api.example", "api.example.evil.example", 443, true));
        assert!(covers("*.a.example", "b.a.example", 443, true));
        assert!(covers("*.a.example", "c.b.a.example", 443, true));
        assert!(!covers("*.a.example", "a.example", 443, true));
        assert!(!covers("*.a.example", "evila.example", 443, true));
        assert!(covers("api.example:80", "api.example", 80, false));
        assert!(!covers("api.example:80", "api.example", 443, true));
    }

    #[test]
    fn a_host_is_a_name() {
        for bad in ["", "*", "*.com", "a b", "10.0.0.1", "a:0", "a:x", "a:99999", "https://a"] {
            HostBinding::parse(bad).expect_err(bad);
        }
        assert_eq!(HostBinding::parse("*.a.example").expect("good").example().0, "x.a.example");
    }
}
