//! JSON, with the comments and trailing commas that some clients allow.

use super::{Edited, EntryKey, odd};
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde_json::Value;

pub fn read(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    parse_to_serde_value::<Value>(text, &ParseOptions::default()).map_err(|error| error.to_string())
}

fn open(text: &str) -> Result<(CstRootNode, CstObject), String> {
    let text = if text.trim().is_empty() { "{\n}\n" } else { text };
    let root = CstRootNode::parse(text, &ParseOptions::default());
    let root = root.map_err(|error| error.to_string())?;
    let object = root.object_value().ok_or("it is not a table of settings")?;
    Ok((root, object))
}

pub fn put(text: &str, at: EntryKey, entry: &Value) -> Edited {
    let (root, settings) = open(text)?;
    let section = settings.object_value_or_create(at.section).ok_or_else(|| odd(at))?;
    match section.get(at.name) {
        // repeating it changes nothing, not even the formatting
        Some(own)
            if own.value().and_then(|value| value.to_serde_value()).as_ref() == Some(entry) => {}
        Some(own) => own.set_value(input(entry)),
        None => drop(section.append(at.name, input(entry))),
    }
    Ok(root.to_string())
}

pub fn take(text: &str, at: EntryKey) -> Edited {
    let (root, settings) = open(text)?;
    if let Some(own) = settings.object_value(at.section).and_then(|section| section.get(at.name)) {
        own.remove();
    }
    Ok(root.to_string())
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(all) => CstInputValue::Array(all.iter().map(input).collect()),
        Value::Object(all) => {
            CstInputValue::Object(all.iter().map(|(key, one)| (key.clone(), input(one))).collect())
        }
    }
}
