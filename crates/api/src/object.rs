//! Objects inside requests. Serde also accepts a list as the fields of a structure in order, which
//! the OpenAPI document does not allow: the types here accept objects only.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

type Fields = Map<String, Value>;

pub fn required<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    read(Fields::deserialize(deserializer)?)
}

pub fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Option::<Fields>::deserialize(deserializer)?.map(read).transpose()
}

/// A `null` counts as a value.
pub fn nullable<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    optional(deserializer).map(Some)
}

pub fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Vec::<Fields>::deserialize(deserializer)?.into_iter().map(read).collect()
}

fn read<T: DeserializeOwned, E: Error>(fields: Fields) -> Result<T, E> {
    T::deserialize(Value::Object(fields)).map_err(E::custom)
}

#[cfg(test)]
mod tests {
    use crate::{BranchRequest, ExecRequest, ExploreRequest, NewMachine, Update};
    use serde::de::DeserializeOwned;

    fn reads<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_is_no_object() {
        for text in [r#"{"limits": [1024]}"#, r#"{"retention": [5, 60, true]}"#] {
            assert!(reads::<NewMachine>(text).is_err(), "{text}");
            assert!(reads::<Update>(text).is_err(), "{text}");
        }
        assert!(reads::<ExecRequest>(r#"{"instruction": ["1"]}"#).is_err());
        assert!(reads::<BranchRequest>(r#"{"vary": [["1"]]}"#).is_err());
        assert!(reads::<BranchRequest>(r#"{"vary": [{"limits": [1]}]}"#).is_err());
        assert!(reads::<ExploreRequest>(r#"{"candidates": [["1"]], "score": "1"}"#).is_err());
    }

    #[test]
    fn an_object_is_read_as_before() {
        let new = reads::<NewMachine>(r#"{"limits": {"memory_mb": 64.0}, "retention": null}"#);
        let new = new.expect("a machine");
        assert_eq!((new.limits.memory_mb, new.retention), (Some(64), None));
        let update = reads::<Update>(r#"{"retention": {"last": 3}}"#).expect("an update");
        assert_eq!(update.retention.flatten().and_then(|rule| rule.last), Some(3));
        assert_eq!(reads::<Update>(r#"{"retention": null}"#).expect("none").retention, Some(None));
        assert_eq!(reads::<Update>("{}").expect("nothing").retention, None);
        let wrong = reads::<Update>(r#"{"retention": {"newest": 3}}"#).expect_err("unknown");
        assert!(wrong.starts_with("unknown field `newest`"), "{wrong}");
    }
}
