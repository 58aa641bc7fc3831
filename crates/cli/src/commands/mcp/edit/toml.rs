//! TOML.

use super::{Edited, EntryKey, odd};
use serde_json::Value;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table};

pub fn read(text: &str) -> Result<Value, String> {
    ::toml::from_str(text).map_err(|error| error.message().to_owned())
}

fn open(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())
}

pub fn put(text: &str, at: EntryKey, entry: &Value) -> Edited {
    let mut document = open(text)?;
    if read(text)?.get(at.section).and_then(|section| section.get(at.name)) == Some(entry) {
        return Ok(text.to_owned());
    }
    let section = document.entry(at.section).or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let inline = section.is_inline_table();
    let section = section.as_table_like_mut().ok_or_else(|| odd(at))?;
    section.insert(at.name, if inline { Item::Value(value(entry)?) } else { table(entry)? });
    Ok(document.to_string())
}

pub fn take(text: &str, at: EntryKey) -> Edited {
    let mut document = open(text)?;
    if let Some(section) = document.get_mut(at.section).and_then(Item::as_table_like_mut) {
        section.remove(at.name);
    }
    Ok(document.to_string())
}

fn table(entry: &Value) -> Result<Item, String> {
    let mut table = Table::new();
    for (key, one) in entry.as_object().into_iter().flatten() {
        table.insert(key, Item::Value(value(one)?));
    }
    Ok(Item::Table(table))
}

fn value(of: &Value) -> Result<toml_edit::Value, String> {
    Ok(match of {
        Value::Bool(value) => (*value).into(),
        Value::Number(value) => value.as_i64().ok_or("a number that TOML cannot write")?.into(),
        Value::String(value) => value.as_str().into(),
        Value::Array(all) => {
            let all: Result<Array, String> = all.iter().map(value).collect();
            toml_edit::Value::Array(all?)
        }
        Value::Object(all) => {
            let all: Result<Vec<_>, String> =
                all.iter().map(|(key, one)| Ok((key.as_str(), value(one)?))).collect();
            toml_edit::Value::InlineTable(InlineTable::from_iter(all?))
        }
        Value::Null => return Err("nothing, which TOML cannot write".into()),
    })
}
