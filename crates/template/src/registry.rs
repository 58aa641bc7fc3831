//! Archives of the npm registry that are pinned by version and hash.

use crate::error::{Error, ErrorContext, Result};
use crate::progress::Progress;
use sha2::{Digest, Sha512};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const REGISTRY: &str = "https://registry.npmjs.org";
/// Names another registry, as it does for npm.
const SETTING: &str = "npm_config_registry";
const LARGEST: u64 = 256 << 20;
/// The longest that nothing may come from the registry.
const SILENCE: Duration = Duration::from_secs(60);
const HINT: &str = "Node comes from the npm registry, or from the one that the variable \
                    npm_config_registry names; the host's C++ library must be there";

/// A package as the registry keeps it.
pub struct Archive {
    pub title: &'static str,
    pub package: &'static str,
    pub version: &'static str,
    /// SHA-512 of the archive, in base64, as in the registry's `integrity`.
    pub hash: &'static str,
}

/// The registry configured for the service.
pub fn address() -> String {
    std::env::var(SETTING).unwrap_or_else(|_| REGISTRY.to_owned())
}

impl Archive {
    pub fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::Base { base: "host", what: what.to_string(), hint: HINT }
    }

    /// Fetches the archive to a file, and compares its hash.
    pub fn download(&self, registry: &str, file: &Path, progress: &dyn Progress) -> Result<()> {
        progress.say(&format!("fetching {} {}", self.title, self.version));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.doing(|| "a runtime".to_owned())?;
        runtime.block_on(self.fetch(registry, file, progress))
    }

    async fn fetch(&self, registry: &str, path: &Path, progress: &dyn Progress) -> Result<()> {
        let Archive { package, version, .. } = self;
        let registry = registry.trim_end_matches('/');
        let address = format!("{registry}/{package}/-/{package}-{version}.tgz");
        let said =
            |error: reqwest::Error| self.wrong(format!("{address}: {}", error.without_url()));
        let client = reqwest::Client::builder().read_timeout(SILENCE).build().map_err(said)?;
        let answer = client.get(&address).send().await.map_err(said)?;
        let mut answer = answer.error_for_status().map_err(said)?;
        let total = answer.content_length();
        let mut file = File::create(path).doing(|| format!("{}", path.display()))?;
        let (mut hasher, mut done) = (Sha512::new(), 0);
        while let Some(piece) = answer.chunk().await.map_err(said)? {
            done += piece.len() as u64;
            if done > LARGEST {
                return Err(self.wrong(format!("{address}: more than {LARGEST} bytes")));
            }
            hasher.update(&piece);
            file.write_all(&piece).doing(|| format!("{}", path.display()))?;
            progress.step("fetch", done, total);
        }
        if hex::encode(hasher.finalize()) != self.hash {
            let what = format!("is not the archive of {} {version}", self.title);
            return Err(self.wrong(format!("{address} {what}: its hash differs")));
        }
        Ok(())
    }
}
