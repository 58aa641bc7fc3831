//! Values as source text: the part of it that languages share.

use crate::Unwritable;
use serde_json::Value;

/// Values nested deeper than this are refused.
const DEEPEST: usize = 64;

/// A language's notation of JSON values.
pub struct Notation {
    pub null: &'static str,
    pub yes: &'static str,
    pub no: &'static str,
    /// Around the fields of an object.
    pub braces: [&'static str; 2],
    /// The name of a field.
    pub key: fn(&str) -> String,
}

impl Notation {
    pub fn literal(&self, value: &Value) -> Result<String, Unwritable> {
        self.nested(value, 0)
    }

    fn nested(&self, value: &Value, depth: usize) -> Result<String, Unwritable> {
        if depth > DEEPEST {
            return Err(Unwritable(format!("a variable is nested more than {DEEPEST} deep")));
        }
        Ok(match value {
            Value::Null => self.null.into(),
            Value::Bool(true) => self.yes.into(),
            Value::Bool(false) => self.no.into(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => quoted(text),
            Value::Array(list) => {
                let items = list.iter().map(|one| self.nested(one, depth + 1));
                format!("[{}]", items.collect::<Result<Vec<_>, _>>()?.join(", "))
            }
            Value::Object(fields) => {
                let pair = |(key, one): (&String, &Value)| {
                    Ok(format!("{}: {}", (self.key)(key), self.nested(one, depth + 1)?))
                };
                let items = fields.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
                let [open, close] = self.braces;
                format!("{open}{}{close}", items.join(", "))
            }
        })
    }
}

/// A string literal. The escapes of JSON are valid in every language of the table.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
