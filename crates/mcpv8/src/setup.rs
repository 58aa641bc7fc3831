//! Setups: the flags of a front process that its clients see beyond the tools. Texts, WebAssembly
//! modules and skills.
//!
//!   front: reads files as its user ─► POST /api/setup/files (bytes) ─► their hash
//!                                  └─► POST /api/setup (the list)   ─► checked here ─► id
//!   every request of its clients has the id in a header (`settings.rs`)
//!
//! The service follows no path of a client: it receives bytes, in bounded requests. Setups belong
//! to an account and are named by their content, so the same flags have the same id and survive a
//! restart. An account has 32 setups and 256 MiB of files; the oldest are removed first.

use crate::V8;
use crate::error::{Error, Result};
use crate::executions::shown;
use crate::skills::{MOST_SKILLS, V8Skill};
use crate::trees::is_id;
use crate::wasm::{MOST_MODULES, WasmModule};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stasis_machine::{HeaderRule, ToolServer};
use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const MOST_SETUPS: usize = 32;
const MOST_BYTES: u64 = 256 << 20;
/// An unreferenced file is kept for this long: its setup may still arrive.
const FRESH: Duration = Duration::from_secs(600);
const LONGEST_TEXT: usize = 64 << 10;
const LONGEST_PREFIX: usize = 32;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct V8Setup {
    /// Replace ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_js_description: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wasm: Vec<WasmModule>,
    /// Prefix of the stubs' names; without it there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stub_prefix: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<V8Skill>,
    /// `--policies-json` with the text of its files in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<serde_json::Value>,
    /// Runs at once of clients that have this setup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<usize>,
    /// `run_js` may have any file that the front can read, whatever a policy answers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_run_js_file: bool,
    /// Upstream MCP servers, as a front sends them. Kept sealed, under the name in `private`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<ToolServer>,
    /// Prefix of the names of their stubs; without it there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_stub_prefix: Option<String>,
    /// Made here: names of the servers, and of the sealed part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<String>,
    /// Headers that are added to requests (`--fetch-header`), as a front sends them. Kept sealed,
    /// under the name in `private_headers`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fetch_headers: Vec<HeaderRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_headers: Option<String>,
}

/// A tool that only explains how to do something with `run_js`.
#[derive(Debug, Clone, PartialEq)]
pub struct V8Stub {
    pub name: String,
    pub about: String,
    pub schema: Map<String, Value>,
    pub answer: String,
}

impl V8Setup {
    pub fn is_empty(&self) -> bool {
        *self == V8Setup::default()
    }

    /// The stubs of WebAssembly modules.
    pub(crate) fn wasm_stubs(&self) -> Vec<V8Stub> {
        let Some(prefix) = &self.stub_prefix else { return Vec::new() };
        let stub = |module: &WasmModule| V8Stub {
            name: format!("{prefix}wasm__{}", module.name),
            about: format!("[Not called itself: use run_js.] {}", module.about()),
            schema: empty(),
            answer: format!(
                "This module is used from code. Call run_js with, for example:\n\n{}\n\n{}",
                module.example(),
                module.about()
            ),
        };
        self.wasm.iter().map(stub).collect()
    }

    /// The hashes of the files it needs.
    fn files(&self) -> impl Iterator<Item = &String> {
        let of_skills = self.skills.iter().flat_map(|skill| &skill.files);
        self.wasm.iter().map(|one| &one.file).chain(of_skills.map(|one| &one.file))
    }

