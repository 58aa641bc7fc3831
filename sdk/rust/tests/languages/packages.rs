//! Packages: built, installed from what was built, and run.

use crate::browser::Origin;
use crate::{must, root, run};
use libtest_mimic::Failed;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tool that dev/setup.sh prepared.
pub fn tool(name: &str) -> PathBuf {
    let prepared = std::env::var_os("STASIS_TEST_SDK").map(PathBuf::from);
    let tools = prepared.unwrap_or_else(|| root().join(".dev/sdk"));
    tools.join(name)
}

/// A program that was prepared under a name of its own.
pub fn prepared(variable: &str, otherwise: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| root().join(otherwise), PathBuf::from)
}

fn node() -> PathBuf {
    prepared("STASIS_TEST_NODE", ".dev/node/node")
}

/// The only file with this ending in a directory.
fn only(dir: &Path, ending: &str) -> PathBuf {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let mut fit = entries.map(|entry| entry.path()).filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending))
    });
    fit.next().unwrap_or_else(|| panic!("no {ending} in {}", dir.display()))
}

/// A copy to build in, without what lies around.
fn copy(from: &Path, to: &Path, names: &[&str]) {
    std::fs::create_dir_all(to).expect("a directory");
    must(Command::new("cp").arg("-RL").args(names.iter().map(|name| from.join(name))).arg(to));
}

/// Types and lints of the Python SDK, and that it uses nothing that Python 3.9 does not have: there
/// is no such interpreter to run it with.
pub fn check_python() -> Result<(), Failed> {
    let at = root().join("sdk/python");
    let cache = root().join("target/tmp/sdk-mypy");
    let python = tool("python/bin/python");
    run(Command::new(&python).args(["-m", "mypy", "--cache-dir"]).arg(cache).current_dir(&at))?;
    run(Command::new(&python).args(["-m", "ruff", "check", "--no-cache"]).current_dir(&at))?;
    let oldest = ["--target=3.9-", "--eval-annotations", "--no-tips", "--violations", "src"];
    run(Command::new(tool("python/bin/vermin")).args(oldest).current_dir(&at))
}

/// The wheel, installed into a directory.
pub struct Python {
    site: PathBuf,
}

impl Python {
    pub fn install(work: &Path) -> Python {
        let (source, dist, site) =
            (work.join("python"), work.join("wheel"), work.join("site-packages"));
        copy(
            &root().join("sdk/python"),
            &source,
            &["src", "pyproject.toml", "README.md", "LICENSE"],
        );
        let build = ["-m", "hatchling", "build", "-t", "wheel", "-d"];
        must(Command::new(tool("python/bin/python")).args(build).arg(&dist).current_dir(source));
        let install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"];
        let wheel = only(&dist, ".whl");
        must(Command::new(tool("python/bin/python")).args(install).arg(&site).arg(wheel));
        Python { site }
    }

    /// A program of ours with the installed package.
    pub fn run(&self, program: &Path) -> Command {
        let mut command = Command::new(tool("python/bin/python"));
        command.arg(program).env("PYTHONPATH", &self.site);
        command
    }

    pub fn script(&self, name: &str) -> Command {
        self.run(&root().join("sdk/scenarios").join(name))
    }

    pub fn scenarios(&self) -> Command {
        self.script("python.py")
    }
}

/// The tarball, installed into a project.
pub struct Javascript {
    project: PathBuf,
}

impl Javascript {
    pub fn install(work: &Path) -> Javascript {
        let (source, dist, project) = (work.join("js"), work.join("tarball"), work.join("project"));
        let files = ["src", "package.json", "tsconfig.json", "README.md", "LICENSE"];
        copy(&root().join("sdk/js"), &source, &files);
        typescript(&source);
        std::fs::create_dir_all(&dist).expect("a directory");
        must(npm().args(["pack", "--pack-destination"]).arg(&dist).current_dir(&source));
        let scenarios = root().join("sdk/scenarios");
        copy(&scenarios, &project, &["javascript.ts", "tsconfig.json"]);
        let manifest = "{ \"private\": true, \"type\": \"module\" }";
        std::fs::write(project.join("package.json"), manifest).expect("written");
        let install = ["install", "--offline", "--no-audit", "--no-fund"];
        must(npm().args(install).arg(only(&dist, ".tgz")).current_dir(&project));
        typescript(&project);
        Javascript { project }
    }

    pub fn node(&self) -> Command {
        let mut command = Command::new(node());
        command.arg(self.project.join("javascript.js"));
        command
    }

    /// A file of the project, which may be written by the caller before.
    pub fn deno(&self, file: &str) -> Command {
        let mut command = Command::new(prepared("STASIS_TEST_DENO", ".dev/deno/deno"));
        command.args(["run", "--no-prompt", "--quiet", "--no-lock", "--node-modules-dir=manual"]);
        command.args(["--allow-net", "--allow-env", "--allow-read", "--allow-write"]).arg(file);
        command.env("DENO_NO_UPDATE_CHECK", "1").current_dir(&self.project);
        command
    }

    pub fn bun(&self) -> Command {
        let mut command = Command::new(tool("js/bun"));
        command.args(["run", "javascript.ts"]).current_dir(&self.project);
        command
    }

    pub fn browser(&self, page: &Origin, given: &serde_json::Value) -> Result<String, Failed> {
        page.run(&self.project, given)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.project.join(name), text).expect("written");
    }
}

fn npm() -> Command {
    Command::new("npm")
}

fn typescript(project: &Path) {
    let compiler = tool("js/node_modules/typescript/bin/tsc");
    must(Command::new(node()).arg(compiler).args(["-p", "."]).current_dir(project));
}

/// The crate, built from its package outside of the repository.
pub struct Rust {
    examples: PathBuf,
}

impl Rust {
    pub fn install(work: &Path) -> Rust {
        let unpacked = unpacked_crate(work);
        let page = std::fs::read_to_string(unpacked.join("README.md")).expect("a page");
        let sample = crate::samples::program(&page, "rust,no_run");
        std::fs::write(unpacked.join("examples/sample.rs"), sample).expect("written");
        // a packed manifest names all it has
        let manifest = std::fs::read_to_string(unpacked.join("Cargo.toml")).expect("a manifest");
        let example = "\n[[example]]\nname = \"sample\"\npath = \"examples/sample.rs\"\n";
        std::fs::write(unpacked.join("Cargo.toml"), manifest + example).expect("written");
        let target = root().join("target");
        let build = ["build", "--quiet", "--offline", "--examples", "--target-dir"];
        must(
            Command::new(cargo())
                .args(build)
                .arg(&target)
                .current_dir(&unpacked)
                // as in the workspace, so that what others are made of is not built again
                .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only"),
        );
        Rust { examples: target.join("debug/examples") }
    }

    pub fn scenarios(&self) -> Command {
        Command::new(self.examples.join("scenarios"))
    }

    /// The program of its README.
    pub fn sample(&self) -> Command {
        Command::new(self.examples.join("sample"))
    }
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn unpacked_crate(work: &Path) -> PathBuf {
    let (packed, unpacked) = (work.join("packed"), work.join("crate"));
    let package = ["package", "-p", "stasis-sdk", "--offline", "--allow-dirty", "--no-verify"];
    must(Command::new(cargo()).args(package).arg("--target-dir").arg(&packed).current_dir(root()));
    std::fs::create_dir_all(&unpacked).expect("a directory");
    let file = only(&packed.join("package"), ".crate");
    let out = ["--strip-components", "1", "-C"];
    must(Command::new("tar").arg("xzmf").arg(file).args(out).arg(&unpacked));
    unpacked
}
