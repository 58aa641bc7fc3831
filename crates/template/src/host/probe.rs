//! Which Python the host has: asked of the interpreter itself, since the name on the path may be a
//! shim that picks another one.

use crate::error::{Error, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

const OLDEST: (u32, u32) = (3, 9);
const HINT: &str = "install Python 3.9 or later, or name one: python = \"/path/to/python3\"";
const QUESTION: &str = r#"
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
library = sysconfig.get_config_var("INSTSONAME") or ""
places = [sysconfig.get_config_var("LIBDIR") or "", os.path.join(sys.base_prefix, "lib")]
multiarch = sysconfig.get_config_var("MULTIARCH")
places += [os.path.join(place, multiarch) for place in list(places) if multiarch]
found = [os.path.join(place, library) for place in places if ".so" in library]
found = [path for path in found if os.path.exists(path)]
print(json.dumps({
    "executable": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "prefix": os.path.realpath(sys.base_prefix),
    "stdlib": os.path.realpath(paths["stdlib"]),
    "platstdlib": os.path.realpath(paths["platstdlib"]),
    "include": os.path.realpath(sysconfig.get_config_var("INCLUDEPY") or paths["include"]),
    "library": os.path.realpath(found[0]) if found else None,
    "version": sys.version.split()[0],
    "build": sys.version,
    "numbers": list(sys.version_info[:2]),
}))
"#;

#[derive(Debug, Clone, Deserialize)]
pub struct PythonInstall {
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

/// The program names to try for what a recipe says.
fn candidates(wanted: Option<&str>) -> Vec<String> {
    match wanted {
        Some(version) if version.starts_with(|c: char| c.is_ascii_digit()) => {
            vec![format!("python{version}")]
        }
        Some(other) => vec![other.to_owned()],
        None => vec!["python3".to_owned(), "/usr/bin/python3".to_owned()],
    }
}

pub fn probe(wanted: Option<&str>) -> Result<PythonInstall> {
    let names = candidates(wanted);
    let mut answers = names.iter().map(|name| ask(name));
    let first = answers.next().expect("there is always one candidate");
    first.or_else(|error| answers.find_map(Result::ok).ok_or(error))
}

fn ask(name: &str) -> Result<PythonInstall> {
    let wrong = |what: String| Error::Base { base: "host", what, hint: HINT };
    let output = Command::new(name)
        .args(["-I", "-c", QUESTION])
        .output()
        .map_err(|error| wrong(format!("{name}: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(wrong(format!("{name}: {}", said.lines().last().unwrap_or("failed"))));
    }
    let python: PythonInstall = serde_json::from_slice(&output.stdout)
        .map_err(|error| wrong(format!("{name}: its answer: {error}")))?;
    if python.numbers < OLDEST {
        return Err(wrong(format!("{name} is Python {}, which is too old", python.version)));
    }
    Ok(python)
}

impl PythonInstall {
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

    /// Where a path of the interpreter's goes. A prefix of its own, which may be in the home of
    /// somebody, becomes /usr/local: Python finds its library from where its program is.
    pub fn map(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.prefix) {
            Ok(rest) if self.prefix != Path::new("/usr") => Path::new("/usr/local").join(rest),
            _ => super::merged(path),
        }
    }
}