    fn check_sizes(&self) -> Result<()> {
        let texts = [&self.instructions, &self.run_js_description];
        let is_long =
            |text: &&Option<String>| text.as_ref().is_some_and(|text| text.len() > LONGEST_TEXT);
        if texts.iter().any(is_long) {
            return Err(Error::invalid(format!("a text has at most {LONGEST_TEXT} bytes")));
        }
        if self.wasm.len() > MOST_MODULES || self.skills.len() > MOST_SKILLS {
            let most = format!("{MOST_MODULES} WebAssembly modules and {MOST_SKILLS} skills");
            return Err(Error::invalid(format!("there are at most {most}")));
        }
        let names: BTreeSet<&str> = self.wasm.iter().map(|one| &*one.name).collect();
        let paths: BTreeSet<&str> = self.skills.iter().map(|one| &*one.path).collect();
        if names.len() != self.wasm.len() || paths.len() != self.skills.len() {
            return Err(Error::invalid("two WebAssembly modules or skills have the same name"));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let is_odd =
            |prefix: &String| prefix.len() > LONGEST_PREFIX || !prefix.chars().all(is_plain);
        if [&self.stub_prefix, &self.mcp_stub_prefix].into_iter().flatten().any(is_odd) {
            let said = format!("a stub's prefix has up to {LONGEST_PREFIX} letters, digits, _");
            return Err(Error::invalid(said));
        }
        if self.max_concurrent == Some(0) {
            return Err(Error::invalid("at least one run must be possible at once"));
        }
        let made = [&self.private, &self.private_headers].into_iter().any(Option::is_some);
        match made || !self.server_names.is_empty() {
            true => Err(Error::invalid("names of sealed parts and servers are not sent")),
            false => Ok(()),
        }
    }
}

fn empty() -> Map<String, Value> {
    let schema = json!({ "type": "object", "properties": {} });
    schema.as_object().cloned().unwrap_or_default()
}

fn failed(doing: &str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::new(500, format!("cannot {doing} of a setup: {error}"))
}

fn missing(id: &str) -> Error {
    Error::missing(format!(
        "setup '{}' does not exist; restart `stasis mcp-v8`, which sends it",
        shown(id)
    ))
}

impl V8 {
    fn setups_of(&self, account: &str) -> PathBuf {
        let hash = blake3::hash(account.as_bytes()).to_hex();
        self.host.data_dir().join("mcp-v8-setups").join(hash.as_str())
    }

    /// Stores a file for a setup; returns its hash.
    pub fn put_setup_file(&self, account: &str, bytes: &[u8]) -> Result<String> {
        let dir = self.setups_of(account).join("files");
        let id = blake3::hash(bytes).to_hex().to_string();
        let _alone = self.shared.setups.lock();
        self.thin_setups(account, bytes.len() as u64)?;
        write(&dir, &id, bytes)?;
        Ok(id)
    }

    pub fn setup_file(&self, account: &str, id: &str) -> Result<Vec<u8>> {
        let path = is_id(id).then(|| self.setups_of(account).join("files").join(id));
        let bytes = path.and_then(|path| fs::read(path).ok()).ok_or_else(|| {
            Error::missing(format!("file '{}' of a setup is missing; send it first", shown(id)))
        })?;
        match blake3::hash(&bytes).to_hex().as_str() == id {
            true => Ok(bytes),
            false => Err(Error::new(500, format!("file '{id}' of a setup is damaged"))),
        }
    }

    /// Validates and stores a setup; returns its id.
    pub fn put_setup(&self, account: &str, setup: V8Setup) -> Result<(String, V8Setup)> {
        setup.check_sizes()?;
        setup.policies.as_ref().map(|own| self.check_policies(account, own)).transpose()?;
        let private_headers = self.keep_headers(account, &setup)?;
        let read = |id: &str| self.setup_file(account, id);
        let wasm = setup.wasm.into_iter().map(|one| {
            let bytes = read(&one.file)?;
            one.checked(&bytes)
        });
        let wasm = wasm.collect::<Result<_>>()?;
        let skills =
            setup.skills.into_iter().map(|one| one.checked(read)).collect::<Result<_>>()?;
        let private = self.keep_servers(account, &setup.mcp_servers)?;
        let server_names = setup.mcp_servers.iter().map(|one| one.name.clone()).collect();
        let (mcp_servers, fetch_headers) = Default::default();
        let setup = V8Setup {
            wasm,
            skills,
            private,
            private_headers,
            server_names,
            mcp_servers,
            fetch_headers,
            ..setup
        };
        let text = serde_json::to_vec(&setup)
            .map_err(|error| Error::new(500, format!("cannot write a setup: {error}")))?;
        let id = blake3::hash(&text).to_hex().to_string();
        let _alone = self.shared.setups.lock();
        write(&self.setups_of(account).join("lists"), &id, &text)?;
        self.thin_setups(account, 0)?;
        Ok((id, setup))
    }

