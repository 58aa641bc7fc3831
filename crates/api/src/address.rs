//! `machine@seq`: the state after an instruction.

use crate::{Name, NameError};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A machine, or with `seq` its state after that instruction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    pub machine: Name,
    pub seq: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressError {
    Name(NameError),
    Seq(String),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Name(error) => error.fmt(f),
            AddressError::Seq(text) => {
                write!(f, "{text:?} is not an instruction's number: write `machine@seq`")
            }
        }
    }
}

impl std::error::Error for AddressError {}

impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let (name, seq) = match text.split_once('@') {
            None => (text, None),
            Some((name, seq)) => (name, Some(seq)),
        };
        let digits = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = |text: &str| {
            let parsed = Some(text).filter(digits).and_then(|text| text.parse::<u32>().ok());
            parsed.map(u64::from).ok_or_else(|| AddressError::Seq(text.chars().take(40).collect()))
        };
        let machine = name.parse().map_err(AddressError::Name)?;
        Ok(Address { machine, seq: seq.map(number).transpose()? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seq {
            None => self.machine.fmt(f),
            Some(seq) => write!(f, "{}@{seq}", self.machine),
        }
    }
}

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Address {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        String::schema()
    }
}

impl utoipa::ToSchema for Address {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn printed_and_read_again(name in "[a-z0-9][a-z0-9_-]{3,20}", seq: Option<u32>) {
            let address = Address {
                machine: name.parse().expect("a name"),
                seq: seq.map(u64::from),
            };
            prop_assert_eq!(address.to_string().parse::<Address>(), Ok(address));
        }
    }

    #[test]
    fn what_is_no_address() {
        for text in ["m@", "m@-1", "m@+1", "m@1x", "@1", "m@1@2", "m@99999999999"] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
    }
}
