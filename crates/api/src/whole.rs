//! Integers in requests, as JSON Schema defines them: `381` and `381.0` are the same.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Number;

/// Integers up to this value are exact as floating-point numbers.
const EXACT: f64 = 9_007_199_254_740_992.0;

pub fn number<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<T, D::Error> {
    read(&Number::deserialize(deserializer)?)
}

pub fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let given = Option::<Number>::deserialize(deserializer)?;
    given.as_ref().map(read).transpose()
}

fn read<T: TryFrom<u64>, E: Error>(given: &Number) -> Result<T, E> {
    let float = given.as_f64().unwrap_or(f64::NAN);
    if float.fract() != 0.0 {
        return Err(E::custom(format!("invalid type: {given} is not a whole number")));
    }
    let exact = (0.0..EXACT).contains(&float).then_some(float as u64);
    let whole = given.as_u64().or(exact).and_then(|number| T::try_from(number).ok());
    whole.ok_or_else(|| E::custom(format!("invalid value: integer `{given}` is out of range")))
}

#[cfg(test)]
mod tests {
    use crate::{LabelRequest, MachineFilter};

    #[test]
    fn a_whole_number_may_have_a_point() {
        let label = |text: &str| serde_json::from_str::<LabelRequest>(text);
        assert_eq!(label(r#"{"seq": 381.0, "label": "a"}"#).expect("a number").seq, 381);
        for wrong in ["381.5", "-1", "-1.0", "4294967296", "1e300", "\"1\"", "null"] {
            assert!(label(&format!("{{\"seq\": {wrong}, \"label\": null}}")).is_err(), "{wrong}");
        }
        let filter = |text: &str| serde_json::from_str::<MachineFilter>(text);
        assert_eq!(filter(r#"{"limit": null}"#).expect("none").limit, None);
        assert_eq!(filter("{}").expect("none").limit, None);
        let large = filter(r#"{"limit": 18446744073709551616}"#).expect_err("too large");
        assert!(large.to_string().starts_with("invalid value: integer"), "{large}");
    }
}
