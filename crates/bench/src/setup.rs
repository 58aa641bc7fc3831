//! Finds the resources of a run: a root file system, a Python in it, the spawner.

use crate::progress::Talk;
use stasis_command::failure::{CliFailure, Result};
use stasis_command::install;
use stasis_template::Recipe;
use std::path::{Path, PathBuf};

/// Below the bench's directory, which is also the default place of `bench machine`'s template.
const TEMPLATE_DIR: &str = "stasis-bench-machine";

/// Options of a run on a separate process.
#[derive(clap::Args)]
pub struct Given {
    /// Root file system to run in [default: $STASIS_ROOTFS, else the default template's]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Python inside that root [default: $STASIS_TEST_PYTHON, else the template's own]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Directory on a real disk for the images, which are removed at the end
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,
}

/// Paths, given or found.
#[derive(Debug, Clone)]
pub struct Places {
    pub root: PathBuf,
    /// Inside the root.
    pub python: PathBuf,
    pub spawner: PathBuf,
}

impl Places {
    /// Without a root that is named, the default template's; it is built if it is not there.
    pub fn find(given: &Given) -> Result<Places> {
        let python = given.python.clone();
        let Some(root) = given.root.clone().or_else(|| variable("STASIS_ROOTFS")) else {
            return Places::of_template(&given.dir.join(TEMPLATE_DIR), python);
        };
        let root = checked_root(&root)?;
        let python = python.or_else(|| variable("STASIS_TEST_PYTHON"));
        let python = checked_python(&root, python)?;
        Ok(Places { root, python, spawner: install::spawner()? })
    }

    fn of_template(data: &Path, python: Option<PathBuf>) -> Result<Places> {
        let spawner = install::spawner()?;
        let (roots, cache) = (data.join("roots"), data.join("cache"));
        let recipe = Recipe::default_template();
        let built = stasis_template::build_root(&recipe, &roots, &cache, &Talk)?;
        let root = checked_root(&built.path(&roots))?;
        let python = checked_python(&root, Some(python.unwrap_or(built.interpreter)))?;
        Ok(Places { root, python, spawner })
    }

    /// The engine's directory of roots, and the root's name there.
    pub fn roots(&self) -> (PathBuf, String) {
        let name = self.root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (self.root.parent().unwrap_or(Path::new("/")).to_owned(), name)
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn checked_root(root: &Path) -> Result<PathBuf> {
    root.canonicalize().ok().filter(|path| path.is_dir()).ok_or_else(|| {
        let message = format!("{} is not a root file system", root.display());
        let hint = "without --root and STASIS_ROOTFS, the default template is used";
        CliFailure::new("bench.root", message).hint(hint)
    })
}

fn checked_python(root: &Path, python: Option<PathBuf>) -> Result<PathBuf> {
    let hint = "give its path inside the root with --python or STASIS_TEST_PYTHON";
    let python =
        python.ok_or_else(|| CliFailure::new("bench.python", "found no Python").hint(hint))?;
    let inside = python.strip_prefix("/").ok().map(|path| root.join(path));
    // a link may lead to a place that exists only inside
    match inside.map(|path| path.symlink_metadata()) {
        Some(Ok(_)) => Ok(python),
        Some(Err(_)) => {
            let message = format!("no {} inside {}", python.display(), root.display());
            Err(CliFailure::new("bench.python", message).hint(hint))
        }
        None => {
            let message = format!("{} is not an absolute path", python.display());
            Err(CliFailure::new("bench.python", message).hint(hint))
        }
    }
}
