//! A package with everything it depends on: fetched, unpacked, and named.
//!
//!   wanted ─► version ─► its dependencies are wanted ─► ... ─► archives ─► blobs
//!
//! A version that was chosen for one package is used for the others that can do with it. An archive
//! becomes a blob with its regular files; links, and paths that lead out of the package, are left
//! out.

use super::cache::ModuleCache;
use super::names::PackageName;
use super::npm::{Dependency, PackageVersion, Registry};
use super::{FetchedImport, PinnedModule};
use crate::error::{Error, Result};
use nodejs_semver::{Range, Version};
use stasis_protocol::{BlobRef, FetchAnswer, FetchedPackage};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::path::{Component, Path};

/// Packages of one import, bytes and files of one package, bytes of all.
const MOST_PACKAGES: usize = 500;
const LARGEST: u64 = 128 << 20;
const MOST_FILES: usize = 20_000;
const LARGEST_GRAPH: u64 = 512 << 20;
/// Bytes of an archive when it is unpacked, with all that is not a file: the reader holds a long
/// name in memory, whatever its length.
const UNPACKED: u64 = LARGEST + (64 << 20);

/// Versions by id, and the ids that each one's dependencies became.
#[derive(Default)]
struct Graph {
    versions: BTreeMap<String, PackageVersion>,
    links: BTreeMap<String, BTreeMap<String, String>>,
}

pub async fn import(
    registry: &Registry,
    cache: &ModuleCache,
    wanted: &PackageName,
) -> Result<FetchedImport> {
    let root = registry.version(cache, &wanted.name, &wanted.range).await?;
    let id = root.id();
    let graph = resolve(registry, cache, root).await?;
    let (mut packages, mut modules, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (id, version) in &graph.versions {
        let blob = blob(registry, cache, version).await?;
        bytes += blob.size;
        if bytes > LARGEST_GRAPH {
            return Err(Error::Module(format!("its packages have more than {bytes} bytes")));
        }
        let dependencies = graph.links.get(id).cloned().unwrap_or_default();
        let name = version.name.clone();
        packages.push(FetchedPackage { id: id.clone(), name, blob, dependencies });
        let integrity = version.integrity.clone();
        modules.push(PinnedModule { name: format!("npm:{id}"), integrity });
    }
    let blobs = packages.iter().map(|one| one.blob.hash.clone()).collect();
    let subpath = wanted.subpath.clone();
    Ok(FetchedImport { answer: FetchAnswer::Package { id, subpath, packages }, modules, blobs })
}

/// Which versions a package and its dependencies need.
async fn resolve(registry: &Registry, cache: &ModuleCache, root: PackageVersion) -> Result<Graph> {
    let mut graph = Graph::default();
    let mut next = VecDeque::from([root]);
    while let Some(version) = next.pop_front() {
        let id = version.id();
        if graph.versions.contains_key(&id) {
            continue;
        }
        if graph.versions.len() >= MOST_PACKAGES {
            let what = format!("it depends on more than {MOST_PACKAGES} packages");
            return Err(Error::Module(what));
        }
        let mut links = BTreeMap::new();
        for (alias, wanted) in &version.dependencies {
            let found = match graph.chosen(wanted) {
                Some(found) => found,
                None => match registry.version(cache, &wanted.name, &wanted.range).await {
                    Ok(found) if wanted.optional && !found.fits => continue,
                    Ok(found) => found,
                    Err(_) if wanted.optional => continue,
                    Err(error) => return Err(error),
                },
            };
            links.insert(alias.clone(), found.id());
            next.push_back(found);
        }
        graph.links.insert(id.clone(), links);
        graph.versions.insert(id, version);
    }
    Ok(graph)
}

impl Graph {
    /// The newest version that was chosen already and will do.
    fn chosen(&self, wanted: &Dependency) -> Option<PackageVersion> {
        let range = Range::parse(&wanted.range).ok()?;
        let fits = |one: &&PackageVersion| {
            let version = Version::parse(&one.version);
            one.name == wanted.name && version.is_ok_and(|version| version.satisfies(&range))
        };
        let newest = |one: &&PackageVersion| Version::parse(&one.version).ok();
        self.versions.values().filter(fits).max_by_key(newest).cloned()
    }
}

/// The files of a version, from the cache or from the registry.
async fn blob(
    registry: &Registry,
    cache: &ModuleCache,
    version: &PackageVersion,
) -> Result<BlobRef> {
    let name = format!("archive {}", version.integrity);
    if let Some(known) = cache.pin::<BlobRef>(&name).filter(|blob| cache.has(blob)) {
        return Ok(known);
    }
    let archive = registry.download(version).await?;
    let odd = |error: io::Error| Error::Module(format!("{}: {error}", version.id()));
    let blob = cache.add(&bundle(&archive, UNPACKED).map_err(odd)?)?;
    cache.keep_pin(&name, blob)
}

/// The regular files of an archive, as a line of JSON and then their bytes.
fn bundle(archive: &[u8], unpacked: u64) -> io::Result<Vec<u8>> {
    let unpacked = flate2::read::GzDecoder::new(archive).take(unpacked);
    let mut archive = tar::Archive::new(unpacked);
    let (mut names, mut bodies) = (BTreeMap::new(), Vec::new());
    for entry in archive.entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let Some(path) = inside(&entry.path()?) else { continue };
        let start = bodies.len();
        let room = LARGEST.saturating_sub(start as u64);
        let read = entry.by_ref().take(room + 1).read_to_end(&mut bodies)?;
        if read as u64 > room || names.len() >= MOST_FILES {
            return Err(io::Error::other("it has too many files, or too large ones"));
        }
        // of two files with one path, an installer leaves the last
        names.insert(path, (start, read));
    }
    let head: Vec<(&String, usize)> = names.iter().map(|(path, (_, size))| (path, *size)).collect();
    let mut bytes = serde_json::to_vec(&head)?;
    bytes.push(b'\n');
    for (start, size) in names.values() {
        bytes.extend_from_slice(&bodies[*start..start + size]);
    }
    Ok(bytes)
}

