//! The base `oci`: a container image, applied layer by layer.
//!
//!   reference ──registry──► cache ─┐
//!   layout ────────────────────────┼─► Store ──► manifest, config ──► layers ──► root
//!   archive (layout, docker save) ─┘        every file is checked against its digest
//!
//! The image must have a Python; its own program and user are recorded, not used.

mod layer;
mod manifest;
mod registry;
mod store;
#[cfg(test)]
mod tests;

use crate::error::{Error, ErrorContext, Result};
use crate::inside::BaseLayout;
use crate::progress::Progress;
use crate::recipe::ImageSource;
use crate::tree::RootTree;
use layer::Budget;
use manifest::{BlobDescriptor, DockerSaveEntry, OciConfig, OciIndex, OciManifest, parse};
use stasis_agent::environment::Environment;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use store::{ExpectedDigest, OciLayout, blob_name};

const DEEPEST: usize = 3;
const LONGEST_ENV: usize = 1000;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The types of an index, of OCI and of Docker.
const INDEXES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// A found image; the registry is contacted only when it is unpacked.
pub enum OciImage {
    Remote { reference: String, cache: PathBuf },
    Local(OciLayout),
}

/// The parts of an image.
struct Parts {
    digest: String,
    config: OciConfig,
    layers: Vec<(String, ExpectedDigest)>,
}

impl OciImage {
    pub fn find(source: &ImageSource, cache: &Path) -> Result<OciImage> {
        match source {
            ImageSource::Reference(reference) => {
                Ok(OciImage::Remote { reference: reference.clone(), cache: cache.join("oci") })
            }
            ImageSource::Layout(dir) if dir.join("index.json").is_file() => {
                Ok(OciImage::Local(OciLayout::Dir(dir.clone())))
            }
            ImageSource::Layout(dir) => {
                Err(Error::Image(format!("{} has no index.json", dir.display())))
            }
            ImageSource::Archive(path) => OciLayout::tar(path).map(OciImage::Local),
        }
    }

    /// The digest that names the image.
    pub fn identity(&self) -> Result<String> {
        match self {
            OciImage::Remote { reference, .. } => Ok(reference.clone()),
            OciImage::Local(store) => Ok(parts(store)?.digest),
        }
    }

    /// Applies the image to the empty directory `root`.
    pub fn lay(
        &self,
        about: &Environment,
        wanted: Option<&str>,
        root: &Path,
        progress: &dyn Progress,
    ) -> Result<BaseLayout> {
        match self {
            OciImage::Local(store) => lay(store, parts(store)?, about, wanted, root, progress),
            OciImage::Remote { reference, cache } => {
                let (manifest, digest) = registry::fetch(reference, cache, progress)?;
                let store = OciLayout::Dir(cache.clone());
                let parts = of_manifest(&store, manifest, digest)?;
                lay(&store, parts, about, wanted, root, progress)
            }
        }
    }
}

fn lay(
    store: &OciLayout,
    parts: Parts,
    about: &Environment,
    wanted: Option<&str>,
    root: &Path,
    progress: &dyn Progress,
) -> Result<BaseLayout> {
    let tree = RootTree::open(root).doing(|| "the new root".to_owned())?;
    let mut budget = Budget::default();
    let total = parts.layers.len() as u64;
    for (done, (name, check)) in parts.layers.iter().enumerate() {
        progress.step("layers", done as u64, Some(total));
        store.verify(name, check)?;
        let layer = store::unpacked(store.open(name)?).doing(|| name.clone())?;
        layer::apply(&tree, layer, &mut budget)
            .map_err(|error| Error::Image(format!("layer {name}: {error}")))?;
    }
    progress.step("layers", total, Some(total));
    let settings = parts.config.config;
    let env = variables(settings.env.unwrap_or_default());
    let interpreter = find_program(&tree, &env, about, wanted)?;
    let user = settings.user.filter(|user| !user.is_empty() && user.len() < 256);
    Ok(BaseLayout { base: parts.digest, interpreter, env, user })
}

/// The parts of an image in a layout or in an archive of Docker's.
fn parts(store: &OciLayout) -> Result<Parts> {
    if store.has("index.json") {
        let index: OciIndex = parse("index.json", &store.read("index.json")?)?;
        let (bytes, digest) = descend(store, index.choose()?.clone())?;
        return of_manifest(store, OciManifest::parse(&bytes)?, digest);
    }
    if store.has("manifest.json") {
        let saved: Vec<DockerSaveEntry> = parse("manifest.json", &store.read("manifest.json")?)?;
        return of_saved(store, &saved);
    }
    Err(Error::Image("it has neither index.json nor manifest.json".to_owned()))
}

/// Follows indexes of indexes to the manifest.
fn descend(store: &OciLayout, mut at: BlobDescriptor) -> Result<(Vec<u8>, String)> {
    for _ in 0..DEEPEST {
        let bytes = store.blob(&at.digest)?;
        if !INDEXES.contains(&at.media_type.as_str()) {
            return Ok((bytes, at.digest));
        }
        at = parse::<OciIndex>(&at.digest, &bytes)?.choose()?.clone();
    }
    Err(Error::Image("indexes within indexes".to_owned()))
}

fn of_manifest(store: &OciLayout, manifest: OciManifest, digest: String) -> Result<Parts> {
    let config = parse("config", &store.blob(&manifest.config.digest)?)?;
    let layer = |layer: &BlobDescriptor| {
        Ok((blob_name(&layer.digest)?, ExpectedDigest::Stored(layer.digest.clone())))
    };
    let layers = manifest.layers.iter().map(layer).collect::<Result<_>>()?;
    Ok(Parts { digest, config, layers })
}

/// Docker's own archives name layers by path; their digests, of the unpacked data, are in the
/// config.
fn of_saved(store: &OciLayout, saved: &[DockerSaveEntry]) -> Result<Parts> {
    let [image] = saved else {
        return Err(Error::Image(format!("the archive holds {} images, not one", saved.len())));
    };
    let bytes = store.read(&image.config)?;
    let config: OciConfig = parse("config", &bytes)?;
    let ids = &config.rootfs.diff_ids;
    if ids.len() != image.layers.len() {
        return Err(Error::Image("its config and its list of layers differ".to_owned()));
    }
    let checks = ids.iter().cloned().map(ExpectedDigest::Unpacked);
    let layers = image.layers.iter().cloned().zip(checks).collect();
    let hash = store::hash(&bytes[..]).doing(|| image.config.clone())?;
    Ok(Parts { digest: format!("sha256:{hash}"), config, layers })
}

fn variables(list: Vec<String>) -> BTreeMap<String, String> {
    let fits = |(key, value): &(String, String)| !key.is_empty() && !value.contains('\0');
    let split = |line: String| line.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    list.into_iter().take(LONGEST_ENV).filter_map(split).filter(fits).collect()
}

fn find_program(
    tree: &RootTree,
    env: &BTreeMap<String, String>,
    about: &Environment,
    wanted: Option<&str>,
) -> Result<PathBuf> {
    let name = about.program(wanted);
    let path = env.get("PATH").map_or(PATH, String::as_str);
    let mut places = path.split(':').filter(|dir| dir.starts_with('/'));
    let found = places.find_map(|dir| {
        let path = Path::new(dir).join(&name);
        tree.is_program(&path).then_some(path)
    });
    found.ok_or_else(|| Error::Base {
        base: "oci",
        what: format!("the image has no {name} on its PATH ({path})"),
        hint: about.image_hint,
    })
}
