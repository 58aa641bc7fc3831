//! Resources: machines, their instructions, and full results.
//!
//!   stasis://machine/{name}                      its description
//!   stasis://machine/{name}/transcript           everything that was run, with output
//!   stasis://machine/{name}/instruction/{seq}    one instruction, with nothing cut
//!   stasis://machine/{name}/file/{path}          a file, as it is now
//!   stasis://machine/{name}/artifact/{id}        what was too large for a result

use crate::call::CallContext;
use crate::error::{Error, Result};
use crate::files;
use crate::text::cut;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::percent_decode_str;
use rmcp::model::{ListResourcesResult, Resource, ResourceContents, ResourceTemplate};
use stasis_api::{Instruction, Stream};
use stasis_machine::Machine;
use std::borrow::Cow;
use std::fmt::Write;
use std::fs::File;
use std::sync::Arc;

/// Maximum machines on one page of the list.
const PAGE: usize = 100;
/// Maximum instructions in a transcript, and characters of it.
const MAX_INSTRUCTIONS: u64 = 1000;
const MAX_TRANSCRIPT: usize = 2_000_000;

#[derive(Debug, PartialEq)]
enum Part {
    Description,
    Transcript,
    Instruction(u64),
    File(String),
    Artifact(String),
}

pub fn templates() -> Vec<ResourceTemplate> {
    let one = |uri: &str, name: &str, about: &str, kind: &str| {
        ResourceTemplate::new(uri, name).with_description(about).with_mime_type(kind)
    };
    vec![
        one("stasis://machine/{name}", "machine", "A machine's description.", "application/json"),
        one(
            "stasis://machine/{name}/transcript",
            "transcript",
            "The instructions of a machine, with output.",
            "text/markdown",
        ),
        one(
            "stasis://machine/{name}/instruction/{seq}",
            "instruction",
            "One instruction with its whole output and result.",
            "application/json",
        ),
        one(
            "stasis://machine/{name}/file/{+path}",
            "file",
            "A file of a machine.",
            "application/octet-stream",
        ),
        one(
            "stasis://machine/{name}/artifact/{id}",
            "artifact",
            "Data too large for a result: a plot, a long value, the full output.",
            "application/octet-stream",
        ),
    ]
}

/// The caller's machines, one page at a time; the cursor is the last name listed.
pub fn list(call: &CallContext, cursor: Option<&str>) -> Result<ListResourcesResult> {
    let names = call.machines().map(|machine| machine.name().to_string());
    let mut names: Vec<_> = names.collect();
    // by name: a list that changes meanwhile still has every other machine once
    names.sort();
    let after = |name: &&String| cursor.is_none_or(|cursor| name.as_str() > cursor);
    let mut page: Vec<_> = names.iter().filter(after).take(PAGE + 1).collect();
    let more = page.len() > PAGE;
    page.truncate(PAGE);
    let mut result =
        ListResourcesResult::with_all_items(page.iter().flat_map(|name| resources(name)).collect());
    result.next_cursor = page.last().filter(|_| more).map(ToString::to_string);
    Ok(result)
}

fn resources(name: &str) -> [Resource; 2] {
    let uri = format!("stasis://machine/{name}");
    let transcript = format!("{uri}/transcript");
    [
        Resource::new(uri, name)
            .with_description("The machine's description.")
            .with_mime_type("application/json"),
        Resource::new(transcript, format!("{name} transcript"))
            .with_description("Its instructions, with output.")
            .with_mime_type("text/markdown"),
    ]
}

/// The machine of a resource.
pub fn machine_of(uri: &str) -> Option<&str> {
    parse(uri).map(|(name, _)| name)
}

pub fn read(call: &CallContext, uri: &str) -> Result<ResourceContents> {
    let missing = || Error::Invalid(format!("unknown resource `{}`", cut(uri, 200, "it")));
    let (name, part) = parse(uri).ok_or_else(missing)?;
    let machine = call.machine(name)?;
    let (text, kind) = match part {
        Part::File(path) => return file(&machine, &path, uri),
        Part::Artifact(id) => return artifact(&machine, &id, uri),
        Part::Description => (json(&machine.describe()), "application/json"),
        Part::Transcript => (transcript(&machine)?, "text/markdown"),
        Part::Instruction(seq) => (whole(&machine, seq)?, "application/json"),
    };
    Ok(ResourceContents::text(text, uri).with_mime_type(kind))
}

fn parse(uri: &str) -> Option<(&str, Part)> {
    let path = uri.strip_prefix("stasis://machine/")?;
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    let part = match rest.split_once('/') {
        None if rest.is_empty() && !path.contains('/') => Part::Description,
        None if rest == "transcript" => Part::Transcript,
        Some(("instruction", seq)) => Part::Instruction(seq.parse().ok()?),
        Some(("file", path)) => Part::File(format!("/{}", decoded(path)?)),
        Some(("artifact", id)) if !id.contains('/') => Part::Artifact(id.to_owned()),
        _ => return None,
    };
    Some((name, part))
}

