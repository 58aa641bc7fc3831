//! The base `debian`: a suite laid out by mmdebstrap, from the mirrors the host's apt uses.

use crate::error::{Error, ErrorContext, Result};
use crate::inside::BaseLayout;
use crate::progress::Progress;
use crate::recipe::{Base, Recipe};
use stasis_agent::environment::Environment;
use stasis_sys::trees;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HINT: &str = "install it with: apt-get install mmdebstrap";
const SOURCES: [&str; 2] = ["/etc/apt/sources.list", "/etc/apt/sources.list.d"];
/// Packages beside those of the variant and the interpreter: for installers, and for shells.
const ALWAYS: &str = "ca-certificates,tzdata,bash,curl,git,procps,less";

fn wrong(what: impl Into<String>, hint: &'static str) -> Error {
    Error::Base { base: "debian", what: what.into(), hint }
}

pub fn lay(
    recipe: &Recipe,
    about: &Environment,
    root: &Path,
    cache: &Path,
    progress: &dyn Progress,
) -> Result<BaseLayout> {
    let Base::Debian { suite } = &recipe.base else { unreachable!("only for this base") };
    have_mmdebstrap(progress)?;
    let downloads = cache.join("apt");
    fs::create_dir_all(&downloads).doing(|| format!("{}", downloads.display()))?;
    run(&mut command(recipe, about, suite, root, &downloads), progress)?;
    empty(root).doing(|| "removing apt's leftovers".to_owned())?;
    let program = about.program(recipe.interpreter.as_deref());
    Ok(BaseLayout {
        base: format!("Debian {suite}"),
        interpreter: Path::new("/usr/bin").join(program),
        env: BTreeMap::new(),
        user: None,
    })
}

fn have_mmdebstrap(progress: &dyn Progress) -> Result<()> {
    let is_there =
        || Command::new("mmdebstrap").arg("--version").output().is_ok_and(|o| o.status.success());
    if is_there() {
        return Ok(());
    }
    progress.say("installing mmdebstrap");
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "--no-install-recommends", "mmdebstrap"]);
    let _ = install.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).output();
    if is_there() { Ok(()) } else { Err(wrong("mmdebstrap is not installed", HINT)) }
}

fn command(
    recipe: &Recipe,
    about: &Environment,
    suite: &str,
    root: &Path,
    downloads: &Path,
) -> Command {
    let packages = [about.debian, ALWAYS].into_iter().chain(recipe.apt.iter().map(String::as_str));
    let mut command = Command::new("mmdebstrap");
    command
        .args(["--variant=apt", "--mode=root", "--architectures=amd64"])
        .arg(format!("--include={}", packages.collect::<Vec<_>>().join(",")))
        .args(["--skip=download/empty", "--skip=essential/unlink"])
        .args(kept(downloads))
        .arg("--dpkgopt=path-exclude=/usr/share/doc/*")
        .arg("--dpkgopt=path-exclude=/usr/share/man/*")
        .arg(suite)
        .arg(root)
        .args(mirror());
    command.env("SOURCE_DATE_EPOCH", "1577836800").env("LC_ALL", "C.UTF-8");
    command
}

/// Hooks that bring downloaded packages back from the cache, and to it.
fn kept(downloads: &Path) -> [String; 2] {
    let kept = format!("'{}'", downloads.display().to_string().replace('\'', "'\\''"));
    let inside = "\"$1\"/var/cache/apt/archives/";
    [
        format!("--setup-hook=mkdir -p {inside}; cp -n {kept}/*.deb {inside} 2>/dev/null || true"),
        format!("--customize-hook=cp -n {inside}*.deb {kept}/ || true"),
    ]
}

/// The first Debian mirror in the host's apt configuration.
fn mirror() -> Option<String> {
    let mut files: Vec<PathBuf> = vec![PathBuf::from(SOURCES[0])];
    let more = fs::read_dir(SOURCES[1]).into_iter().flatten().flatten().map(|e| e.path());
    files.extend(
        more.filter(|path| path.extension().is_some_and(|e| e == "list" || e == "sources")),
    );
    files.sort();
    let texts = files.iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.into_iter().find_map(|text| mirror_in(&text))
}

/// An address that ends in `/debian`, of either form of the file.
fn mirror_in(text: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace);
    let is_debian =
        |word: &&str| word.contains("://") && word.trim_end_matches('/').ends_with("/debian");
    words.find(is_debian).map(str::to_owned)
}

fn run(command: &mut Command, progress: &dyn Progress) -> Result<()> {
    let cannot = |error| wrong(format!("mmdebstrap: {error}"), HINT);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let mut last = String::new();
    for line in child.stderr.take().into_iter().flat_map(|err| BufReader::new(err).lines()) {
        let line = line.map_err(cannot)?;
        progress.say(&line);
        if line.starts_with("E:") || last.is_empty() {
            last = line;
        }
    }
    if child.wait().map_err(cannot)?.success() {
        return Ok(());
    }
    Err(wrong(last, "check the suite's name, and that apt on the host reaches its mirror"))
}

/// Lists and caches are of no use to a machine, and its devices are the engine's.
fn empty(root: &Path) -> std::io::Result<()> {
    for name in ["var/lib/apt/lists", "var/cache/apt", "var/log/apt", "dev"] {
        trees::remove(&root.join(name))?;
        fs::create_dir_all(root.join(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::mirror_in;

    #[test]
    fn the_mirror_is_found_in_both_forms() {
        let list =
            "# deb http://old.example/debian x main\ndeb [a=b] http://m.example/debian/ x main";
        assert_eq!(mirror_in(list).as_deref(), Some("http://m.example/debian/"));
        let block = "Types: deb\nURIs: https://m.example/debian\nSuites: x\n";
        assert_eq!(mirror_in(block).as_deref(), Some("https://m.example/debian"));
        assert_eq!(mirror_in("deb http://m.example/debian-security x main"), None);
    }
}
