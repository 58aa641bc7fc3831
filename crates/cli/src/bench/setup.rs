//! Finding what a run needs: a root file system, a Python in it, the spawner.

use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};

/// Where things are, given or found.
#[derive(Debug, Clone)]
pub struct Places {
    pub root: PathBuf,
    /// Inside the root.
    pub python: PathBuf,
    pub spawner: PathBuf,
}

impl Places {
    pub fn find(root: Option<PathBuf>, python: Option<PathBuf>) -> Result<Places> {
        let root = root.or_else(|| variable("STASIS_ROOTFS")).or_else(|| upward(".dev/rootfs"));
        let python = python
            .or_else(|| variable("STASIS_TEST_PYTHON"))
            .or_else(|| upward(".dev/venv/bin/python"));
        let root = checked_root(root)?;
        let python = checked_python(&root, python)?;
        Ok(Places { root, python, spawner: spawner()? })
    }

    /// The directory the engine looks for roots in, and the root's name there.
    pub fn roots(&self) -> (PathBuf, String) {
        let name = self.root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (self.root.parent().unwrap_or(Path::new("/")).to_owned(), name)
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// `name` in a directory above the executable or above the current one.
fn upward(name: &str) -> Option<PathBuf> {
    let starts = [std::env::current_exe().ok(), std::env::current_dir().ok()];
    starts.into_iter().flatten().find_map(|start| {
        let mut above = start.ancestors().map(|dir| dir.join(name));
        above.find(|path| path.symlink_metadata().is_ok())
    })
}

fn checked_root(root: Option<PathBuf>) -> Result<PathBuf> {
    let hint = "make one with `dev/rootfs.py DIR VENV`, then give it with --root or STASIS_ROOTFS";
    let root =
        root.ok_or_else(|| Failure::new("bench.root", "found no root file system").hint(hint))?;
    root.canonicalize().ok().filter(|path| path.is_dir()).ok_or_else(|| {
        let message = format!("{} is not a root file system", root.display());
        Failure::new("bench.root", message).hint(hint)
    })
}

fn checked_python(root: &Path, python: Option<PathBuf>) -> Result<PathBuf> {
    let hint = "give its path inside the root with --python or STASIS_TEST_PYTHON";
    let python =
        python.ok_or_else(|| Failure::new("bench.python", "found no Python").hint(hint))?;
    let inside = python.strip_prefix("/").ok().map(|path| root.join(path));
    // a link may lead to a place that exists only inside
    match inside.map(|path| path.symlink_metadata()) {
        Some(Ok(_)) => Ok(python),
        Some(Err(_)) => {
            let message = format!("no {} inside {}", python.display(), root.display());
            Err(Failure::new("bench.python", message).hint(hint))
        }
        None => {
            let message = format!("{} is not an absolute path", python.display());
            Err(Failure::new("bench.python", message).hint(hint))
        }
    }
}

pub fn spawner() -> Result<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let path = own.with_file_name("stasis-spawner");
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::new("install.spawner", format!("no {}", path.display()))
        .hint("build the whole workspace: `cargo build --release`"))
}
