//! Puts values where placeholders are: in headers, in the user and password of basic
//! authentication, and in queries. Pure.
//!
//!   head ─► SubstitutionPlan: the placeholders in it ─► values, as far as they are granted
//!        ─► Substitutions ─► the same head with values
//!
//! A placeholder without a value stays as it is. Values in queries are percent-encoded.

use crate::placeholder::found;
use crate::value::SecretText;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::collections::{BTreeSet, HashMap};
use zeroize::Zeroizing;

const BASIC: &[u8] = b"basic ";
/// Everything but what RFC 3986 leaves as it is.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The placeholders in the head of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SubstitutionPlan {
    placeholders: BTreeSet<String>,
}

impl SubstitutionPlan {
    /// Looks at the value of a header.
    pub fn header(&mut self, value: &[u8]) {
        match basic(value) {
            Some(decoded) => self.text(&decoded),
            None => self.text(value),
        }
    }

    /// Looks at a query.
    pub fn query(&mut self, query: &str) {
        self.text(query.as_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        let places = found(text).filter_map(|place| std::str::from_utf8(&text[place]).ok());
        self.placeholders.extend(places.map(str::to_owned));
    }

    pub fn is_empty(&self) -> bool {
        self.placeholders.is_empty()
    }

    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.placeholders.iter().map(String::as_str)
    }
}

/// The user and password of basic authentication, if that is what a header has.
fn basic(value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, rest) = value.split_at_checked(BASIC.len())?;
    let is_basic = scheme.eq_ignore_ascii_case(BASIC);
    let decoded = is_basic.then(|| STANDARD.decode(rest.trim_ascii()).ok())?;
    decoded.map(Zeroizing::new)
}

/// Values by their placeholders.
#[derive(Debug, Default)]
pub struct Substitutions {
    values: HashMap<String, SecretText>,
}

impl Substitutions {
    pub fn add(&mut self, placeholder: &str, value: SecretText) {
        self.values.insert(placeholder.to_owned(), value);
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of a header with secrets in it; none, if it has no placeholder with a value.
    pub fn header(&self, value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let Some(decoded) = basic(value) else { return self.replaced(value, |text| text.into()) };
        let filled = self.replaced(&decoded, |text| text.into())?;
        let encoded = Zeroizing::new(STANDARD.encode(&*filled));
        Some(Zeroizing::new([&value[..BASIC.len()], encoded.as_bytes()].concat()))
    }

    /// A query with secrets in it; none, if it has no placeholder with a value.
    pub fn query(&self, query: &str) -> Option<Zeroizing<String>> {
        let encode = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
        let bytes = self.replaced(query.as_bytes(), encode)?;
        String::from_utf8(bytes.to_vec()).ok().map(Zeroizing::new)
    }

    fn replaced(&self, text: &[u8], form: impl Fn(&str) -> String) -> Option<Zeroizing<Vec<u8>>> {
        let (mut out, mut from) = (Zeroizing::new(Vec::new()), 0);
        for place in found(text) {
            let name = std::str::from_utf8(&text[place.clone()]).ok()?;
            let Some(value) = self.values.get(name) else { continue };
            out.extend_from_slice(&text[from..place.start]);
            out.extend_from_slice(Zeroizing::new(form(value.reveal())).as_bytes());
            from = place.end;
        }
        if from == 0 {
            return None;
        }
        out.extend_from_slice(&text[from..]);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::MasterKey;
    use crate::placeholder::Placeholder;
    use proptest::prelude::*;

    fn one(number: u8) -> Placeholder {
        Placeholder::of(&MasterKey::new([number; 32]), "a", "X", 1)
    }

    fn values(all: &[(u8, &str)]) -> Substitutions {
        let mut values = Substitutions::default();
        for (number, text) in all {
            let value = SecretText::new((*text).to_owned()).expect("a value");
            values.add(one(*number).as_str(), value);
        }
        values
    }

    #[test]
    fn headers_basic_authentication_and_queries_are_filled() {
        let (a, b, c) = (one(1), one(2), one(3));
        let values = values(&[(1, "s3cret"), (2, "p&ss word")]);
        let header = format!("Bearer {a}");
        assert_eq!(values.header(header.as_bytes()).expect("filled")[..], *b"Bearer s3cret");
        let basic = format!("bAsic {}", STANDARD.encode(format!("me:{b}")));
        let filled = values.header(basic.as_bytes()).expect("filled");
        let decoded = STANDARD.decode(&filled[6..]).expect("base64");
        assert_eq!(decoded, b"me:p&ss word");
        let query = format!("key={b}&k={a}&z={c}");
        let filled = values.query(&query).expect("filled");
        assert_eq!(*filled, format!("key=p%26ss%20word&k=s3cret&z={c}"));
        // an unknown one stays
        assert!(values.header(format!("Bearer {c}").as_bytes()).is_none());
        assert!(values.header(b"Basic !!!").is_none() && values.query("a=b").is_none());
    }

    #[test]
    fn the_plan_names_what_is_needed() {
        let (a, b) = (one(1), one(2));
        let mut plan = SubstitutionPlan::default();
        plan.header(b"text/html");
        assert!(plan.is_empty());
        plan.header(format!("{a}{a}").as_bytes());
        plan.header(format!("Basic {}", STANDARD.encode(format!("{b}:"))).as_bytes());
        plan.query(&format!("x={b}"));
        assert_eq!(plan.placeholders().count(), 2);
    }

    proptest! {
        #[test]
        fn what_is_planned_is_filled(before in ".{0,20}", after in ".{0,20}", basic: bool) {
            let text = format!("{before}{}{after}", one(1));
            let header = match basic {
                true => format!("Basic {}", STANDARD.encode(&text)),
                false => text,
            };
            let mut plan = SubstitutionPlan::default();
            plan.header(header.as_bytes());
            let filled = values(&[(1, "V")]).header(header.as_bytes());
            prop_assert_eq!(plan.is_empty(), filled.is_none());
        }
    }
}
