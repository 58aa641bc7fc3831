//! Packages of a registry: which version a range means, and the archive of a version.
//!
//! The operator names the registry, so it may have any address. Archives are fetched from the
//! registry itself, whatever address its list has, and must match the SHA-512 in the list.

use super::cache::ModuleCache;
use super::names::{JSR_SCOPE, is_name, package};
use super::{Registries, read, said};
use crate::error::{Error, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nodejs_semver::{Range, Version};
use parking_lot::Mutex;
use reqwest::{Client, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha512};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a registry's list of versions, and of an archive.
const LARGEST_LIST: u64 = 64 << 20;
const LARGEST_ARCHIVE: u64 = 64 << 20;
/// The longest that nothing may come from the registry.
const SILENCE: Duration = Duration::from_secs(20);
/// Cache time of a list of versions, the number kept, and how long their texts are in total: a
/// parsed list takes many times as much.
const FRESH: Duration = Duration::from_secs(300);
const MOST_LISTS: usize = 64;
const ALL_LISTS: usize = 32 << 20;
/// Dependencies of one version.
const MOST_DEPENDENCIES: usize = 1000;

/// A version of a package, as first fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageVersion {
    pub name: String,
    pub version: String,
    pub integrity: String,
    /// The archive's address.
    pub archive: String,
    /// By the name that its files import: the package and the range they mean.
    pub dependencies: BTreeMap<String, Dependency>,
    /// Whether it is for this system.
    pub fits: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    pub name: String,
    pub range: String,
    /// Whether the package works without it.
    pub optional: bool,
}

