//! The key of all secrets of a host, and what is derived from it.
//!
//!   master key ─ HKDF ─┬─ "seal"         AES-256-GCM, a random nonce for each value
//!                      ├─ "placeholder"  texts that code sees instead of values
//!                      └─ "authority"    the keys that sign certificates for one line of machines
//!
//! A value is sealed together with its account and name: it does not open as another one.

use crate::error::SecretError;
use crate::value::SecretContent;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroizing;

const LENGTH: usize = 32;
/// Of what a sealed text is: the only form there is yet.
const FORM: u8 = 1;

pub struct MasterKey(Zeroizing<[u8; LENGTH]>);

/// A sealed content as text, to be kept on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedText(String);

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MasterKey(…)")
    }
}

impl MasterKey {
    pub fn new(bytes: [u8; LENGTH]) -> MasterKey {
        MasterKey(Zeroizing::new(bytes))
    }

    pub fn random() -> Result<MasterKey, SecretError> {
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).map_err(|error| SecretError::NoKey(error.to_string()))?;
        Ok(MasterKey::new(bytes))
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<MasterKey> {
        let text = text.trim();
        let digits = text.len() == LENGTH * 2 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let mut bytes = Zeroizing::new([0; LENGTH]);
        for (index, byte) in bytes.iter_mut().enumerate().filter(|_| digits) {
            *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
        }
        digits.then_some(MasterKey(bytes))
    }

    pub(crate) fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Bytes for one purpose and one subject.
    pub fn derive(&self, purpose: &str, subject: &[&str]) -> Zeroizing<[u8; LENGTH]> {
        let mut info = purpose.as_bytes().to_vec();
        for part in subject {
            info.extend((part.len() as u64).to_be_bytes());
            info.extend(part.as_bytes());
        }
        let prk = Salt::new(HKDF_SHA256, b"stasis secrets").extract(&self.0[..]);
        let mut out = Zeroizing::new([0; LENGTH]);
        let info = [info.as_slice()];
        let filled = prk.expand(&info, Length(LENGTH)).and_then(|okm| okm.fill(&mut out[..]));
        filled.expect("32 bytes are what HKDF-SHA256 gives at once");
        out
    }

    fn sealing(&self) -> RandomizedNonceKey {
        let key = self.derive("seal", &[]);
        RandomizedNonceKey::new(&AES_256_GCM, &key[..]).expect("a key of 32 bytes")
    }

    pub fn seal(
        &self,
        account: &str,
        name: &str,
        content: &SecretContent,
    ) -> Result<SealedText, SecretError> {
        let text = serde_json::to_vec(content);
        let bytes = text.map_err(|_| SecretError::NotOpened(name.to_owned()))?;
        self.seal_bytes(account, name, bytes)
    }

    /// Seals bytes of any kind, and wipes them.
    pub fn seal_bytes(
        &self,
        account: &str,
        name: &str,
        bytes: Vec<u8>,
    ) -> Result<SealedText, SecretError> {
        let not = |_| SecretError::NotOpened(name.to_owned());
        let mut bytes = Zeroizing::new(bytes);
        // room for the tag, so that no copy of the plain text stays behind
        let mut sealed = Zeroizing::new(Vec::with_capacity(bytes.len() + 64));
        sealed.append(&mut bytes);
        let whose = Aad::from(whose(account, name));
        let nonce = self.sealing().seal_in_place_append_tag(whose, &mut *sealed).map_err(not)?;
        let all = [&[FORM], &nonce.as_ref()[..], &sealed].concat();
        Ok(SealedText(STANDARD_NO_PAD.encode(all)))
    }

    pub fn open(
        &self,
        account: &str,
        name: &str,
        sealed: &SealedText,
    ) -> Result<SecretContent, SecretError> {
        let bytes = self.open_bytes(account, name, sealed)?;
        serde_json::from_slice(&bytes).map_err(|_| SecretError::NotOpened(name.to_owned()))
    }

    pub fn open_bytes(
        &self,
        account: &str,
        name: &str,
        sealed: &SealedText,
    ) -> Result<Zeroizing<Vec<u8>>, SecretError> {
        let not = || SecretError::NotOpened(name.to_owned());
        let bytes = Zeroizing::new(STANDARD_NO_PAD.decode(&sealed.0).map_err(|_| not())?);
        let [FORM, rest @ ..] = &bytes[..] else { return Err(not()) };
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN).ok_or_else(not)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| not())?;
        let mut plain = Zeroizing::new(sealed.to_vec());
        let whose = Aad::from(whose(account, name));
        let opened = self.sealing().open_in_place(nonce, whose, &mut plain);
        let length = opened.map_err(|_| not())?.len();
        plain.truncate(length);
        Ok(plain)
    }
}

fn whose(account: &str, name: &str) -> Vec<u8> {
    let mut bytes = (account.len() as u64).to_be_bytes().to_vec();
    bytes.extend(account.as_bytes());
    bytes.extend(name.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::SecretText;
    use proptest::prelude::*;

    fn content(text: &str) -> SecretContent {
        SecretContent::Value(SecretText::new(text.into()).expect("a value"))
    }

    #[test]
    fn a_sealed_value_opens_as_what_it_is_and_as_nothing_else() {
        let (key, other) = (MasterKey::new([7; 32]), MasterKey::new([8; 32]));
        let sealed = key.seal("a", "X", &content("s3cret")).expect("sealed");
        assert_eq!(key.open("a", "X", &sealed).expect("opened"), content("s3cret"));
        for (key, account, name) in [(&other, "a", "X"), (&key, "b", "X"), (&key, "a", "Y")] {
            key.open(account, name, &sealed).expect_err("another one");
        }
        let twice = key.seal("a", "X", &content("s3cret")).expect("sealed");
        assert_ne!(sealed, twice);
    }

    #[test]
    fn keys_are_hexadecimal_and_not_printed() {
        let key = MasterKey::random().expect("a key");
        let again = MasterKey::parse(&format!("{}\n", *key.text())).expect("the same");
        assert_eq!(key.derive("x", &["y"]), again.derive("x", &["y"]));
        assert_ne!(key.derive("x", &["ab", "c"]), key.derive("x", &["a", "bc"]));
        assert!(MasterKey::parse("12").is_none() && MasterKey::parse(&"g".repeat(64)).is_none());
        assert_eq!(format!("{key:?}"), "MasterKey(…)");
    }

    proptest! {
        #[test]
        fn a_damaged_text_does_not_open(at in 0usize..60, to in "[A-Za-z0-9+/]") {
            let key = MasterKey::new([7; 32]);
            let sealed = key.seal("a", "X", &content("s3cret and more of it")).expect("sealed");
            let mut text = sealed.0.clone();
            text.replace_range(at..=at, &to);
            let opened = key.open("a", "X", &SealedText(text.clone()));
            prop_assert_eq!(opened.is_ok(), text == sealed.0);
        }
    }
}
