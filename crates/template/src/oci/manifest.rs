//! The documents of an image, as far as they are needed. All are bounded and from strangers.

use crate::{Error, Result};
use serde::Deserialize;

pub const LARGEST: u64 = 8 << 20;
const MOST_LAYERS: usize = 500;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobDescriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: String,
    #[serde(default)]
    pub platform: Option<Platform>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Platform {
    pub architecture: String,
    pub os: String,
}

#[derive(Debug, Deserialize)]
pub struct OciIndex {
    pub manifests: Vec<BlobDescriptor>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct OciManifest {
    pub config: BlobDescriptor,
    pub layers: Vec<BlobDescriptor>,
}

/// One image of a `docker save` archive: names of its files.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DockerSaveEntry {
    pub config: String,
    pub layers: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
pub struct OciConfig {
    #[serde(default)]
    pub config: OciSettings,
    #[serde(default)]
    pub rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct OciSettings {
    pub env: Option<Vec<String>>,
    pub user: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RootFs {
    pub diff_ids: Vec<String>,
}

pub fn parse<'a, T: Deserialize<'a>>(what: &str, bytes: &'a [u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| Error::Image(format!("{what}: {error}")))
}

impl OciIndex {
    /// The one image for this kind of machine.
    pub fn choose(&self) -> Result<&BlobDescriptor> {
        let fits = |d: &&BlobDescriptor| {
            d.platform.as_ref().is_none_or(|p| p.os == "linux" && p.architecture == "amd64")
        };
        let fitting: Vec<_> = self.manifests.iter().filter(fits).collect();
        match fitting[..] {
            [one] => Ok(one),
            [] => Err(Error::Image("it holds nothing for linux/amd64".to_owned())),
            _ => Err(Error::Image("it holds several images; keep one".to_owned())),
        }
    }
}

impl OciManifest {
    pub fn parse(bytes: &[u8]) -> Result<OciManifest> {
        let manifest: OciManifest = parse("manifest", bytes)?;
        if manifest.layers.len() > MOST_LAYERS {
            return Err(Error::Image(format!("more than {MOST_LAYERS} layers")));
        }
        Ok(manifest)
    }
}

/// The 64 digits of a sha256 digest: the only kind in use, and safe in a file name.
pub fn digits(digest: &str) -> Result<&str> {
    let fits = |hex: &&str| {
        hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let hex = digest.strip_prefix("sha256:").filter(fits);
    hex.ok_or_else(|| Error::Image(format!("{digest:?} is not a sha256 digest")))
}
