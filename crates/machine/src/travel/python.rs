//! Values and steps as Python text.

use crate::error::{Error, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];
/// Values nested deeper than this are refused.
const DEEPEST: usize = 64;

/// `name = value`, for a value that came as JSON.
pub fn assignment(name: &str, value: &Value) -> Result<String> {
    Ok(format!("{} = {}\n", identifier(name)?, literal(value, 0)?))
}

pub fn identifier(name: &str) -> Result<&str> {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if first && name.len() <= 200 && name.chars().all(plain) && !KEYWORDS.contains(&name) {
        return Ok(name);
    }
    let shown: String = name.chars().take(80).collect();
    Err(Error::Invalid(format!("{shown:?} is no name of a variable")))
}

fn literal(value: &Value, depth: usize) -> Result<String> {
    if depth > DEEPEST {
        return Err(Error::Invalid(format!("a variable is nested more than {DEEPEST} deep")));
    }
    let all = |items: Vec<Result<String>>| -> Result<String> {
        Ok(items.into_iter().collect::<Result<Vec<_>>>()?.join(", "))
    };
    Ok(match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => number.to_string(),
        // JSON's escapes are Python's, too
        Value::String(text) => quoted(text),
        Value::Array(list) => {
            format!("[{}]", all(list.iter().map(|one| literal(one, depth + 1)).collect())?)
        }
        Value::Object(fields) => {
            let pair = |(key, one): (&String, &Value)| {
                Ok(format!("{}: {}", quoted(key), literal(one, depth + 1)?))
            };
            format!("{{{}}}", all(fields.iter().map(pair).collect())?)
        }
    })
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Code that runs aside from the session, with bytes and texts as `data`.
pub fn aside(code: &str, data: &[&[u8]]) -> String {
    let data: Vec<String> =
        data.iter().map(|one| format!("b('{}')", STANDARD.encode(one))).collect();
    let whole = format!("from base64 import b64decode as b\ndata = [{}]\n{code}", data.join(", "));
    format!("exec(compile({}, '<stasis>', 'exec'), {{'__name__': 'stasis_aside'}})", quoted(&whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_becomes_python() {
        let value = json!({"a": [1, -2.5, true, null], "é\n\"": {"b": "x"}});
        let text = assignment("v", &value).expect("a value");
        assert_eq!(text, "v = {\"a\": [1, -2.5, True, None], \"é\\n\\\"\": {\"b\": \"x\"}}\n");
    }

    #[test]
    fn what_is_no_variable() {
        for name in ["", "1a", "a.b", "a b", "x=1", "class", "ä", "a\n"] {
            assert!(identifier(name).is_err(), "{name:?}");
        }
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(assignment("x", &deep).is_err());
    }
}
