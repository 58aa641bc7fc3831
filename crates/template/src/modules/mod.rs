//! Modules that the host fetches for the imports of machines.
//!
//!   npm:a@1, jsr:@b/c ──► names ──► graph ──► registry: archives, by their SHA-512 ─┐
//!   https://...       ──► web: only addresses that machines may reach ──────────────┤
//!                                                                                   ▼
//!                                        cache: pins (which bytes a name is), blobs (the bytes)
//!
//! Every name comes from inside a machine. Sizes, numbers and times are bounded. Fetched data is
//! pinned: a version or an address whose bytes changed is refused. A failure is one message for the
//! machine, and leaves nothing but finished blobs behind.

mod cache;
mod graph;
mod names;
mod npm;
mod web;

use crate::error::{Error, ErrorContext, Result};
use cache::ModuleCache;
use names::ModuleName;
use npm::Registry;
use stasis_protocol::{FetchAnswer, PIECE};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;
use web::Web;

/// The longest that one import may take.
const LONGEST: Duration = Duration::from_secs(60);

/// Registries of packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registries {
    pub npm: String,
    /// JSR as a registry of npm's kind.
    pub jsr: String,
}

impl Registries {
    /// The registries in the service's variables.
    pub fn of_environment() -> Registries {
        const JSR: &str = "https://npm.jsr.io";
        let jsr = std::env::var("npm_config_@jsr:registry").unwrap_or_else(|_| JSR.to_owned());
        Registries { npm: crate::registry::address(), jsr }
    }
}

/// Fetches modules, and keeps them for all machines.
pub struct ModuleStore {
    cache: ModuleCache,
    registry: Registry,
    web: Web,
}

/// The result of an import.
#[derive(Debug)]
pub struct FetchedImport {
    pub answer: FetchAnswer,
    /// Every module in it: its exact name, and the hash of its data.
    pub modules: Vec<PinnedModule>,
    /// Hashes of the blobs that the answer names.
    pub blobs: Vec<String>,
}

/// A module that was fetched, by its exact name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedModule {
    pub name: String,
    /// `sha512-` or `sha256-` and the hash in base64.
    pub integrity: String,
}

impl ModuleStore {
    pub fn new(dir: PathBuf, registries: Registries) -> ModuleStore {
        let web = Web::new(stasis_egress::refusal);
        ModuleStore { cache: ModuleCache::new(dir), registry: Registry::new(registries), web }
    }

    /// Finds a module, and fetches missing ones.
    pub fn import(&self, specifier: &str) -> Result<FetchedImport> {
        match names::parse(specifier)? {
            ModuleName::Package(name) => in_time(graph::import(&self.registry, &self.cache, &name)),
            ModuleName::Web(url) => in_time(self.web.import(&self.cache, url)),
        }
    }

    /// Bytes of a blob from an offset on.
    pub fn piece(&self, hash: &str, offset: u64) -> Result<Vec<u8>> {
        self.cache.piece(hash, offset, PIECE)
    }
}

/// Runs a fetch to its end, or for as long as it may take.
fn in_time<T>(fetch: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing(|| "a runtime".to_owned())?;
    let late = || Error::Module(format!("it took longer than {} seconds", LONGEST.as_secs()));
    let fetched = async { tokio::time::timeout(LONGEST, fetch).await };
    runtime.block_on(fetched).map_err(|_| late())?
}

/// Reads an answer that has at most so many bytes.
async fn read(mut answer: reqwest::Response, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(said)? {
        if bytes.len() as u64 + piece.len() as u64 > most {
            return Err(Error::Module(format!("it has more than {most} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// A client's error without the address, which may hold a secret of the operator's.
fn said(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        words = format!("{words}: {inner}");
        cause = inner.source();
    }
    Error::Module(words)
}
