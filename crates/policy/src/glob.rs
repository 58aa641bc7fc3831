//! Texts with `*` in them, as rules have them.
//!
//! A `*` matches any characters but `/`; a `*` at the end of a rule matches everything that
//! follows. One pass decides: no rule makes it slow.

/// A text that may have `*` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    pub fn new(text: impl Into<String>) -> Glob {
        Glob(text.into())
    }

    pub fn fits(&self, value: &str) -> bool {
        let (rule, value) = (self.0.as_bytes(), value.as_bytes());
        let (mut at, mut from) = (0, 0);
        // the last star, and how far it goes
        let mut star: Option<(usize, usize)> = None;
        loop {
            match (rule.get(at), value.get(from)) {
                (Some(b'*'), _) if at + 1 == rule.len() => return true,
                (Some(b'*'), _) => {
                    star = Some((at, from));
                    at += 1;
                }
                (None, None) => return true,
                (Some(own), Some(byte)) if own == byte => (at, from) = (at + 1, from + 1),
                _ => match star {
                    // a slash in the rule matches exactly one slash of the value: no earlier star
                    // helps
                    Some((own, to)) if to < value.len() && value[to] != b'/' => {
                        star = Some((own, to + 1));
                        (at, from) = (own + 1, to + 1);
                    }
                    _ => return false,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fits(rule: &str, value: &str) -> bool {
        Glob::new(rule).fits(value)
    }

    #[test]
    fn stars_stand_for_anything_within_a_part() {
        for (rule, value) in [
            ("", ""),
            ("a", "a"),
            ("*", ""),
            ("*", "a/b"),
            ("/v1/*", "/v1/"),
            ("/v1/*", "/v1/a/b"),
            ("/r/*/i", "/r/x/i"),
            ("/r/*/i/*", "/r/x/i/1/2"),
            ("*_a*b", "x_a_a_b"),
            ("list_*", "list_issues"),
            ("/a*b*c", "/abxbyc"),
            ("/*a/*b", "/aa/bb"),
        ] {
            assert!(fits(rule, value), "{rule} {value}");
        }
        for (rule, value) in [
            ("", "a"),
            ("a", ""),
            ("a", "ab"),
            ("/v1/*", "/v1"),
            ("/v1/*", "/v10/x"),
            ("/r/*/i", "/r/x/y/i"),
            ("/r/*/i", "/r/x"),
            ("/*/b", "/a/c/b"),
            ("/*b", "/a/b"),
        ] {
            assert!(!fits(rule, value), "{rule} {value}");
        }
    }

    /// The definition, as slow as it is plain.
    fn plain(rule: &[u8], value: &[u8]) -> bool {
        match rule {
            [] => value.is_empty(),
            [b'*'] => true,
            [b'*', rest @ ..] => (0..=value.len())
                .take_while(|n| !value[..*n].contains(&b'/'))
                .any(|n| plain(rest, &value[n..])),
            [own, rest @ ..] => value.first() == Some(own) && plain(rest, &value[1..]),
        }
    }

    proptest! {
        #[test]
        fn it_is_what_it_is_defined_as(rule in "[ab/*]{0,8}", value in "[ab/]{0,10}") {
            prop_assert_eq!(fits(&rule, &value), plain(rule.as_bytes(), value.as_bytes()));
        }
    }
}
