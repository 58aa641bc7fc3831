//! Which interpreter the host has: asked of the interpreter itself, since the name on the path may
//! be a shim that picks another one.

use crate::error::{Error, Result};
use serde::Deserialize;
use stasis_agent::environment::Environment;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone, Deserialize)]
pub struct HostInterpreter {
    pub executable: PathBuf,
    pub prefix: PathBuf,
    pub stdlib: PathBuf,
    pub platstdlib: PathBuf,
    pub include: PathBuf,
    pub library: Option<PathBuf>,
    pub version: String,
    pub build: String,
    numbers: (u32, u32),
}

pub fn probe(about: &Environment, wanted: Option<&str>) -> Result<HostInterpreter> {
    let found = ask(about, &about.program(wanted));
    match wanted {
        Some(_) => found,
        None => found.or_else(|error| ask(about, about.elsewhere).map_err(|_| error)),
    }
}

fn ask(about: &Environment, name: &str) -> Result<HostInterpreter> {
    let wrong = |what: String| Error::Base { base: "host", what, hint: about.host_hint };
    let output = Command::new(name)
        .args(about.locate)
        .output()
        .map_err(|error| wrong(format!("{name}: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(wrong(format!("{name}: {}", said.lines().last().unwrap_or("failed"))));
    }
    let found: HostInterpreter = serde_json::from_slice(&output.stdout)
        .map_err(|error| wrong(format!("{name}: its answer: {error}")))?;
    if found.numbers < about.oldest {
        let what = format!("{name} is {} {}, which is too old", about.title, found.version);
        return Err(wrong(what));
    }
    Ok(found)
}

impl HostInterpreter {
    /// Names this very build: its version and the bytes of what runs.
    pub fn identity(&self) -> std::io::Result<String> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.build.as_bytes());
        hasher.update(self.prefix.as_os_str().as_encoded_bytes());
        for file in std::iter::once(&self.executable).chain(&self.library) {
            hasher.update(&std::fs::read(file)?);
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Where a path of the interpreter's goes. Its own prefix, which may be in a home
    /// directory, becomes /usr/local: the interpreter finds its library relative to its program.
    pub fn map(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.prefix) {
            Ok(rest) if self.prefix != Path::new("/usr") => Path::new("/usr/local").join(rest),
            _ => super::merged(path),
        }
    }
}
