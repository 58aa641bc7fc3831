//! The setup of `stasis mcp-v8`: texts, WebAssembly modules and skills.
//!
//!   flags ─► files read here, as the user ─► bytes to the daemon ─► the id of a setup
//!
//! The daemon never opens these paths: it gets bytes, in requests that both sides bound, and
//! validates them.

use super::flags::GivenFlags;
use super::host_files::HostFiles;
use super::{headers, host_files, policies, servers};
use crate::client::Client;
use crate::failure::{CliFailure, Result};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use stasis_mcpv8::{
    DEFAULT_WASM_MEMORY, MOST_SKILLS, SKILL_BYTES, SKILL_FILES, SkillFile, V8Setup, V8Skill,
    WasmModule,
};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum size of a sent file, and of a text.
const LARGEST: u64 = 16 << 20;
const LONGEST_TEXT: u64 = 64 << 10;
const DEEPEST: usize = 16;
const PREFIX: &str = "runjs__";

/// A module of `--wasm-config`.
#[derive(Deserialize)]
#[serde(untagged)]
enum ConfiguredModule {
    Path(PathBuf),
    Detailed(DetailedModule),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DetailedModule {
    path: PathBuf,
    max_memory_bytes: Option<u64>,
    description: Option<String>,
}

/// Sends the files that flags name; returns the setup's id, if there are any, and the files that
/// clients may run.
pub fn send(given: &GivenFlags, client: &Client) -> Result<(Option<String>, HostFiles)> {
    let texts = V8Setup {
        instructions: text(given, "instructions")?,
        run_js_description: text(given, "run-js-description")?,
        ..V8Setup::default()
    };
    let wasm = modules(given)?.into_iter().map(|(module, bytes)| {
        Ok(WasmModule { file: upload(client, &module.name, bytes)?, ..module })
    });
    let wasm: Vec<WasmModule> = wasm.collect::<Result<_>>()?;
    let stubs = given.text("wasm-stubs").is_none_or(|value| value == "true");
    let prefix = given.text("wasm-stub-prefix").unwrap_or(PREFIX).to_owned();
    let stub_prefix = (stubs && !wasm.is_empty()).then_some(prefix);
    let dir = given.text("skills-dir").map(Path::new);
    let skills = dir.map(|dir| skills(dir, client)).transpose()?.unwrap_or_default();
    let policies = policies::read(given)?;
    let mcp_servers = servers::read(given)?;
    servers::log_in(&mcp_servers, client)?;
    let stubs = given.text("mcp-stubs").is_none_or(|value| value == "true");
    let prefix = given.text("mcp-stub-prefix").unwrap_or(PREFIX).to_owned();
    let mcp_stub_prefix = (stubs && !mcp_servers.is_empty()).then_some(prefix);
    let fetch_headers = headers::read(given)?;
    let allow_run_js_file = given.is_set(host_files::FLAG);
    let max_concurrent = given.number("max-concurrent-executions", 1, 10_000)?;
    let max_concurrent = max_concurrent.map(|most| most as usize);
    let texts = V8Setup { fetch_headers, allow_run_js_file, max_concurrent, ..texts };
    let setup =
        V8Setup { wasm, stub_prefix, skills, policies, mcp_servers, mcp_stub_prefix, ..texts };
    let files = HostFiles::of(&setup);
    if setup.is_empty() {
        return Ok((None, files));
    }
    let body = serde_json::to_vec(&setup).unwrap_or_default();
    let kept = post(client, "/api/setup", "application/json", body)?;
    Ok((kept["setup"].as_str().map(str::to_owned), files))
}

fn post(client: &Client, path: &str, kind: &str, body: Vec<u8>) -> Result<Value> {
    let failed = |what: String| CliFailure::new("mcp_v8.setup", what);
    client.block(async {
        let sent = client.forward(Method::POST, path).header("content-type", kind).body(body);
        let answer = sent.send().await.map_err(|error| failed(error.to_string()))?;
        let is_fine = answer.status().is_success();
        let text = answer.text().await.map_err(|error| failed(error.to_string()))?;
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        match is_fine {
            true => Ok(value),
            false => Err(failed(value["error"].as_str().unwrap_or(&text).to_owned())),
        }
    })
}

/// Stores bytes in the daemon; returns their hash.
fn upload(client: &Client, what: &str, bytes: Vec<u8>) -> Result<String> {
    let kept = post(client, "/api/setup/files", "application/octet-stream", bytes)?;
    let hash = kept["file"].as_str().map(str::to_owned);
    hash.ok_or_else(|| CliFailure::new("mcp_v8.setup", format!("{what} was not kept")))
}

/// A text, the text of a file (`@path`), or one that begins with @ (`@@text`).
fn text(given: &GivenFlags, flag: &str) -> Result<Option<String>> {
    let Some(value) = given.text(flag) else { return Ok(None) };
    let named = value.strip_prefix('@');
    match named.map(|rest| (rest, rest.starts_with('@'))) {
        None => Ok(Some(value.to_owned())),
        Some((rest, true)) => Ok(Some(rest.to_owned())),
        Some((path, false)) => {
            let bytes = read(Path::new(path), LONGEST_TEXT, flag)?;
            let text = String::from_utf8(bytes);
            text.map(Some).map_err(|_| CliFailure::usage(format!("--{flag}: {path} is not UTF-8")))
        }
    }
}

/// A file, if it is not too large.
pub(super) fn read(path: &Path, most: u64, flag: &str) -> Result<Vec<u8>> {
    let wrong = |what: String| CliFailure::usage(format!("--{flag}: {}: {what}", path.display()));
    let is_file = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.is_file();
    if !is_file {
        return Err(wrong("it is no regular file".into()));
    }
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut bytes = Vec::new();
    let got = file.take(most + 1).read_to_end(&mut bytes);
    got.map_err(|error| wrong(error.to_string()))?;
    match bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(wrong(format!("it has more than {most} bytes"))),
    }
}

