//! Where things are: `make` prepares them below `.dev`, and the environment can point elsewhere.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub struct Places {
    /// The root file system of machines (STASIS_ROOTFS).
    pub root: PathBuf,
    pub spawner: PathBuf,
    /// `tests/programs`.
    pub sources: PathBuf,
    /// Built C programs (STASIS_TEST_PROGRAMS).
    pub built: PathBuf,
    /// Interpreters, by their path inside the root (STASIS_TEST_PYTHON, _NODE, _DENO).
    pub python: PathBuf,
    pub node: PathBuf,
    pub deno: PathBuf,
}

impl Places {
    /// The same for the whole test process; the error says what to do.
    pub fn get() -> super::Result<&'static Places> {
        static PLACES: OnceLock<Result<Places, String>> = OnceLock::new();
        PLACES
            .get_or_init(Places::find)
            .as_ref()
            .map_err(|what| super::Failure::Setup(what.clone()))
    }

    fn find() -> Result<Places, String> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let repository = repository.canonicalize().map_err(|error| error.to_string())?;
        let dev = repository.join(".dev");
        let or =
            |name: &str, default: PathBuf| std::env::var_os(name).map_or(default, PathBuf::from);
        let places = Places {
            root: or("STASIS_ROOTFS", dev.join("rootfs")),
            spawner: spawner()?,
            sources: repository.join("tests/programs"),
            built: or("STASIS_TEST_PROGRAMS", dev.join("programs")),
            python: or("STASIS_TEST_PYTHON", dev.join("venv/bin/python")),
            node: or("STASIS_TEST_NODE", "/usr/bin/node".into()),
            deno: or("STASIS_TEST_DENO", dev.join("deno/node_modules/deno/deno")),
        };
        if !places.root.join("usr/bin").is_dir() {
            let root = places.root.display();
            return Err(format!("no root file system at {root}: `dev/rootfs.py {root}` makes one"));
        }
        places.refresh()?;
        Ok(places)
    }

    /// Programs are in the root at the path they have here. One that was built or edited since the
    /// root was made would be tested in its old form, so it is linked anew.
    fn refresh(&self) -> Result<(), String> {
        let scripts = ["python", "js", "deno"].map(|folder| self.sources.join(folder));
        for folder in [self.built.clone()].iter().chain(&scripts) {
            self.refresh_folder(folder).map_err(|error| {
                let hint = "`tests/programs/run_plain.py --build-only --out DIR` builds programs";
                format!("bring {} into the root: {error} ({hint})", folder.display())
            })?;
        }
        Ok(())
    }

    fn refresh_folder(&self, folder: &Path) -> io::Result<()> {
        let inside = self.inside(folder);
        std::fs::create_dir_all(&inside)?;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let target = inside.join(entry.file_name());
            if entry.file_type()?.is_file() && !same_content(&entry.path(), &target) {
                replace(&entry.path(), &target)?;
            }
        }
        Ok(())
    }

    /// The directory the engine looks for roots in, and the root's name there.
    pub fn roots(&self) -> (PathBuf, String) {
        let name = self.root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (self.root.parent().unwrap_or(Path::new("/")).to_owned(), name)
    }

    /// Where a path of machines is on the host.
    pub fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// The spawner of the same build: tests are at `target/<profile>/deps/`, binaries one above.
fn spawner() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    let profile = test.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let spawner = profile.join("stasis-spawner");
    if spawner.is_file() {
        return Ok(spawner);
    }
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    let path = spawner.display();
    Err(format!("no {path}: `cargo build -p stasis-spawner{release}` makes it"))
}

fn same_content(a: &Path, b: &Path) -> bool {
    matches!((std::fs::read(a), std::fs::read(b)), (Ok(a), Ok(b)) if a == b)
}

/// By renaming, so that a machine that runs the old file keeps it.
fn replace(source: &Path, target: &Path) -> io::Result<()> {
    let new = target.with_extension(format!("new-{}", std::process::id()));
    std::fs::hard_link(source, &new)
        .or_else(|_| std::fs::copy(source, &new).map(drop))
        .and_then(|()| std::fs::rename(&new, target))
}
