//! `--fetch-header` and `--fetch-header-config`: headers that the service adds to requests.
//!
//!   flags ─► rules, checked here ─► the setup ─► the daemon, which keeps them sealed

use super::equipment::read as read_file;
use super::flags::GivenFlags;
use crate::failure::{CliFailure, Result};
use stasis_machine::HeaderRule;
use std::path::Path;

const FLAG: &str = "fetch-header";
const CONFIG: &str = "fetch-header-config";
const LARGEST: u64 = 256 << 10;

/// The rules of the file first, then those of the line, which win.
pub fn read(given: &GivenFlags) -> Result<Vec<HeaderRule>> {
    let mut rules = configured(given)?;
    for word in given.each(FLAG) {
        rules.push(HeaderRule::short(word).map_err(|error| wrong(FLAG, &error))?);
    }
    for rule in &rules {
        rule.scope().map_err(|error| wrong(FLAG, &error))?;
    }
    if !rules.is_empty() && !given.is_set("policies-json") {
        let said = "--fetch-header needs --policies-json: no request leaves a machine without a \
                    policy for it";
        return Err(CliFailure::usage(said)
            .hint("configure the category fetch, websocket or http2, or leave the headers out"));
    }
    Ok(rules)
}

fn wrong(flag: &str, error: &dyn std::fmt::Display) -> CliFailure {
    CliFailure::usage(format!("--{flag}: {error}"))
        .hint("docs/guides/mcp-v8-policies.md#headers has the form")
}

/// `--fetch-header-config`: JSON on the line, or a file with it.
fn configured(given: &GivenFlags) -> Result<Vec<HeaderRule>> {
    let Some(value) = given.text(CONFIG) else { return Ok(Vec::new()) };
    let text = match value.trim_start().starts_with(['[', '{']) {
        true => value.as_bytes().to_vec(),
        false => read_file(Path::new(value), LARGEST, CONFIG)?,
    };
    // an error of the parser may quote a value
    serde_json::from_slice(&text).map_err(|error: serde_json::Error| {
        let (line, column) = (error.line(), error.column());
        wrong(CONFIG, &format!("it is no list of rules (line {line}, column {column})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: &str = r#"--policies-json={"fetch": {"policies": []}}"#;

    fn rules(words: &[&str]) -> Result<Vec<HeaderRule>> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        read(&GivenFlags::read(&words, |_| None)?)
    }

    #[test]
    fn flags_files_and_sections() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("headers.json");
        let text = r#"[{"host": "a.example", "headers": {"X-Key": "s3cret"}}]"#;
        std::fs::write(&file, text).expect("written");
        let named = format!("--fetch-header-config={}", file.display());
        let line = "--fetch-header=host=b.example,header=X,value=y";
        let all = rules(&[POLICIES, line, &named, "--fetch-header", &line[15..]]).expect("rules");
        let hosts: Vec<_> = all.iter().map(|rule| rule.host.as_str()).collect();
        assert_eq!(hosts, ["a.example", "b.example", "b.example"]);
        let inline = format!("--fetch-header-config={text}");
        assert_eq!(rules(&[POLICIES, &inline]).expect("rules").len(), 1);
        let toml = dir.path().join("c.toml");
        let text = "[[fetch_headers]]\nhost = 'd.example'\n[fetch_headers.headers]\nX = 'y'\n";
        std::fs::write(&toml, text).expect("written");
        let config = format!("--config={}", toml.display());
        assert_eq!(rules(&[POLICIES, &config]).expect("rules")[0].host, "d.example");
        assert!(rules(&[]).expect("none").is_empty());
    }

    #[test]
    fn mistakes_stop_the_program_and_show_no_value() {
        for odd in [
            "--fetch-header=host=a.example",
            "--fetch-header=host=*,header=X,value=s3cret",
            "--fetch-header=host=a.example,header=Host,value=s3cret",
            "--fetch-header-config={",
            r#"--fetch-header-config=[{"host": "a.example", "headers": {"X": "s3\ncret"}}]"#,
            r#"--fetch-header-config=[{"host": "a.example", "s3cret": 1}]"#,
            "--fetch-header-config=/no/such/file",
        ] {
            let said = rules(&[POLICIES, odd]).expect_err(odd).to_string();
            assert!(!said.contains("s3"), "{said}");
        }
        let alone = rules(&["--fetch-header=host=a.example,header=X,value=s3cret"]);
        assert!(alone.expect_err("no policies").to_string().contains("--policies-json"));
    }
}
