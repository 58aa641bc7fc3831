//! Fetches an image from a registry into the cache, one verified blob at a time. An interrupted
//! fetch continues with the missing blobs.

use super::manifest::{BlobDescriptor, OciManifest, digits};
use super::store::{blob_name, is_kept};
use crate::error::{Error, ErrorContext, Result};
use crate::progress::Progress;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::manifest::OciDescriptor;
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWrite;

const HINT: &str = "check the reference and the network; private registries are not supported yet: \
                    save the image to an archive and use that";
const MOST_BYTES: u64 = 16 << 30;

fn wrong(what: impl std::fmt::Display) -> Error {
    Error::Base { base: "oci", what: what.to_string(), hint: HINT }
}

/// Fetches the missing parts into `dir`; returns the manifest and its digest.
pub fn fetch(
    reference: &str,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<(OciManifest, String)> {
    let reference: Reference = reference.parse().map_err(wrong)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.doing(|| "a runtime".to_owned())?.block_on(fetch_all(&reference, dir, progress))
}

fn client(reference: &Reference) -> Result<Client> {
    let registry = reference.resolve_registry();
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let is_here = ["localhost", "127.0.0.1", "[::1]"].contains(&host);
    let plain = if is_here { vec![registry.to_owned()] } else { Vec::new() };
    let config = ClientConfig {
        protocol: ClientProtocol::HttpsExcept(plain),
        connect_timeout: Some(Duration::from_secs(20)),
        read_timeout: Some(Duration::from_secs(60)),
        ..ClientConfig::default()
    };
    Client::try_from(config).map_err(wrong)
}

async fn fetch_all(
    reference: &Reference,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<(OciManifest, String)> {
    let client = client(reference)?;
    let anonymous = RegistryAuth::Anonymous;
    client.auth(reference, &anonymous, RegistryOperation::Pull).await.map_err(wrong)?;
    let (manifest, digest) =
        client.pull_image_manifest(reference, &anonymous).await.map_err(wrong)?;
    fs::create_dir_all(dir.join("blobs/sha256")).doing(|| format!("{}", dir.display()))?;
    let parts: Vec<_> = std::iter::once(&manifest.config).chain(&manifest.layers).collect();
    for (done, part) in parts.iter().enumerate() {
        progress.step("fetch", done as u64, Some(parts.len() as u64));
        if !is_kept(dir, &part.digest)? {
            fetch_one(&client, reference, part, dir).await?;
        }
    }
    let layers = manifest.layers.iter().map(ours).collect();
    Ok((OciManifest { config: ours(&manifest.config), layers }, digest))
}

fn ours(descriptor: &OciDescriptor) -> BlobDescriptor {
    BlobDescriptor {
        media_type: descriptor.media_type.clone(),
        digest: descriptor.digest.clone(),
        platform: None,
    }
}

async fn fetch_one(
    client: &Client,
    reference: &Reference,
    part: &OciDescriptor,
    dir: &Path,
) -> Result<()> {
    let path = dir.join(blob_name(&part.digest)?);
    let temporary = dir.join(format!("{}.part", digits(&part.digest)?));
    let doing = || format!("{}", temporary.display());
    let file = File::create(&temporary).doing(doing)?;
    let left = u64::try_from(part.size).unwrap_or(0).min(MOST_BYTES);
    client.pull_blob(reference, part, Bounded { file, left }).await.map_err(wrong)?;
    fs::rename(&temporary, &path).doing(doing)?;
    match is_kept(dir, &part.digest)? {
        true => Ok(()),
        false => Err(Error::Image(format!("{}: the registry sent something else", part.digest))),
    }
}

/// A file that takes no more than was announced. Nothing else runs on this runtime, so writing
/// may take its time.
struct Bounded {
    file: File,
    left: u64,
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Poll::Ready(Err(io::Error::other("more than was announced")));
        };
        self.left = left;
        Poll::Ready(self.file.write_all(bytes).map(|()| bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
