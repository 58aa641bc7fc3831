//! `--policies-json`: the configuration, with the text of the files that it names.
//!
//!   JSON on the line, or a file with it ─► `file://` entries read here, as the user ─► the setup
//!
//! The daemon opens no path. An entry that it does not know stops the program: a policy that is
//! left out protects nothing.

use super::equipment::read as read_file;
use super::flags::GivenFlags;
use crate::failure::{CliFailure, Result};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const FLAG: &str = "policies-json";
const LARGEST: u64 = 256 << 10;
const MOST_FILES: usize = 64;

pub fn read(given: &GivenFlags) -> Result<Option<Value>> {
    let Some(value) = given.text(FLAG) else { return Ok(None) };
    let text = match value.trim_start().starts_with('{') {
        true => value.as_bytes().to_vec(),
        false => read_file(Path::new(value), LARGEST, FLAG)?,
    };
    let config: Map<String, Value> =
        serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))?;
    let known: Vec<&str> = stasis_policy::v8::categories().collect();
    let mut all = Map::new();
    for (category, chain) in config {
        if !known.contains(&category.as_str()) {
            let said = format!("{category:?} is no category; {} are", known.join(", "));
            return Err(wrong(&said));
        }
        all.insert(category.clone(), with_texts(&category, chain)?);
    }
    Ok(Some(Value::Object(all)))
}

fn wrong(said: &str) -> CliFailure {
    CliFailure::usage(format!("--{FLAG}: {said}"))
        .hint("docs/guides/mcp-v8-policies.md lists what is supported")
}

fn with_texts(category: &str, chain: Value) -> Result<Value> {
    let at = |said: &str| wrong(&format!("{category}: {said}"));
    let Value::Object(mut chain) = chain else { return Err(at("it is no object")) };
    for list in ["policies", "pre", "post", "stack"] {
        let Some(entries) = chain.get_mut(list) else { continue };
        let entries = entries.as_array_mut().ok_or_else(|| at(&format!("`{list}` is a list")))?;
        for entry in entries {
            // a layer of the stack's own, such as @policy
            if entry.is_string() {
                continue;
            }
            *entry = match entry.get("execute") {
                Some(own) => json!({ "execute": source(category, own)? }),
                None => source(category, entry)?,
            };
        }
    }
    Ok(Value::Object(chain))
}

/// A policy or a hook, with the text of its files.
fn source(category: &str, entry: &Value) -> Result<Value> {
    let at = |said: &str| wrong(&format!("{category}: {said}"));
    let mut own = entry.as_object().cloned().ok_or_else(|| at("an entry is an object"))?;
    let url = own.remove("url");
    let url = url.as_ref().and_then(Value::as_str).unwrap_or_default();
    if url.starts_with("http://") || url.starts_with("https://") {
        own.insert("remote".into(), url.into());
        return Ok(Value::Object(own));
    }
    let Some(path) = url.strip_prefix("file://").filter(|path| path.starts_with('/')) else {
        return Err(at("write `url` as file:///path, http:// or https://"));
    };
    let path = Path::new(path);
    if path.extension().is_some_and(|end| end == "js") {
        let text = String::from_utf8(read_file(path, LARGEST, FLAG)?)
            .map_err(|_| wrong(&format!("{}: it is not UTF-8", path.display())))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        own.insert("script".into(), text.into());
        own.insert("name".into(), name.into());
    } else {
        own.insert("modules".into(), Value::Array(modules(path)?));
    }
    Ok(Value::Object(own))
}

/// One file, or those of a directory that end in `.rego`, sorted.
fn modules(path: &Path) -> Result<Vec<Value>> {
    let told = |error: std::io::Error| wrong(&format!("{}: {error}", path.display()));
    let mut files = vec![path.to_path_buf()];
    if std::fs::metadata(path).map_err(told)?.is_dir() {
        let entries = std::fs::read_dir(path).map_err(told)?;
        let is_rego = |path: &PathBuf| path.extension().is_some_and(|end| end == "rego");
        files = entries.flatten().map(|entry| entry.path()).filter(is_rego).collect();
        files.sort();
    }
    if files.is_empty() || files.len() > MOST_FILES {
        let said = format!("{}: a directory has 1 to {MOST_FILES} .rego files", path.display());
        return Err(wrong(&said));
    }
    let module = |file: PathBuf| {
        let text = String::from_utf8(read_file(&file, LARGEST, FLAG)?)
            .map_err(|_| wrong(&format!("{}: it is not UTF-8", file.display())))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(json!({ "name": name, "text": text }))
    };
    files.into_iter().map(module).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(value: &str) -> GivenFlags {
        let words = [format!("--policies-json={value}")];
        GivenFlags::read(&words, |_| None).expect("flags")
    }

    #[test]
    fn files_are_read_and_everything_else_stops_the_program() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = "package mcp.modules\nallow := true";
        for name in ["b.rego", "a.rego", "note.txt"] {
            std::fs::write(dir.path().join(name), text).expect("written");
        }
        let at = dir.path().display();
        let one = format!(r#"{{"modules": {{"policies": [{{"url": "file://{at}/a.rego"}}]}}}}"#);
        let all = format!(r#"{{"modules": {{"policies": [{{"url": "file://{at}"}}]}}}}"#);
        let modules = |config: &str| {
            let read = read(&flags(config)).expect("policies").expect("some");
            let list = read["modules"]["policies"][0]["modules"].as_array().cloned();
            list.unwrap_or_default().iter().map(|one| one["name"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(modules(&one), ["a.rego"]);
        assert_eq!(modules(&all), ["a.rego", "b.rego"]);
        let file = dir.path().join("policies.json");
        std::fs::write(&file, &one).expect("written");
        assert_eq!(modules(&file.display().to_string()), ["a.rego"]);
        std::fs::write(dir.path().join("hook.js"), "function pre() {}").expect("written");
        let hooks = format!(
            r#"{{"fetch": {{"policies": [{{"url": "https://opa.example", "policy_path": "a"}}],
                "stack": [{{"url": "file://{at}/hook.js", "timeout_ms": 9}}, "@execute"]}}}}"#
        );
        let read_hooks = read(&flags(&hooks)).expect("policies").expect("some");
        let fetch = &read_hooks["fetch"];
        let remote = json!({ "remote": "https://opa.example", "policy_path": "a" });
        assert_eq!(fetch["policies"][0], remote);
        let script = json!({ "script": "function pre() {}", "name": "hook.js", "timeout_ms": 9 });
        assert_eq!(fetch["stack"], json!([script, "@execute"]));
        for odd in [
            "{",
            r#"{"shell": {"policies": []}}"#,
            r#"{"fetch": {"policies": [{"url": "ftp://opa.example"}]}}"#,
            r#"{"fetch": {"policies": {}}}"#,
            r#"{"fetch": {"policies": [{"url": "file:///no/such.js"}]}}"#,
            r#"{"fetch": {"policies": [{"url": "file:///no/such.rego"}]}}"#,
            "/no/such/file",
        ] {
            assert!(read(&flags(odd)).is_err(), "{odd}");
        }
    }
}
