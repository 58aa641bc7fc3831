//! mcp-v8's flags, environment variables and configuration file. A table has the meaning of each
//! here.
//!
//!   command line > environment (`MCP_V8_<FLAG>`) > configuration file > default
//!
//! A flag or key unknown to mcp-v8 is refused. A flag of mcp-v8 that would enable a missing
//! protection or feature is refused too, never ignored.

use crate::failure::{CliFailure, Result};
use serde_json::Value;
use stasis_mcpv8::V8Mode;
use std::collections::BTreeMap;
use std::path::Path;

/// The effect of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagEffect {
    /// The same as in mcp-v8.
    Works,
    /// Ignored; this applies instead.
    Instead(&'static str),
    /// Refused: this is missing.
    Missing(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
}

pub struct Flag {
    pub name: &'static str,
    takes: Takes,
    pub effect: FlagEffect,
}

const fn value(name: &'static str, effect: FlagEffect) -> Flag {
    Flag { name, takes: Takes::Value, effect }
}

const fn switch(name: &'static str, effect: FlagEffect) -> Flag {
    Flag { name, takes: Takes::Nothing, effect }
}

use FlagEffect::{Instead, Missing, Works};

const STORE: FlagEffect =
    Instead("everything is kept in Stasis's data directory (STASIS_DATA_DIR)");
const CLUSTER: FlagEffect = Instead("there is no cluster: one service owns the data directory");
const SANDBOX: FlagEffect =
    Instead("every machine runs in namespaces, a seccomp filter and cgroups of its own");
const PASSTHROUGH: FlagEffect = Missing("files of the host: machines see only their own");

/// Every flag of section 3.1 of the specification, removed ones that its documents still mention,
/// and those of later versions.
pub const FLAGS: [Flag; 60] = [
    value("config", Works),
    switch("print-openapi", Works),
    value("jwks-url", Works),
    value("session-id", Works),
    value("session-fork-from", Works),
    value("http-port", Works),
    value("sse-port", Works),
    value("bind-host", Works),
    value("allowed-hosts", Works),
    value("allowed-origins", Works),
    value("heap-memory-max", Works),
    value("execution-timeout", Works),
    value("max-concurrent-executions", Works),
    value("session-db-path", STORE),
    value("heap-store", Works),
    value("heap-dir", STORE),
    value("fs-store", Works),
    value("fs-dir", STORE),
    value("fs-labels-db", STORE),
    switch("fs-passthrough", PASSTHROUGH),
    value("s3-bucket", STORE),
    value("cache-dir", STORE),
    switch("harden-freeze-ops", SANDBOX),
    switch("harden-neutralize-proxy-details", SANDBOX),
    switch("harden-neutralize-introspection", SANDBOX),
    switch("harden-remove-bootstrap", SANDBOX),
    switch("harden-remove-shared-memory", SANDBOX),
    value("sandbox-manifest", SANDBOX),
    value("instructions", Works),
    value("run-js-description", Works),
    value("cluster-port", CLUSTER),
    value("node-id", CLUSTER),
    value("peers", CLUSTER),
    value("join", CLUSTER),
    switch("join-as-learner", CLUSTER),
    value("advertise-addr", CLUSTER),
    value("heartbeat-interval", CLUSTER),
    value("election-timeout-min", CLUSTER),
    value("election-timeout-max", CLUSTER),
    switch("metadata-only", CLUSTER),
    value("wasm-module", Works),
    value("wasm-config", Works),
    value("wasm-default-max-memory", Works),
    value("wasm-stubs", Works),
    value("wasm-stub-prefix", Works),
    value("wasm-stub-description", Works),
    value("fetch-header", Works),
    value("fetch-header-config", Works),
    switch(
        "allow-external-modules",
        Instead("the setting `imports` (STASIS_IMPORTS) allows npm:, jsr: and https: imports"),
    ),
    switch("allow-run-js-file", Works),
    value("policies-json", Works),
    value("mcp-server", Works),
    value("mcp-config", Works),
    value("mcp-stubs", Works),
    value("mcp-stub-prefix", Works),
    value("skills-dir", Works),
    switch("stateless", Works),
    value("directory-path", Works),
    switch("enable-fs-snapshots", Works),
    value("fs-store-dir", STORE),
];

/// Repeatable flags, on the command line only.
const REPEATABLE: [&str; 4] =
    ["wasm-module", "wasm-stub-description", "mcp-server", "fetch-header"];
/// Keys that a file cannot have, and sections that correspond to a flag.
const NOT_IN_FILE: [&str; 6] = [
    "config",
    "print-openapi",
    "wasm-module",
    "wasm-stub-description",
    "mcp-server",
    "fetch-header",
];
const SECTIONS: [(&str, &str); 5] = [
    ("wasm", "wasm-config"),
    ("mcp-servers", "mcp-config"),
    ("fetch-headers", "fetch-header-config"),
    ("policies", "policies-json"),
    ("sandbox", "sandbox-manifest"),
];

/// Given values, by flag.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct GivenFlags(BTreeMap<&'static str, String>);

fn known(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

impl GivenFlags {
    pub fn read(
        arguments: &[String],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<GivenFlags> {
        let mut given = GivenFlags::on_line(arguments)?;
        given.add(GivenFlags::in_environment(&environment));
        if let Some(path) = given.text("config") {
            let path = Path::new(path).to_owned();
            given.add(GivenFlags::in_file(&path)?);
        }
        given.check()?;
        Ok(given)
    }

    /// Adds values without replacing given ones.
    fn add(&mut self, other: GivenFlags) {
        for (name, value) in other.0 {
            self.0.entry(name).or_insert(value);
        }
    }

    fn on_line(arguments: &[String]) -> Result<GivenFlags> {
        let mut given = GivenFlags::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let own = word.strip_prefix("--").map(|own| own.split_once('=').unwrap_or((own, "")));
            let flag = own.and_then(|(name, _)| known(name)).ok_or_else(|| {
                CliFailure::usage(format!("mcp-v8 has no flag {word:?}"))
                    .hint("docs/guides/mcp-v8.md lists its flags")
            })?;
            let attached = word.split_once('=').map(|(_, value)| value.to_owned());
            let value = match (flag.takes, attached) {
                (_, Some(value)) => value,
                (Takes::Nothing, None) => "true".to_owned(),
                (Takes::Value, None) => words
                    .next()
                    .cloned()
                    .ok_or_else(|| CliFailure::usage(format!("--{} needs a value", flag.name)))?,
            };
            match given.0.get_mut(flag.name).filter(|_| REPEATABLE.contains(&flag.name)) {
                Some(before) => *before = format!("{before}\n{value}"),
                None => drop(given.0.insert(flag.name, value)),
            }
        }
        Ok(given)
    }

    fn in_environment(variable: impl Fn(&str) -> Option<String>) -> GivenFlags {
        let one = |flag: &Flag| {
            let name = format!("MCP_V8_{}", flag.name.replace('-', "_").to_uppercase());
            let name = if flag.name == "jwks-url" { "JWKS_URL".to_owned() } else { name };
            let port = || (flag.name == "http-port").then(|| variable("PORT")).flatten();
            Some((flag.name, variable(&name).or_else(port)?))
        };
        let free = |flag: &&Flag| flag.name != "print-openapi" && !REPEATABLE.contains(&flag.name);
        GivenFlags(
            FLAGS.iter().filter(free).filter_map(one).filter(|(_, v)| !v.is_empty()).collect(),
        )
    }

    fn in_file(path: &Path) -> Result<GivenFlags> {
        let wrong = |what: String| CliFailure::usage(format!("{}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let parsed: Value = match path.extension().is_some_and(|end| end == "json") {
            true => serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?,
            false => toml::from_str(&text).map_err(|error| wrong(error.to_string()))?,
        };
        let Value::Object(keys) = parsed else { return Err(wrong("it is no table".into())) };
        let mut given = GivenFlags::default();
        for (key, value) in keys {
            let key = key.replace('_', "-");
            let section = SECTIONS.iter().find(|(name, _)| *name == key).map(|(_, flag)| *flag);
            let flag = known(section.unwrap_or(&key));
            let flag = flag.filter(|flag| !NOT_IN_FILE.contains(&flag.name));
            let flag = flag.ok_or_else(|| wrong(format!("there is no key `{key}`")))?;
            let text = match value {
                Value::String(text) => text,
                Value::Array(all) if all.iter().all(Value::is_string) => {
                    let all: Vec<_> = all.iter().filter_map(Value::as_str).collect();
                    all.join(",")
                }
                other => other.to_string(),
            };
            given.0.insert(flag.name, text);
        }
        Ok(given)
    }

    fn check(&self) -> Result<()> {
        for flag in self.flags().filter(|flag| self.is_set(flag.name)) {
            if let Missing(what) = flag.effect {
                let said = format!("--{} cannot be used: this build lacks {what}", flag.name);
                return Err(CliFailure::usage(said).hint("leave it out to start without"));
            }
        }
        if self.is_set("http-port") && self.is_set("sse-port") {
            return Err(CliFailure::usage("--http-port and --sse-port exclude each other"));
        }
        if self.is_set("session-fork-from") && !self.is_set("session-id") {
            return Err(CliFailure::usage("--session-fork-from needs --session-id"));
        }
        for flag in ["wasm-stubs", "mcp-stubs"] {
            if self.is_set(flag) && self.text(flag) != Some("true") {
                return Err(CliFailure::usage(format!("--{flag} is true or false")));
            }
        }
        for flag in ["heap-store", "fs-store"] {
            match self.text(flag) {
                None | Some("none" | "dir" | "s3") => {}
                Some(other) => {
                    let said = format!("--{flag} is none, dir or s3, not {other:?}");
                    return Err(CliFailure::usage(said));
                }
            }
        }
        Ok(())
    }

    fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        FLAGS.iter().filter(|flag| self.0.contains_key(flag.name))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The values of a repeatable flag.
    pub fn each(&self, name: &str) -> impl Iterator<Item = &str> {
        self.text(name).into_iter().flat_map(str::lines)
    }

    /// Whether it was given, and not as `false`.
    pub fn is_set(&self, name: &str) -> bool {
        self.text(name).is_some_and(|value| value != "false")
    }

    /// A number within bounds.
    pub fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        let said = || format!("--{name} is a number from {least} to {most}, not {text:?}");
        number.map(Some).ok_or_else(|| CliFailure::usage(said()))
    }

    /// The parts of a list; none, if it is blank.
    pub fn list(&self, name: &str) -> Vec<String> {
        let parts = self.text(name).unwrap_or_default().split(',').map(str::trim);
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    /// The state kept between runs.
    pub fn mode(&self) -> V8Mode {
        let stored = |flag: &str| self.text(flag).is_some_and(|store| store != "none");
        let heap = stored("heap-store") || self.is_set("directory-path");
        let files = stored("fs-store") || self.is_set("enable-fs-snapshots");
        match self.is_set("stateless") {
            true => V8Mode::Stateless,
            false => V8Mode::of(heap, files),
        }
    }

    /// A line for each flag with another meaning here.
    pub fn notes(&self) -> Vec<String> {
        let note = |flag: &Flag| match flag.effect {
            Instead(what) => Some(format!("--{}: {what}", flag.name)),
            _ if flag.name == "directory-path" => match STORE {
                Instead(what) => Some(format!("--directory-path: {what}")),
                _ => None,
            },
            _ => None,
        };
        self.flags().filter(|flag| self.is_set(flag.name)).filter_map(note).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<GivenFlags> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        GivenFlags::read(&words, |_| None)
    }

    #[test]
    fn the_line_wins_over_the_environment_and_that_over_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("c.toml");
        let text = "http_port = 1\nexecution-timeout = 2\nheap_memory_max = 3\n";
        std::fs::write(&file, text).expect("written");
        let words = ["--config".to_owned(), file.display().to_string(), "--http-port=9".to_owned()];
        let environment = |name: &str| match name {
            "MCP_V8_HTTP_PORT" | "MCP_V8_EXECUTION_TIMEOUT" => Some("5".to_owned()),
            "PORT" => Some("6".to_owned()),
            _ => None,
        };
        let given = GivenFlags::read(&words, environment).expect("flags");
        let text = |name: &str| given.text(name).map(str::to_owned);
        assert_eq!(text("http-port").as_deref(), Some("9"));
        assert_eq!(text("execution-timeout").as_deref(), Some("5"));
        assert_eq!(text("heap-memory-max").as_deref(), Some("3"));
    }

    #[test]
    fn every_flag_works_or_says_what_applies_or_is_refused() {
        for flag in &FLAGS {
            let word = match flag.takes {
                Takes::Nothing => format!("--{}", flag.name),
                Takes::Value => format!("--{}=1", flag.name),
            };
            match flag.effect {
                Works => {}
                Instead(_) => assert_eq!(read(&[&word]).expect(&word).notes().len(), 1, "{word}"),
                Missing(_) => assert!(read(&[&word]).is_err(), "{word}"),
            }
        }
        let mut names: Vec<_> = FLAGS.iter().map(|flag| flag.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FLAGS.len(), "each once");
    }

    /// Only the flag of files of the host is refused.
    #[test]
    fn only_these_are_missing() {
        let missing = FLAGS.iter().filter(|flag| matches!(flag.effect, Missing(_)));
        let names: Vec<_> = missing.map(|flag| flag.name).collect();
        assert_eq!(names, ["fs-passthrough"]);
    }

    #[test]
    fn modes_and_mistakes() {
        for (words, mode) in [
            (&[][..], V8Mode::Stateless),
            (&["--heap-store", "dir"], V8Mode::Heap),
            (&["--heap-store=none"], V8Mode::Stateless),
            (&["--directory-path", "/x"], V8Mode::Heap),
            (&["--fs-store", "dir"], V8Mode::Files),
            (&["--enable-fs-snapshots"], V8Mode::Files),
            (&["--fs-store=s3", "--heap-store=s3"], V8Mode::HeapAndFiles),
            (&["--fs-store=dir", "--stateless"], V8Mode::Stateless),
        ] {
            assert_eq!(read(words).expect("flags").mode(), mode, "{words:?}");
        }
        for odd in [
            &["--nothing"][..],
            &["x"],
            &["--http-port"],
            &["--http-port=1", "--sse-port=2"],
            &["--session-fork-from=a"],
            &["--fs-store=x"],
            &["--heap-store=x"],
            &["--fs-passthrough"],
            &["--wasm-stubs=maybe"],
        ] {
            assert!(read(odd).is_err(), "{odd:?}");
        }
        let twice = read(&["--wasm-module", "a=b", "--wasm-module=c=d:1m"]).expect("flags");
        assert_eq!(twice.each("wasm-module").collect::<Vec<_>>(), ["a=b", "c=d:1m"]);
        assert!(
            read(&["--http-port=70000"]).expect("flags").number("http-port", 1, 65535).is_err()
        );
    }

    #[test]
    fn unknown_keys_of_a_file_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in [
            ("a.json", r#"{"http-port": 3, "other": 1}"#),
            ("b.toml", "config = 'x'"),
            ("d.toml", "="),
        ] {
            let file = dir.path().join(name);
            std::fs::write(&file, text).expect("written");
            assert!(read(&["--config", &file.display().to_string()]).is_err(), "{name}");
        }
    }
}
