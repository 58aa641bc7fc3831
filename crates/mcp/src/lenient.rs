//! Lenient parsing of models' arguments where the meaning is clear: one string for a list, a number
//! in quotes. Schemas keep naming the one correct form.

use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// A list of texts, or one text.
pub fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Option::deserialize(deserializer)? {
        None => Vec::new(),
        Some(OneOrMany::One(text)) => vec![text],
        Some(OneOrMany::Many(texts)) => texts,
    })
}

/// A list of names, or several in one text.
pub fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::Many(texts) => texts,
        // a requirement such as `requests >= 2, < 3` is one
        OneOrMany::One(text) if text.contains(['<', '>', '=', '~', '!', ';', '[']) => vec![text],
        OneOrMany::One(text) => {
            let parts = text.split([',', ' ', '\n']).filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        }
    })
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

/// A number, or one in quotes.
pub fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Option::deserialize(deserializer)? {
        None => Ok(None),
        Some(NumberOrText::Number(number)) => Ok(Some(number)),
        Some(NumberOrText::Text(text)) => {
            let wrong = |_| serde::de::Error::custom(format!("{text:?} is not a number"));
            text.trim().parse().map(Some).map_err(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn packages_in_one_text() {
        let of = |value: serde_json::Value| words(value).expect("a list");
        assert_eq!(of(json!("pandas numpy, six")), ["pandas", "numpy", "six"]);
        assert_eq!(of(json!("requests >= 2")), ["requests >= 2"]);
        assert_eq!(of(json!(["a", "b"])), ["a", "b"]);
        assert!(words(json!(7)).is_err());
    }

    #[test]
    fn numbers_in_quotes() {
        assert_eq!(number(json!("3")).expect("a number"), Some(3));
        assert_eq!(number(json!(null)).expect("none"), None);
        assert!(number(json!("x")).is_err() && number(json!(-1)).is_err());
    }
}