    /// The file with the sealed part of a setup.
    fn private_path(&self, account: &str, name: &str) -> Option<PathBuf> {
        is_id(name).then(|| self.setups_of(account).join("private").join(name))
    }

    /// Reads a sealed part of a setup, if it is there.
    pub(crate) fn read_private(&self, account: &str, name: &str) -> Option<String> {
        fs::read_to_string(self.private_path(account, name)?).ok()
    }

    /// Stores a sealed part. The newest are kept: a setup has two at most, and is written after
    /// them.
    pub(crate) fn write_private(&self, account: &str, name: &str, sealed: &[u8]) -> Result<()> {
        let dir = self.setups_of(account).join("private");
        let _alone = self.shared.setups.lock();
        write(&dir, name, sealed)?;
        let all = by_age(&dir);
        for (_, oldest) in all.iter().take(all.len().saturating_sub(2 * (MOST_SETUPS + 1))) {
            let _ = fs::remove_file(oldest.path());
        }
        Ok(())
    }

    pub fn setup(&self, account: &str, id: &str) -> Result<V8Setup> {
        let path = is_id(id).then(|| self.setups_of(account).join("lists").join(id));
        let text = path.and_then(|path| fs::read(path).ok()).ok_or_else(|| missing(id))?;
        let whole = blake3::hash(&text).to_hex().as_str() == id;
        let parsed = serde_json::from_slice(&text).ok().filter(|_| whole);
        parsed.ok_or_else(|| Error::new(500, format!("setup '{id}' is damaged")))
    }

    /// Removes setups past the maximum, and frees space for more bytes. The caller holds the lock.
    fn thin_setups(&self, account: &str, more: u64) -> Result<()> {
        let dir = self.setups_of(account);
        let mut lists = by_age(&dir.join("lists"));
        while lists.len() > MOST_SETUPS {
            let (_, oldest) = lists.remove(0);
            let _ = fs::remove_file(oldest.path());
        }
        let size = |entry: &DirEntry| entry.metadata().map_or(0, |about| about.len());
        let files = by_age(&dir.join("files"));
        let mut bytes: u64 = files.iter().map(|(_, entry)| size(entry)).sum();
        if bytes + more <= MOST_BYTES {
            return Ok(());
        }
        let names = lists.iter().map(|(_, entry)| entry.file_name());
        let setups = names.filter_map(|name| self.setup(account, &name.to_string_lossy()).ok());
        let needed: BTreeSet<String> =
            setups.flat_map(|setup| setup.files().cloned().collect::<Vec<_>>()).collect();
        for (age, entry) in files {
            let is_needed = needed.contains(&*entry.file_name().to_string_lossy());
            if !is_needed && age > FRESH {
                bytes -= size(&entry);
                let _ = fs::remove_file(entry.path());
            }
        }
        match bytes + more <= MOST_BYTES {
            true => Ok(()),
            false => Err(Error::new(507, "the account's setups use all of their 256 MiB")),
        }
    }
}

/// Files of a directory with their ages, oldest first.
fn by_age(dir: &Path) -> Vec<(Duration, DirEntry)> {
    let age = |entry: &DirEntry| {
        let changed = entry.metadata().and_then(|about| about.modified()).ok()?;
        SystemTime::now().duration_since(changed).ok()
    };
    let all = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<_> = all.map(|entry| (age(&entry).unwrap_or_default(), entry)).collect();
    all.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
    all
}

/// Writes a file, even if it exists: its age starts anew.
fn write(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(dir).map_err(failed("make the directory"))?;
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed("write a file"))?;
    file.write_all(bytes).map_err(failed("write a file"))?;
    file.as_file().sync_data().map_err(failed("write a file"))?;
    file.persist(dir.join(name)).map_err(|error| failed("name a file")(error.error))?;
    Ok(())
}
