//! The description of a finished root file system, beside its directory.
//!
//!   <roots>/<name>/       the directory, never written again
//!   <roots>/<name>.json   this; written last, so that its directory is complete

use crate::error::{Error, ErrorContext, Result};
use crate::recipe::Recipe;
use serde::{Deserialize, Serialize};
use stasis_sys::trees;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The layout of roots and of this description; another one is built anew.
pub const FORMAT: u32 = 1;
const LONGEST: u64 = 16 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Root {
    pub format: u32,
    /// The directory's name, from the root's inputs.
    pub name: String,
    /// The recipe it was first built for.
    pub recipe: Recipe,
    /// The base: the interpreter's version, the suite, the image's digest.
    pub base: String,
    /// The interpreter to start, a path inside.
    #[serde(rename = "python")]
    pub interpreter: PathBuf,
    /// Its version: `3.11.7`.
    #[serde(rename = "python_version")]
    pub version: String,
    /// The directory of packages inside; the user may write there.
    pub site: PathBuf,
    /// The user a machine runs as, and its home.
    pub uid: u32,
    pub home: PathBuf,
    /// The base's variables, then the common ones, then the recipe's.
    pub env: BTreeMap<String, String>,
    /// The user of a container image; machines run as `uid` regardless.
    pub image_user: Option<String>,
    /// Installed packages, as `name==version`.
    pub lock: Vec<String>,
    /// Digest of names, modes, owners and contents of everything below the root.
    pub digest: String,
    pub files: u64,
    pub bytes: u64,
    /// Seconds since 1970.
    pub built_at: u64,
    /// It came with a machine from elsewhere: its files are as described, the rest is hearsay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported: bool,
}

impl Root {
    pub fn path(&self, roots: &Path) -> PathBuf {
        roots.join(&self.name)
    }
}

fn description(roots: &Path, name: &str) -> PathBuf {
    roots.join(format!("{name}.json"))
}

/// Whether `name` can be a root's: nothing else is joined to a path.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.len() <= 100 && name.chars().all(is_plain) && !name.starts_with('-')
}

/// All finished roots, by name. Unfinished and foreign files are skipped.
pub fn list(roots: &Path) -> Result<Vec<Root>> {
    let entries = match fs::read_dir(roots) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).doing(|| format!("{}", roots.display())),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.doing(|| format!("{}", roots.display()))?;
        let file = entry.file_name().to_string_lossy().into_owned();
        if let Some(root) = file.strip_suffix(".json").and_then(|name| inspect(roots, name).ok()) {
            found.push(root);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

pub fn inspect(roots: &Path, name: &str) -> Result<Root> {
    let unknown = || Error::Unknown(name.to_owned());
    let path = description(roots, name);
    let size = fs::metadata(&path).map_err(|_| unknown())?.len();
    if !is_name(name) || size > LONGEST || !roots.join(name).is_dir() {
        return Err(unknown());
    }
    let text = fs::read(&path).doing(|| format!("{}", path.display()))?;
    let root: Root = serde_json::from_slice(&text).map_err(|_| unknown())?;
    if root.format == FORMAT && root.name == name { Ok(root) } else { Err(unknown()) }
}

/// Removes a root. Whether a template or a machine still needs it is for the caller to know.
pub fn remove(roots: &Path, name: &str) -> Result<()> {
    if !is_name(name) {
        return Err(Error::Unknown(name.to_owned()));
    }
    let turn = crate::build_lock::take(roots, &crate::NoProgress)?;
    let (path, gone) = (description(roots, name), roots.join(format!(".gone-{name}")));
    fs::remove_file(&path).map_err(|_| Error::Unknown(name.to_owned()))?;
    let doing = || format!("removing {name}");
    fs::rename(roots.join(name), &gone).doing(doing)?;
    // renamed first, so that it no longer exists for others; deleting its files takes seconds. The
    // next build removes the remains of a process that ends meanwhile.
    std::thread::spawn(move || {
        let _ = trees::remove(&gone);
        drop(turn);
    });
    Ok(())
}

/// Writes the description under its name, atomically.
pub(crate) fn write(roots: &Path, root: &Root) -> Result<()> {
    let path = description(roots, &root.name);
    let temporary = roots.join(format!(".{}.json", root.name));
    let text = serde_json::to_vec_pretty(root).expect("a description has no value JSON lacks");
    let result = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, &path))
        .and_then(|()| fs::File::open(roots)?.sync_all());
    result.doing(|| format!("{}", path.display()))
}