/// A path below the archive's one directory, whose name is the packer's; none, if it leads out.
fn inside(path: &Path) -> Option<String> {
    let parts: Option<Vec<&str>> = path
        .components()
        .map(|part| match part {
            Component::Normal(part) => part.to_str().filter(|part| part.len() <= 255),
            _ => None,
        })
        .collect();
    let parts = parts.filter(|parts| (2..64).contains(&parts.len()))?;
    Some(parts[1..].join("/")).filter(|path| path.len() <= 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(gzip);
        for (path, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            // as it is, also where the crate would refuse to write it
            header.as_gnu_mut().expect("a header").name[..path.len()]
                .copy_from_slice(path.as_bytes());
            header.set_cksum();
            tar.append(&header, text.as_bytes()).expect("added");
        }
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        tar.append_link(&mut link, "package/link", "/etc/passwd").expect("added");
        tar.into_inner().and_then(|gzip| gzip.finish()).expect("an archive")
    }

    #[test]
    fn an_archive_becomes_its_files() {
        let archive = archive(&[
            ("package/b.js", "two"),
            ("package/a/c.js", "old"),
            ("package/a/c.js", "three"),
            ("package/../../out", "no"),
            ("/etc/out", "no"),
            ("alone", "no"),
        ]);
        let bytes = bundle(&archive, UNPACKED).expect("a bundle");
        let text = String::from_utf8(bytes).expect("text");
        assert_eq!(text, "[[\"a/c.js\",5],[\"b.js\",3]]\nthreetwo");
        assert!(bundle(b"no archive", UNPACKED).is_err());
    }

    /// Names are held in memory before anything can be said about them.
    #[test]
    fn an_archive_with_an_endless_name() {
        let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(gzip);
        for (kind, size) in [(tar::EntryType::GNULongName, 8 << 20), (tar::EntryType::Regular, 0)] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(size);
            header.set_cksum();
            tar.append(&header, io::repeat(b'x').take(size)).expect("added");
        }
        let archive = tar.into_inner().and_then(|gzip| gzip.finish()).expect("an archive");
        assert!(archive.len() < 1 << 20, "{}", archive.len());
        bundle(&archive, 1 << 20).expect_err("cut short");
        assert_eq!(bundle(&archive, 16 << 20).expect("no file of it"), b"[]\n");
    }
}
