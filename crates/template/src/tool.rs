//! A language's faster installer of packages: the host's, else fetched once into the cache by the
//! host's interpreter. Without either there is none, and the usual installer does the work.

use crate::progress::Progress;
use stasis_agent::environment::PackageInstaller;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn find(
    tool: &PackageInstaller,
    cache: &Path,
    interpreter: Option<&Path>,
    progress: &dyn Progress,
) -> Option<PathBuf> {
    let name = tool.name;
    let kept = cache.join("tools").join(name).join("bin").join(name);
    on_path(name).or_else(|| is_program(&kept).then(|| kept.clone())).or_else(|| {
        progress.say(&format!("fetching {name}"));
        fetch(tool, &cache.join("tools"), interpreter?).then_some(kept)
    })
}

/// A file of the kind the kernel runs; a shim of a version manager is a script.
fn is_program(path: &Path) -> bool {
    let mut start = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *b"\x7fELF"
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| is_program(path))
}

fn fetch(tool: &PackageInstaller, tools: &Path, interpreter: &Path) -> bool {
    let (new, place) = (tools.join(format!("{}.new", tool.name)), tools.join(tool.name));
    let _ = fs::remove_dir_all(&new);
    let [before, behind] = tool.fetch;
    let status = Command::new(interpreter)
        .args(before)
        .arg(&new)
        .args(behind)
        .envs(tool.fetch_env.iter().copied())
        .stdin(std::process::Stdio::null())
        .output();
    let fetched = status.is_ok_and(|output| output.status.success());
    let _ = fs::remove_dir_all(&place);
    fetched && is_program(&new.join("bin").join(tool.name)) && fs::rename(&new, &place).is_ok()
}
