//! The base `host`: the host's interpreter and a small userland, copied.
//!
//!   probe ──► interpreter, library ──► extension modules ──► shared libraries ──► loader
//!                 userland: shell, coreutils, git, ...  ─┘
//!
//! Everything is a copy (shared extents where the file system can), never a hard link: an upgrade
//! of the host changes nothing here. A program that the host lacks is left out.

mod copier;
mod libraries;
mod probe;
mod userland;

pub use probe::{HostInterpreter, probe};

use crate::error::{Error, ErrorContext, Result};
use crate::inside::BaseLayout;
use crate::progress::Progress;
use copier::Copier;
use stasis_agent::environment::Environment;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Opened by name at run time, by the C library or by wheels.
const OPENED: [&str; 9] = [
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libnss_files.so.2",
    "libnss_dns.so.2",
    "libresolv.so.2",
    "librt.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "libutil.so.1",
];

/// A path on a host or in a root where /bin and its like are links into /usr.
fn merged(path: &Path) -> PathBuf {
    let mut rest = path.strip_prefix("/").unwrap_or(path).components();
    match rest.next().and_then(|first| first.as_os_str().to_str()) {
        Some(first @ ("bin" | "sbin" | "lib" | "lib64")) => {
            Path::new("/usr").join(first).join(rest.as_path())
        }
        _ => path.to_owned(),
    }
}

/// Lays the base out in the empty directory `root`.
pub fn lay(
    about: &Environment,
    found: &HostInterpreter,
    root: &Path,
    progress: &dyn Progress,
) -> Result<BaseLayout> {
    links(root).doing(|| "the root's first links".to_owned())?;
    let own = found.clone();
    let place = move |path: &Path| own.map(path);
    let mut copier = Copier::new(root, &place, progress);
    copier.program(&found.executable)?;
    if let Some(library) = &found.library {
        copier.program(library)?;
    }
    for dir in dirs(found) {
        copier.tree(dir, &|name| about.left_out.has(name))?;
    }
    name_interpreter(&mut copier, about, found)?;
    Ok(BaseLayout {
        base: format!("{} {}", about.title, found.version),
        interpreter: found.map(&found.executable),
        env: surround(copier, root)?,
        user: None,
    })
}

/// Writes a program that is not the host's, and the host's files around it.
pub fn lay_program(
    program: &Path,
    inside: &Path,
    root: &Path,
    progress: &dyn Progress,
) -> Result<BTreeMap<String, String>> {
    links(root).doing(|| "the root's first links".to_owned())?;
    let mut copier = Copier::new(root, &merged, progress);
    copier.program_at(program, inside)?;
    surround(copier, root)
}

/// Tools expected beside an interpreter; variables with its location.
fn surround(mut copier: Copier, root: &Path) -> Result<BTreeMap<String, String>> {
    for name in OPENED {
        copier.library(name, &[])?;
    }
    userland::lay(&mut copier)?;
    let places = copier.finish();
    loader_cache(root, &places)?;
    let bundle = ("SSL_CERT_FILE".to_owned(), userland::BUNDLE.to_owned());
    let has_bundle = root.join(userland::BUNDLE.trim_start_matches('/')).exists();
    Ok(BTreeMap::from_iter(has_bundle.then_some(bundle)))
}

fn dirs(found: &HostInterpreter) -> Vec<&Path> {
    let mut dirs = vec![found.stdlib.as_path(), &found.platstdlib, &found.include];
    dirs.dedup();
    dirs.retain(|dir| dir.is_dir());
    dirs
}

fn links(root: &Path) -> std::io::Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        std::fs::create_dir_all(root.join("usr").join(name))?;
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
    }
    Ok(())
}

fn name_interpreter(
    copier: &mut Copier,
    about: &Environment,
    found: &HostInterpreter,
) -> Result<()> {
    let inside = found.map(&found.executable);
    for name in about.names {
        let link = inside.with_file_name(name);
        if link != inside {
            copier.link(&link, &inside)?;
        }
    }
    Ok(())
}

/// Updates the loader's cache, because its libraries may have moved.
fn loader_cache(root: &Path, places: &[PathBuf]) -> Result<()> {
    let list: String = places.iter().map(|place| format!("{}\n", place.display())).collect();
    let conf = root.join("etc/ld.so.conf");
    std::fs::write(&conf, list).doing(|| "etc/ld.so.conf".to_owned())?;
    let wrong = |what: String| Error::Base {
        base: "host",
        what,
        hint: "the C library's ldconfig must be in /sbin",
    };
    let output = Command::new("/sbin/ldconfig")
        .arg("-r")
        .arg(root)
        .output()
        .map_err(|error| wrong(format!("ldconfig: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(wrong(format!("ldconfig: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_places_are_in_usr() {
        assert_eq!(merged(Path::new("/lib64/ld.so")), Path::new("/usr/lib64/ld.so"));
        assert_eq!(merged(Path::new("/usr/bin/env")), Path::new("/usr/bin/env"));
        assert_eq!(merged(Path::new("/library/x")), Path::new("/library/x"));
    }
}