/// Decodes a path from an address.
fn decoded(path: &str) -> Option<Cow<'_, str>> {
    let is_escape = |rest: &str| {
        rest.get(..2).is_some_and(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let whole = path.split('%').skip(1).all(is_escape);
    whole.then(|| percent_decode_str(path).decode_utf8().ok()).flatten()
}

fn file(machine: &Arc<Machine>, path: &str, uri: &str) -> Result<ResourceContents> {
    let (info, file) = machine.read_file(path)?;
    let kind = files::picture(&info.path);
    contents(&file, info.size, kind, uri)
}

fn artifact(machine: &Arc<Machine>, id: &str, uri: &str) -> Result<ResourceContents> {
    let (artifact, file) = machine.artifact(id)?;
    contents(&file, artifact.size, Some(&artifact.kind), uri)
}

/// Bytes as text if they are valid, otherwise as base64; refused if too long.
fn contents(file: &File, size: u64, kind: Option<&str>, uri: &str) -> Result<ResourceContents> {
    if size > files::MAX_RESOURCE {
        let words =
            format!("it has {size} bytes; the limit of a resource is {}", files::MAX_RESOURCE);
        return Err(Error::Invalid(format!("{words}: use read_file to read parts")));
    }
    let bytes = files::bytes(file, 0, files::MAX_RESOURCE)?;
    let is_text = kind.is_none_or(|kind| !kind.starts_with("image/"));
    Ok(match String::from_utf8(bytes) {
        Ok(text) if is_text => {
            ResourceContents::text(text, uri).with_mime_type(kind.unwrap_or("text/plain"))
        }
        text => {
            let bytes = text.map_or_else(|error| error.into_bytes(), String::into_bytes);
            let kind = kind.unwrap_or("application/octet-stream");
            ResourceContents::blob(BASE64_STANDARD.encode(bytes), uri).with_mime_type(kind)
        }
    })
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn whole(machine: &Arc<Machine>, seq: u64) -> Result<String> {
    #[derive(serde::Serialize)]
    struct Whole {
        #[serde(flatten)]
        instruction: Instruction,
        output: Vec<stasis_api::Chunk>,
    }
    let instruction = machine.instruction(seq)?;
    Ok(json(&Whole { instruction, output: machine.outputs(seq, 0)? }))
}

/// The last instructions of a machine, oldest first, as readable text.
fn transcript(machine: &Arc<Machine>) -> Result<String> {
    let now = machine.describe();
    let from = now.instructions.saturating_sub(MAX_INSTRUCTIONS);
    let mut text = format!("# {}\n", now.name);
    if from > 0 {
        let _ = write!(text, "\n[{from} earlier instructions are not shown]\n");
    }
    for instruction in machine.instructions(from, MAX_INSTRUCTIONS)? {
        entry(&mut text, machine, &instruction)?;
        if text.len() > MAX_TRANSCRIPT {
            text += "\n[the rest is not shown]\n";
            break;
        }
    }
    Ok(text)
}

fn entry(text: &mut String, machine: &Arc<Machine>, one: &Instruction) -> Result<()> {
    let address = format!("{}@{}", machine.name(), one.seq);
    let undone = if one.rolled_back { ", undone" } else { "" };
    let status = format!("{:?}", one.status).to_lowercase();
    let code = fenced(machine.language().name(), &one.code);
    let _ = write!(text, "\n## {address} ({status}{undone})\n\n{code}");
    let chunks = machine.outputs(one.seq, 0)?;
    for (stream, title) in [(Stream::Stdout, "stdout"), (Stream::Stderr, "stderr")] {
        let output = crate::output::stream(&chunks, stream);
        if !output.is_empty() {
            text.push_str(&fenced(title, &cut(&output, crate::text::MAX_TEXT, &address)));
        }
    }
    let outcome = one.outcome.clone().unwrap_or_default();
    if let Some(value) = outcome.value {
        text.push_str(&fenced("value", &cut(&value, crate::text::MAX_TEXT, &address)));
    }
    if let Some(error) = outcome.error {
        let shown = format!("{}: {}\n{}", error.name, error.message, error.traceback);
        text.push_str(&fenced("error", &cut(shown.trim_end(), crate::text::MAX_TEXT, &address)));
    }
    Ok(())
}

/// A block whose fence its content cannot end.
fn fenced(kind: &str, content: &str) -> String {
    let mut fence = "```".to_owned();
    while content.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}{kind}\n{content}\n{fence}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_resources() {
        assert_eq!(parse("stasis://machine/m"), Some(("m", Part::Description)));
        assert_eq!(parse("stasis://machine/m/transcript"), Some(("m", Part::Transcript)));
        assert_eq!(parse("stasis://machine/m/instruction/7"), Some(("m", Part::Instruction(7))));
        let file = Part::File("/a b/c".into());
        assert_eq!(parse("stasis://machine/m/file/a%20b/c"), Some(("m", file)));
        for uri in [
            "",
            "stasis://machine/m/",
            "stasis://machine/m/x",
            "stasis://machine/m/instruction/-1",
            "stasis://machine/m/file/%zz",
            "stasis://machine/m/artifact/a/b",
            "file:///m",
        ] {
            assert_eq!(parse(uri), None, "{uri}");
        }
    }

    #[test]
    fn a_fence_holds() {
        assert_eq!(fenced("x", "a\n```\nb"), "````x\na\n```\nb\n````\n");
    }
}