impl PackageVersion {
    pub fn id(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

pub struct Registry {
    registries: Registries,
    lists: Mutex<RecentLists>,
}

/// Lists of versions that were fetched recently, by their address.
#[derive(Default)]
struct RecentLists(HashMap<String, RecentList>);

struct RecentList {
    since: Instant,
    /// Bytes of its text.
    size: usize,
    list: Arc<Value>,
}

impl RecentLists {
    fn get(&self, address: &str) -> Option<Arc<Value>> {
        let found = self.0.get(address).filter(|one| one.since.elapsed() < FRESH);
        found.map(|one| one.list.clone())
    }

    /// Keeps a list, if there is room.
    fn keep(&mut self, address: String, list: &Arc<Value>, size: usize) {
        self.0.retain(|_, one| one.since.elapsed() < FRESH);
        let kept: usize = self.0.values().map(|one| one.size).sum();
        if self.0.len() < MOST_LISTS && kept + size <= ALL_LISTS {
            let since = Instant::now();
            self.0.insert(address, RecentList { since, size, list: list.clone() });
        }
    }
}

impl Registry {
    pub fn new(registries: Registries) -> Registry {
        Registry { registries, lists: Mutex::default() }
    }

    fn address(&self, name: &str) -> &str {
        let Registries { npm, jsr } = &self.registries;
        if name.starts_with(JSR_SCOPE) { jsr } else { npm }.trim_end_matches('/')
    }

    /// The cache's name for a version of this registry.
    fn key(&self, name: &str, version: &str) -> String {
        format!("{} {name}@{version}", self.address(name))
    }

    /// A connection is not kept: the runtime that serves it ends with the import.
    fn client() -> Result<Client> {
        let client = Client::builder().read_timeout(SILENCE).pool_max_idle_per_host(0);
        client.user_agent("stasis").build().map_err(said)
    }

    /// The version that a range selects. An exact and known one is not looked up.
    pub async fn version(
        &self,
        cache: &ModuleCache,
        name: &str,
        range: &str,
    ) -> Result<PackageVersion> {
        let known = cache.pin(&self.key(name, range));
        if let Some(known) = known {
            return Ok(known);
        }
        let list = self.list(name).await?;
        let none = || Error::Module(format!("{name} has no version {range:?}"));
        let version = pick(&list, range).ok_or_else(none)?;
        let found = self.described(name, &version, &list["versions"][&version])?;
        let pinned = cache.keep_pin(&self.key(name, &version), found.clone())?;
        match pinned.integrity == found.integrity {
            true => Ok(pinned),
            false => Err(Error::Module(format!(
                "{}: the registry's hash differs from the pinned one",
                found.id()
            ))),
        }
    }

    /// The registry's list of versions.
    async fn list(&self, name: &str) -> Result<Arc<Value>> {
        let address = format!("{}/{}", self.address(name), name.replace('/', "%2f"));
        if let Some(list) = self.lists.lock().get(&address) {
            return Ok(list);
        }
        let short = "application/vnd.npm.install-v1+json";
        let answer = Self::client()?.get(&address).header("accept", short).send().await;
        let answer = answer.map_err(said)?;
        if answer.status() == reqwest::StatusCode::NOT_FOUND {
            return Err(Error::Module(format!("the registry has no package {name}")));
        }
        let bytes = read(answer.error_for_status().map_err(said)?, LARGEST_LIST).await?;
        let list: Value = serde_json::from_slice(&bytes)
            .map_err(|error| Error::Module(format!("the registry's list of {name}: {error}")))?;
        let list = Arc::new(list);
        self.lists.lock().keep(address, &list, bytes.len());
        Ok(list)
    }

    fn described(&self, name: &str, version: &str, about: &Value) -> Result<PackageVersion> {
        let hashes = about["dist"]["integrity"].as_str().unwrap_or_default();
        let integrity = hashes.split_whitespace().find(|hash| hash.starts_with("sha512-"));
        let unknown = || Error::Module(format!("{name}@{version} has no SHA-512 in the registry"));
        Ok(PackageVersion {
            name: name.to_owned(),
            version: version.to_owned(),
            integrity: integrity.ok_or_else(unknown)?.to_owned(),
            archive: self.archive(name, version, about["dist"]["tarball"].as_str()),
            dependencies: dependencies(about)?,
            fits: fits_here(about),
        })
    }

    /// The archive's address: the listed one if that is the registry's own, else the usual path.
    fn archive(&self, name: &str, version: &str, told: Option<&str>) -> String {
        let own = self.address(name);
        let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin());
        match told.filter(|told| origin(told).is_some_and(|one| Some(one) == origin(own))) {
            Some(told) => told.to_owned(),
            None => {
                let base = name.rsplit('/').next().unwrap_or(name);
                format!("{own}/{name}/-/{base}-{version}.tgz")
            }
        }
    }

    /// The archive of a version, with the hash that it has to have.
    pub async fn download(&self, of: &PackageVersion) -> Result<Vec<u8>> {
        let answer = Self::client()?.get(&of.archive).send().await.map_err(said)?;
        let bytes = read(answer.error_for_status().map_err(said)?, LARGEST_ARCHIVE).await?;
        let found = format!("sha512-{}", BASE64_STANDARD.encode(Sha512::digest(&bytes)));
        match found == of.integrity {
            true => Ok(bytes),
            false => Err(Error::Module(format!("{}: the archive's hash differs", of.id()))),
        }
    }
}

/// The version of a list that a range or a tag means: the one tagged as newest, else the newest.
fn pick(list: &Value, range: &str) -> Option<String> {
    let versions = list["versions"].as_object()?;
    let tagged = |tag: &str| {
        let version = list["dist-tags"][tag].as_str()?;
        versions.contains_key(version).then(|| version.to_owned())
    };
    let range = if range.is_empty() { "latest" } else { range };
    if let Some(version) = tagged(range).or_else(|| versions.get_key_value(range).map(key)) {
        return Some(version);
    }
    let wanted = Range::parse(range).ok()?;
    let fits = |text: &String| {
        let version = Version::parse(text).ok()?;
        version.satisfies(&wanted).then_some((version, text.clone()))
    };
    let latest = tagged("latest").and_then(|text| fits(&text));
    latest.or_else(|| versions.keys().filter_map(fits).max()).map(|(_, text)| text)
}

fn key((name, _): (&String, &Value)) -> String {
    name.clone()
}

/// The dependencies of a version.
fn dependencies(about: &Value) -> Result<BTreeMap<String, Dependency>> {
    let mut all = BTreeMap::new();
    for (field, optional) in
        [("peerDependencies", false), ("dependencies", false), ("optionalDependencies", true)]
    {
        for (alias, range) in about[field].as_object().into_iter().flatten() {
            let meta = &about["peerDependenciesMeta"][alias.as_str()]["optional"];
            if field == "peerDependencies" && meta.as_bool() == Some(true) {
                continue;
            }
            let range = range.as_str().unwrap_or_default();
            all.insert(alias.clone(), dependency(alias, range, optional)?);
        }
    }
    if all.len() > MOST_DEPENDENCIES {
        return Err(Error::Module(format!("a package has more than {MOST_DEPENDENCIES} others")));
    }
    Ok(all)
}

/// `^1.0.0`, or `npm:another@^1.0.0`. Other forms name files and repositories.
fn dependency(alias: &str, range: &str, optional: bool) -> Result<Dependency> {
    let odd = || Error::Module(format!("a package depends on {alias:?} as {range:?}"));
    if !is_name(alias) {
        return Err(odd());
    }
    if let Some(other) = range.strip_prefix("npm:") {
        let found = package(other)?;
        return Ok(Dependency { name: found.name, range: found.range, optional });
    }
    match range.contains([':', '/']) {
        true => Err(odd()),
        false => Ok(Dependency { name: alias.into(), range: range.into(), optional }),
    }
}

/// Whether a version supports this system, according to its list.
fn fits_here(about: &Value) -> bool {
    let names = |field: &str| about[field].as_array().into_iter().flatten();
    let allows = |field: &str, own: &str| {
        let mut all = names(field).filter_map(Value::as_str).peekable();
        let empty = all.peek().is_none();
        let (not, only): (Vec<&str>, Vec<&str>) = all.partition(|one| one.starts_with('!'));
        let named = only.contains(&own) || (only.is_empty() && !empty);
        empty || (named && !not.iter().any(|one| one[1..] == *own))
    };
    allows("os", "linux") && allows("cpu", "x64") && allows("libc", "glibc")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ranges_and_tags_mean_versions() {
        let list = json!({
            "dist-tags": {"latest": "1.3.0", "next": "2.0.0-rc.1", "gone": "9.9.9"},
            "versions": {"1.2.0": {}, "1.3.0": {}, "1.4.0": {}, "1.10.0": {}, "2.0.0-rc.1": {}},
        });
        let picked = |range| pick(&list, range).unwrap_or_default();
        for (range, version) in [
            ("", "1.3.0"),
            ("latest", "1.3.0"),
            ("next", "2.0.0-rc.1"),
            ("^1.2.0", "1.3.0"),
            (">=1.4", "1.10.0"),
            ("1.2.x || 1.4.x", "1.4.0"),
            ("1.2.0", "1.2.0"),
            ("*", "1.3.0"),
            ("^3", ""),
            ("gone", ""),
            ("git+ssh://x", ""),
        ] {
            assert_eq!(picked(range), version, "{range}");
        }
        assert_eq!(pick(&json!([]), "1"), None);
    }

    #[test]
    fn kept_lists_are_bounded() {
        let (mut lists, list) = (RecentLists::default(), Arc::new(json!({})));
        lists.keep("a".into(), &list, ALL_LISTS - 1);
        lists.keep("b".into(), &list, 2);
        assert!(lists.get("a").is_some() && lists.get("b").is_none());
        let mut lists = RecentLists::default();
        (0..=MOST_LISTS).for_each(|number| lists.keep(number.to_string(), &list, 1));
        assert_eq!(lists.0.len(), MOST_LISTS);
    }

    #[test]
    fn dependencies_are_packages_of_the_registry() {
        let about = json!({
            "dependencies": {"a": "^1", "b": "npm:@s/c@2"},
            "optionalDependencies": {"a": "^1", "d": "*"},
            "peerDependencies": {"e": "^3", "f": "1"},
            "peerDependenciesMeta": {"f": {"optional": true}},
        });
        let found = dependencies(&about).expect("dependencies");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b", "d", "e"]);
        assert_eq!((&*found["b"].name, &*found["b"].range), ("@s/c", "2"));
        assert!(found["a"].optional && !found["e"].optional);
        for range in ["git+https://h/x", "file:../x", "user/repo", "https://h/x.tgz"] {
            assert!(dependencies(&json!({"dependencies": {"a": range}})).is_err(), "{range}");
        }
        assert!(dependencies(&json!({"dependencies": {"../a": "1"}})).is_err());
    }

    #[test]
    fn archives_come_from_the_registry() {
        let npm = "http://127.0.0.1:4873/npm/".to_owned();
        let registry = Registry::new(Registries { npm, jsr: "https://jsr.example".into() });
        let of = |told| registry.archive("@s/a", "1.0.0", told);
        let usual = "http://127.0.0.1:4873/npm/@s/a/-/a-1.0.0.tgz";
        assert_eq!(of(Some("http://127.0.0.1:4873/x.tgz")), "http://127.0.0.1:4873/x.tgz");
        for told in [None, Some("http://169.254.169.254/a"), Some("https://127.0.0.1:4873/a")] {
            assert_eq!(of(told), usual);
        }
    }

    #[test]
    fn packages_for_other_systems_are_known() {
        assert!(fits_here(&json!({})) && fits_here(&json!({"os": ["linux", "darwin"]})));
        assert!(fits_here(&json!({"os": ["!win32"], "cpu": ["x64"]})));
        for other in
            [json!({"os": ["darwin"]}), json!({"cpu": ["!x64"]}), json!({"libc": ["musl"]})]
        {
            assert!(!fits_here(&other), "{other}");
        }
    }
}
