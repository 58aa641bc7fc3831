//! The kinds of BLAKE3 digest, as types that cannot be taken for one another.
//!
//! As text a digest is 64 lower-case hex digits and nothing else is read back: ids become file
//! names, and one thing must not have two names.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

/// The text is not the hex form of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: expected 64 lower-case hex digits")]
pub struct ParseDigestError;

macro_rules! digest {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// The digest of these bytes.
            pub fn of(bytes: &[u8]) -> Self {
                Self(*blake3::hash(bytes).as_bytes())
            }
        }

        // By hand: the derived form also writes a length, which `PageSet`'s hasher has no use for.
        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                state.write(&self.0);
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = ParseDigestError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                parse_hex(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    let text = String::deserialize(deserializer)?;
                    text.parse().map_err(D::Error::custom)
                } else {
                    Deserialize::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}

digest! {
    /// Names an image: the digest of the whole image file.
    ImageId
}
digest! {
    /// Names an inode whose number files have: the digest of overlayfs's record of it.
    OriginId
}
digest! {
    /// Names the contents of one page.
    PageHash
}
digest! {
    /// Names a pack: the digest of its index, and through it of every page.
    PackRoot
}

fn parse_hex(text: &str) -> Result<[u8; 32], ParseDigestError> {
    let digits: &[u8; 64] = text.as_bytes().try_into().map_err(|_| ParseDigestError)?;
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Ok(digest)
}

fn nibble(digit: u8) -> Result<u8, ParseDigestError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(ParseDigestError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_round_trip() {
        let id = ImageId::of(b"stasis");
        assert_eq!(id.to_string().parse(), Ok(id));
        let bytes = postcard::to_stdvec(&id).unwrap();
        assert_eq!(bytes, id.0, "binary form is the 32 bytes alone");
        assert_eq!(postcard::from_bytes::<ImageId>(&bytes).unwrap(), id);
    }

    #[test]
    fn one_digest_has_one_spelling() {
        let text = ImageId::of(b"stasis").to_string();
        assert_eq!(text.to_uppercase().parse::<ImageId>(), Err(ParseDigestError));
        assert_eq!(text[1..].parse::<ImageId>(), Err(ParseDigestError));
        assert_eq!(format!("{text}0").parse::<ImageId>(), Err(ParseDigestError));
        assert_eq!("é".repeat(32).parse::<ImageId>(), Err(ParseDigestError));
    }
}
