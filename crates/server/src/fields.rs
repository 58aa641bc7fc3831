//! Unknown fields and parameters: names the one that was sent, the valid ones, and the nearest.

use crate::failure::HttpFailure;
use stasis_api::Problem;

/// Minimum similarity of a misspelt name, from 0 to 1.
const ALIKE: f64 = 0.75;

/// The failure for an unknown field, if that is serde's error.
pub fn unknown(said: &str) -> Option<HttpFailure> {
    let (_, rest) = said.split_once("unknown field `")?;
    let (field, known) = rest.split_once("`, ")?;
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    let message = format!("there is no field `{field}`");
    let hint = match nearest(field, &known) {
        Some(meant) => format!("`{meant}` is the nearest; there are: {}", known.join(", ")),
        None if known.is_empty() => "nothing can be set here".to_owned(),
        None => format!("there are: {}", known.join(", ")),
    };
    Some(HttpFailure::about(Problem::Invalid, "request.field", message).hint(hint))
}

fn nearest<'a>(field: &str, known: &[&'a str]) -> Option<&'a str> {
    let alike = |name: &&str| strsim::jaro_winkler(field, name);
    let best = known.iter().copied().max_by(|a, b| alike(a).total_cmp(&alike(b)))?;
    (alike(&best) >= ALIKE).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(field: &str, known: &'static [&'static str]) -> String {
        let error: serde::de::value::Error = serde::de::Error::unknown_field(field, known);
        unknown(&error.to_string()).expect("a failure").hint
    }

    #[test]
    fn the_nearest_field_is_named() {
        let known = &["name", "tags", "memory_mb", "network"];
        let all = "name, tags, memory_mb, network";
        assert_eq!(hint("memory", known), format!("`memory_mb` is the nearest; there are: {all}"));
        assert_eq!(hint("netwrok", known), format!("`network` is the nearest; there are: {all}"));
        assert_eq!(hint("zzz", known), format!("there are: {all}"));
        assert_eq!(hint("seq", &["sequence"]), "`sequence` is the nearest; there are: sequence");
        assert_eq!(hint("x", &[]), "nothing can be set here");
        assert!(unknown("missing field `code`").is_none());
    }
}
