//! Checks of a new machine's tags and environment variables.

use std::collections::BTreeMap;

/// Tags of one machine, and bytes in each.
const MAX_TAGS: usize = 64;
const MAX_TAG: usize = 1024;
/// Environment variables of one machine, and bytes in all of them.
const MAX_ENV: usize = 1000;
const MAX_ENV_BYTES: usize = 128 << 10;

/// The fault in the settings of a new machine, as a message.
pub fn fault(
    tags: &BTreeMap<String, String>,
    env: &BTreeMap<String, String>,
) -> Option<&'static str> {
    let long = |(key, value): (&String, &String)| key.len() > MAX_TAG || value.len() > MAX_TAG;
    let odd = |key: &String| key.is_empty() || key.contains(['=', '\0']);
    let env_bytes: usize = env.iter().map(|(key, value)| key.len() + value.len()).sum();
    match () {
        () if tags.len() > MAX_TAGS => Some("a machine has at most 64 tags"),
        () if tags.iter().any(long) => Some("a tag's name and value have at most 1024 bytes each"),
        () if env.keys().any(odd) || env.values().any(|value| value.contains('\0')) => {
            Some("an environment variable has a name without `=`, and no NUL bytes")
        }
        () if env.len() > MAX_ENV || env_bytes > MAX_ENV_BYTES => {
            Some("a machine has at most 1000 environment variables, of 128 KiB in all")
        }
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn what_a_machine_may_be_made_with() {
        let none = BTreeMap::new();
        assert_eq!(fault(&one("team", "red"), &one("A", "b=c")), None);
        assert!(fault(&one("team", &"x".repeat(MAX_TAG + 1)), &none).is_some());
        for (key, value) in [("", "x"), ("a=b", "x"), ("a\0", "x"), ("a", "\0")] {
            assert!(fault(&none, &one(key, value)).is_some(), "{key:?} {value:?}");
        }
        let many = (0..=MAX_TAGS).map(|n| (n.to_string(), String::new())).collect();
        assert!(fault(&many, &none).is_some());
    }
}