/// A number of bytes, optionally followed by k, m or g.
fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, unit) = match lower.char_indices().last()? {
        (at, 'k') => (&lower[..at], 10),
        (at, 'm') => (&lower[..at], 20),
        (at, 'g') => (&lower[..at], 30),
        _ => (&*lower, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << unit)
}

/// `NAME=PATH[:LIMIT]`; the part after the last colon is a limit only if it is valid as one.
fn named_module(word: &str) -> Result<(&str, &str, Option<u64>)> {
    let wrong = || {
        let said = format!("--wasm-module is NAME=PATH or NAME=PATH:LIMIT, not {word:?}");
        CliFailure::usage(said).hint("a limit is a number of bytes, or one with k, m or g")
    };
    let (name, rest) = word.split_once('=').ok_or_else(wrong)?;
    let (path, limit) = match rest.rsplit_once(':').map(|(path, limit)| (path, bytes(limit))) {
        Some((path, Some(limit))) => (path, Some(limit)),
        _ => (rest, None),
    };
    match name.is_empty() || path.is_empty() {
        true => Err(wrong()),
        false => Ok((name, path, limit)),
    }
}

/// The modules that flags name, with their bytes.
fn modules(given: &GivenFlags) -> Result<Vec<(WasmModule, Vec<u8>)>> {
    let usual = match given.text("wasm-default-max-memory") {
        None => DEFAULT_WASM_MEMORY,
        Some(text) => bytes(text).ok_or_else(|| {
            CliFailure::usage("--wasm-default-max-memory is a number of bytes, or with k, m or g")
        })?,
    };
    let mut all: BTreeMap<String, (PathBuf, Option<u64>, Option<String>)> = BTreeMap::new();
    for (name, own) in configured(given)? {
        let one = match own {
            ConfiguredModule::Path(path) => (path, None, None),
            ConfiguredModule::Detailed(own) => (own.path, own.max_memory_bytes, own.description),
        };
        all.insert(name, one);
    }
    for word in given.each("wasm-module") {
        let (name, path, limit) = named_module(word)?;
        all.insert(name.to_owned(), (path.into(), limit, None));
    }
    for word in given.each("wasm-stub-description") {
        let found = word.split_once('=').and_then(|(name, text)| Some((all.get_mut(name)?, text)));
        let Some((module, text)) = found else {
            let said = format!("--wasm-stub-description {word:?} names no module that is loaded");
            return Err(CliFailure::usage(said).hint("write it as NAME=TEXT"));
        };
        module.2 = Some(text.to_owned());
    }
    let one = |(name, (path, limit, description)): (String, (PathBuf, _, _))| {
        let bytes = read(&path, LARGEST, "wasm-module")?;
        let max_memory_bytes = Option::<u64>::unwrap_or(limit, usual);
        let (file, size, exports, imports) = Default::default();
        let module =
            WasmModule { name, file, max_memory_bytes, description, size, exports, imports };
        Ok((module, bytes))
    };
    all.into_iter().map(one).collect()
}

