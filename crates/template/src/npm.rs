//! npm, and the packages that it installs for a recipe.
//!
//!   registry ──► cache, checked by its hash ──► /opt/node/lib/node_modules/npm
//!   recipe   ──► npm install, in a jail ──► /home/user/node_modules ──► lock
//!
//! Packages are in the home directory, where instructions start: `import` and `require` find them
//! there, and `npm install` in a machine adds to them. Their scripts run only if the recipe allows
//! packages' code during the build.

use crate::error::{Error, ErrorContext, Result};
use crate::index::HostIndex;
use crate::inside::HOME;
use crate::jailed;
use crate::node::PLACE;
use crate::packages::Installer;
use crate::progress::Progress;
use crate::registry::Archive;
use crate::tree::RootTree;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub const NPM: Archive = Archive {
    title: "npm",
    package: "npm",
    version: "11.21.1",
    hash: "613ccbe90044257c87713bb426251ced128ca7e9b3949b65eeb18b98445a5d44\
           1e14720c73d6ad76be86f4cf42f2f0d66efe347a9a13400ccd2f6fcfb5954385",
};
/// The directory of packages inside.
pub const SITE: &str = "/home/user/node_modules";
/// Maximum bytes of npm's list of installed packages.
const LARGEST_LOCK: u64 = 64 << 20;

fn directory() -> String {
    format!("{PLACE}/lib/node_modules/npm")
}

/// Lays out npm, and the programs that start it.
pub fn lay(root: &Path, cache: &Path, registry: &str, progress: &dyn Progress) -> Result<()> {
    let archive = fetched(cache, registry, progress)?;
    let laid = RootTree::open(root).and_then(|tree| {
        unpack(&archive, &tree)?;
        for name in ["npm", "npx"] {
            let script = format!("{}/bin/{name}-cli.js", directory());
            let program = format!("{PLACE}/bin/{name}");
            let text = format!("#!/bin/sh\nexec {PLACE}/bin/node {script} \"$@\"\n");
            write(&tree, &program, text.as_bytes(), true)?;
        }
        Ok(())
    });
    laid.map_err(|error| NPM.wrong(format!("{}: {error}", NPM.package)))
}

/// The archive in the cache; fetched, if it is not there.
fn fetched(cache: &Path, registry: &str, progress: &dyn Progress) -> Result<PathBuf> {
    let tools = cache.join("tools");
    let archive = tools.join(format!("{}-{}.tgz", NPM.package, &NPM.hash[..16]));
    if !archive.is_file() {
        let new = archive.with_extension("new");
        fs::create_dir_all(&tools).doing(|| format!("{}", tools.display()))?;
        NPM.download(registry, &new, progress)?;
        fs::rename(&new, &archive).doing(|| format!("{}", archive.display()))?;
    }
    Ok(archive)
}

fn unpack(archive: &Path, tree: &RootTree) -> io::Result<()> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(archive)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let (Ok(inside), true) =
            (path.strip_prefix("package"), entry.header().entry_type().is_file())
        else {
            continue;
        };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        let is_program = entry.header().mode()? & 0o111 != 0;
        write(tree, &format!("{}/{}", directory(), inside.display()), &bytes, is_program)?;
    }
    Ok(())
}

fn write(tree: &RootTree, path: &str, bytes: &[u8], is_program: bool) -> io::Result<()> {
    tree.write(path, bytes)?;
    match is_program {
        true => {
            let slot = tree.slot(Path::new(path))?;
            fs::set_permissions(slot.path(), Permissions::from_mode(0o755))
        }
        false => Ok(()),
    }
}

/// Installs the recipe's packages; returns all installed ones, as `name==version`.
pub fn install(installer: &Installer) -> Result<Vec<String>> {
    let recipe = installer.recipe;
    if recipe.packages.is_empty() {
        return Ok(Vec::new());
    }
    installer.progress.step("packages", 0, None);
    let (mut env, jail) = installer.outgoing(&HostIndex::default())?;
    env.insert("npm_config_cache".to_owned(), "/run/cache".to_owned());
    env.insert("npm_config_registry".to_owned(), crate::registry::address());
    if let Some(cert) = env.get("SSL_CERT_FILE").cloned() {
        env.insert("NODE_EXTRA_CA_CERTS".to_owned(), cert);
    }
    let program = format!("{PLACE}/bin/npm");
    let mut words = vec![program.as_str(), "install", "--prefix", HOME];
    if !recipe.source_builds {
        words.push("--ignore-scripts");
    }
    words.push("--");
    words.extend(recipe.packages.iter().map(String::as_str));
    let said = jailed::run(jail, &words, &env, installer.progress);
    let said = said.doing(|| "running npm".to_owned())?;
    if !said.ok {
        return Err(Error::Packages(format!("npm: {}", said.talk)));
    }
    let lock = format!("{HOME}/package-lock.json");
    let text = RootTree::open(installer.root).and_then(|tree| tree.read(&lock, LARGEST_LOCK));
    Ok(locked(&text.doing(|| lock.clone())?))
}

/// The installed packages in npm's lock file.
fn locked(text: &str) -> Vec<String> {
    let whole: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let packages = whole["packages"].as_object().into_iter().flatten();
    let named = packages.filter_map(|(path, about)| {
        let (_, name) = path.rsplit_once("node_modules/")?;
        Some(format!("{name}=={}", about["version"].as_str()?))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_read_from_the_lock() {
        let text = r#"{"packages": {"": {"name": "user"}, "node_modules/a": {"version": "1.0.0"},
            "node_modules/a/node_modules/@b/c": {"version": "2.0.0"}, "link": {}}}"#;
        assert_eq!(locked(text), ["a==1.0.0", "@b/c==2.0.0"]);
        assert!(locked("nonsense").is_empty());
    }
}
