//! uv, which installs packages many times faster than pip: the host's, else fetched once into the
//! cache by the host's pip. Without either there is none, and pip does the work.

use crate::progress::Progress;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn find(cache: &Path, python: Option<&Path>, progress: &dyn Progress) -> Option<PathBuf> {
    let kept = cache.join("tools/uv/bin/uv");
    on_path().or_else(|| is_program(&kept).then(|| kept.clone())).or_else(|| {
        progress.say("fetching uv");
        fetch(&cache.join("tools"), python?).then_some(kept)
    })
}

/// A file of the kind the kernel runs; a shim of a version manager is a script.
fn is_program(path: &Path) -> bool {
    let mut start = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *b"\x7fELF"
}

fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("uv")).find(|path| is_program(path))
}

fn fetch(tools: &Path, python: &Path) -> bool {
    let (new, place) = (tools.join("uv.new"), tools.join("uv"));
    let _ = fs::remove_dir_all(&new);
    let status = Command::new(python)
        .args(["-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:", "--target"])
        .arg(&new)
        .arg("uv")
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .stdin(std::process::Stdio::null())
        .output();
    let fetched = status.is_ok_and(|output| output.status.success());
    let _ = fs::remove_dir_all(&place);
    fetched && is_program(&new.join("bin/uv")) && fs::rename(&new, &place).is_ok()
}