/// `--wasm-config`: JSON on the line, or a file with it.
fn configured(given: &GivenFlags) -> Result<BTreeMap<String, ConfiguredModule>> {
    let Some(value) = given.text("wasm-config") else { return Ok(BTreeMap::new()) };
    let text = match value.trim_start().starts_with('{') {
        true => value.as_bytes().to_vec(),
        false => read(Path::new(value), LARGEST, "wasm-config")?,
    };
    serde_json::from_slice(&text).map_err(|error| {
        let said = format!("--wasm-config: {error}");
        CliFailure::usage(said).hint("write {name: path} or {name: {path, max_memory_bytes}}")
    })
}

/// Every directory with a SKILL.md, at any depth.
fn skills(dir: &Path, client: &Client) -> Result<Vec<V8Skill>> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        CliFailure::usage(format!("--skills-dir: {}: {error}", path.display()))
    };
    let top = dir.canonicalize().map_err(|error| failed(dir, &error))?;
    let mut found = Vec::new();
    let mut left = vec![(top.clone(), 0)];
    while let Some((here, depth)) = left.pop() {
        if here.join("SKILL.md").is_file() {
            found.push(here.clone());
        }
        if found.len() > MOST_SKILLS {
            return Err(failed(dir, &format!("there are more than {MOST_SKILLS} skills")));
        }
        let entries = std::fs::read_dir(&here).map_err(|error| failed(&here, &error))?;
        // links to directories could form a cycle
        let dirs = entries.flatten().filter(|own| own.file_type().is_ok_and(|kind| kind.is_dir()));
        left.extend(dirs.filter(|_| depth < DEEPEST).map(|own| (own.path(), depth + 1)));
    }
    found.sort();
    let above = top.parent().unwrap_or(&top);
    let one = |path: PathBuf| {
        let base = if path == top { above } else { &top };
        let name = path.strip_prefix(base).unwrap_or(&path).to_string_lossy().into_owned();
        Ok(V8Skill { path: name, files: files(&path, client)?, frontmatter: Default::default() })
    };
    found.into_iter().map(one).collect()
}

/// The files of a skill, stored in the daemon when this returns.
fn files(skill: &Path, client: &Client) -> Result<Vec<SkillFile>> {
    let wrong = |what: &dyn std::fmt::Display| {
        CliFailure::usage(format!("--skills-dir: {}: {what}", skill.display()))
    };
    let (mut paths, mut left) = (Vec::new(), vec![(skill.to_owned(), 0)]);
    while let Some((here, depth)) = left.pop() {
        for entry in std::fs::read_dir(&here).map_err(|error| wrong(&error))?.flatten() {
            let kind = entry.file_type().map_err(|error| wrong(&error))?;
            match kind.is_dir() {
                true if depth < DEEPEST => left.push((entry.path(), depth + 1)),
                true => return Err(wrong(&"its directories are too deep")),
                false => paths.push(entry.path()),
            }
        }
        if paths.len() > SKILL_FILES {
            return Err(wrong(&format!("it has more than {SKILL_FILES} files")));
        }
    }
    paths.sort();
    let mut room = SKILL_BYTES;
    let one = |path: PathBuf| {
        let bytes = read(&path, room, "skills-dir")?;
        room -= bytes.len() as u64;
        let own = path.strip_prefix(skill).unwrap_or(&path).to_string_lossy().into_owned();
        let file = upload(client, &own, bytes)?;
        Ok(SkillFile { path: own, file, digest: String::new(), size: 0 })
    };
    paths.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_names() {
        for (text, number) in [("7", 7), ("2k", 2048), ("3M", 3 << 20), ("1g", 1 << 30)] {
            assert_eq!(bytes(text), Some(number), "{text}");
        }
        for odd in ["", "m", "1.5m", "-1", "99999999999g", "1t"] {
            assert_eq!(bytes(odd), None, "{odd}");
        }
        assert_eq!(named_module("a=/b.wasm").expect("a module"), ("a", "/b.wasm", None));
        assert_eq!(named_module("a=/b:2k").expect("a module"), ("a", "/b", Some(2048)));
        assert_eq!(named_module("a=c:/b").expect("a module"), ("a", "c:/b", None));
        assert!(named_module("a").is_err() && named_module("=b").is_err());
    }
}
