//! A machine's name: safe to paste into a path, a URL and a shell line as it is.

use serde::{Deserialize, Serialize};
use std::fmt;

/// 1 to 64 characters of `A-Z a-z 0-9 _ -`, the first a letter or digit; never `new`, which means
/// "create one".
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
pub struct Name(String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError(pub String);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = "names are 1 to 64 letters, digits, `_` or `-`, beginning with a letter or \
                    digit, and not `new`";
        write!(f, "{:?} is not a machine's name: {rule}", self.0)
    }
}

impl std::error::Error for NameError {}

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A fresh name of 16 letters and digits, from 12 or more random bytes.
    pub fn from_random(bytes: &[u8; 16]) -> Name {
        const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuv";
        Name(bytes.iter().map(|byte| LETTERS[usize::from(byte % 32)] as char).collect())
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if first && text.len() <= 64 && text.chars().all(plain) && text != "new" {
            return Ok(Name(text.to_owned()));
        }
        Err(NameError(text.chars().take(80).collect()))
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_name() {
        for text in ["", "new", "-a", "_a", "a/b", "a b", "ä", "..", "a\0", &"x".repeat(65)] {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn random_names_are_names(bytes: [u8; 16]) {
            let name = Name::from_random(&bytes);
            prop_assert_eq!(name.as_str().parse::<Name>(), Ok(name.clone()));
        }

        #[test]
        fn a_name_is_one_path_component(text in ".*") {
            if let Ok(name) = text.parse::<Name>() {
                prop_assert!(!name.as_str().contains(['/', '.', '@', '%', '\0']));
            }
        }
    }
}
