//! The text that code sees instead of a value: `stasis-placeholder-` and 32 hexadecimal digits.
//!
//! A placeholder belongs to a secret and to a line of machines: a machine and all its branches. It
//! is derived from the key of secrets, so nothing has to be kept, and a branch whose memory holds
//! its parent's placeholder can use it. It is worth nothing elsewhere.

use crate::key::MasterKey;
use std::fmt;

/// How every placeholder begins.
pub const PLACEHOLDER: &str = "stasis-placeholder-";
const DIGITS: usize = 32;

/// The variable that tells code a secret's placeholder.
pub fn variable(name: &str) -> String {
    format!("STASIS_SECRET_{}", name.to_ascii_uppercase())
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Placeholder(String);

impl Placeholder {
    /// The placeholder of a secret on one line of machines.
    pub fn of(key: &MasterKey, account: &str, name: &str, lineage: i64) -> Placeholder {
        let bytes = key.derive("placeholder", &[account, name, &lineage.to_string()]);
        let digits: String = bytes[..DIGITS / 2].iter().map(|byte| format!("{byte:02x}")).collect();
        Placeholder(format!("{PLACEHOLDER}{digits}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) const LENGTH: usize = PLACEHOLDER.len() + DIGITS;
}

impl fmt::Display for Placeholder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Where placeholders are in a text: texts of the right form, known or not.
pub(crate) fn found(text: &[u8]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        while let Some(rest) = text.get(from..).filter(|rest| rest.len() >= Placeholder::LENGTH) {
            let at = rest.windows(PLACEHOLDER.len()).position(|w| w == PLACEHOLDER.as_bytes())?;
            let (begin, end) = (from + at, from + at + Placeholder::LENGTH);
            let digits = text.get(begin + PLACEHOLDER.len()..end)?;
            if digits.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b)) {
                from = end;
                return Some(begin..end);
            }
            from = begin + 1;
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_placeholder_belongs_to_one_secret_and_one_line() {
        let key = MasterKey::new([7; 32]);
        let one = Placeholder::of(&key, "a", "GITHUB", 1);
        assert_eq!(one, Placeholder::of(&key, "a", "GITHUB", 1));
        for other in [
            Placeholder::of(&key, "b", "GITHUB", 1),
            Placeholder::of(&key, "a", "OTHER", 1),
            Placeholder::of(&key, "a", "GITHUB", 2),
            Placeholder::of(&MasterKey::new([8; 32]), "a", "GITHUB", 1),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(one.as_str().len(), Placeholder::LENGTH);
        assert_eq!(variable("github"), "STASIS_SECRET_GITHUB");
    }

    proptest! {
        #[test]
        fn placeholders_are_found_among_anything(
            before in "[a-z-]{0,30}", after in "[^a-f0-9].{0,9}", key: [u8; 32], twice: bool,
        ) {
            let one = Placeholder::of(&MasterKey::new(key), "a", "X", 1);
            let again = if twice { one.as_str() } else { "" };
            let text = format!("{before}{one}{after}{again}");
            let places: Vec<_> = found(text.as_bytes()).collect();
            prop_assert_eq!(places.len(), 1 + usize::from(twice));
            for place in places {
                prop_assert_eq!(&text[place], one.as_str());
            }
        }

        #[test]
        fn any_bytes_are_searched(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(found(&bytes).count(), 0);
        }
    }
}
