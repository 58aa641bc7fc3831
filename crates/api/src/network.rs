//! A machine's network, written as one word.

use crate::{Name, NameError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

const POLICY: &str = "policy:";

/// The addresses that a machine may reach: `none` (loopback only), `open` (addresses outside the
/// host, over TCP and UDP; never the host itself) or `policy:NAME` (those that this policy allows).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Network {
    #[default]
    None,
    Open,
    Policy(Name),
}

/// Not a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkError {
    Word(String),
    Name(NameError),
}

impl Network {
    /// Whether machines with it have an interface to the outside.
    pub fn is_none(&self) -> bool {
        *self == Network::None
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkError::Word(word) => {
                write!(out, "{word:?} is not a network: write `none`, `open` or `policy:NAME`")
            }
            NetworkError::Name(error) => write!(out, "a policy's name: {error}"),
        }
    }
}

impl std::error::Error for NetworkError {}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::None => out.write_str("none"),
            Network::Open => out.write_str("open"),
            Network::Policy(name) => write!(out, "{POLICY}{name}"),
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        match (text, text.strip_prefix(POLICY)) {
            ("none", _) => Ok(Network::None),
            ("open", _) => Ok(Network::Open),
            (_, Some(name)) => name.parse().map(Network::Policy).map_err(NetworkError::Name),
            _ => Err(NetworkError::Word(text.chars().take(80).collect())),
        }
    }
}

impl utoipa::PartialSchema for Network {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        let about = "The addresses that a machine may reach: `none` (loopback only), `open` \
                     (addresses outside the host, over TCP and UDP; never the host itself) or \
                     `policy:NAME` (those that this policy allows).";
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .pattern(Some("^(none|open|policy:[A-Za-z0-9][A-Za-z0-9_-]{0,63})$"))
            .description(Some(about))
            .into()
    }
}

impl utoipa::ToSchema for Network {}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Network, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_one_word() {
        for word in ["none", "open", "policy:web", "policy:a_B-1"] {
            let network: Network = word.parse().expect(word);
            assert_eq!(network.to_string(), word);
            let json = serde_json::to_string(&network).expect("a word");
            assert_eq!(json, format!("{word:?}"));
            assert_eq!(serde_json::from_str::<Network>(&json).expect("the same"), network);
        }
        for word in ["", "None", "policy", "policy:", "policy:a b", "policy:../x", "web"] {
            assert!(word.parse::<Network>().is_err(), "{word:?}");
        }
    }
}
