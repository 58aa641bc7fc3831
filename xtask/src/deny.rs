//! `cargo xtask deny`: other people's crates, held to `deny.toml`.
//!
//!   cargo metadata ─► crates of an ordinary build ─► licences, bans, versions, sources ─► findings
//!
//! The file has cargo-deny's format, and the checked keys have the same meaning there.

use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::Command;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Debug, Deserialize)]
pub struct DenyRules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Named>,
    skip: Vec<Named>,
}

#[derive(Debug, Deserialize)]
struct Named {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

/// A crate that is not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    pub name: String,
    pub version: String,
    pub license: Option<String>,
    pub source: String,
}

/// The violations, after the number of crates checked.
pub fn run(root: &Path) -> io::Result<(usize, Vec<String>)> {
    let text = std::fs::read_to_string(root.join("deny.toml"))?;
    let rules: DenyRules = toml::from_str(&text).map_err(io::Error::other)?;
    let crates = foreign(&metadata(root, &rules.graph.targets)?);
    Ok((crates.len(), check(&rules, &crates)))
}

fn metadata(root: &Path, targets: &[String]) -> io::Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--format-version", "1"]).current_dir(root);
    command.args(targets.iter().flat_map(|target| ["--filter-platform", target]));
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("cargo metadata: {said}")));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Crates of a build, including those that only tests and build scripts use.
pub fn foreign(metadata: &Value) -> Vec<Foreign> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes = list(&metadata["resolve"]["nodes"]);
    let used: BTreeSet<String> = nodes.iter().map(|node| text(&node["id"])).collect();
    let packages = list(&metadata["packages"]);
    let theirs = packages.iter().filter(|one| {
        used.contains(one["id"].as_str().unwrap_or_default()) && one["source"].is_string()
    });
    theirs
        .map(|one| Foreign {
            name: text(&one["name"]),
            version: text(&one["version"]),
            license: one["license"].as_str().map(str::to_owned),
            source: text(&one["source"]),
        })
        .collect()
}

pub fn check(rules: &DenyRules, crates: &[Foreign]) -> Vec<String> {
    let mut findings = Vec::new();
    for one in crates {
        let mut say = |what: String| findings.push(format!("{} {}: {what}", one.name, one.version));
        if let Some(what) = license(&rules.licenses.allow, one.license.as_deref()) {
            say(what);
        }
        if let Some(ban) = rules.bans.deny.iter().find(|ban| matches(&ban.name, one)) {
            say(format!("banned: {}", ban.reason));
        }
        if one.source != CRATES_IO {
            say(format!("not from crates.io: {}", one.source));
        }
    }
    findings.extend(duplicates(&rules.bans.skip, crates));
    findings
}

/// The fault of a licence, if any.
fn license(allowed: &[String], license: Option<&str>) -> Option<String> {
    let Some(license) = license else { return Some("names no licence".into()) };
    let parsed = spdx::Expression::parse_mode(license, spdx::ParseMode::LAX);
    let Ok(parsed) = parsed else { return Some(format!("{license:?} is not a licence")) };
    let is_met = parsed.evaluate(|one| allowed.contains(&one.to_string()));
    (!is_met).then(|| format!("licence {license} is not allowed"))
}

fn duplicates(skip: &[Named], crates: &[Foreign]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&Foreign>> = BTreeMap::new();
    crates.iter().for_each(|one| versions.entry(&one.name).or_default().push(one));
    let several: Vec<&Vec<&Foreign>> = versions.values().filter(|all| all.len() > 1).collect();
    let is_skipped = |one: &Foreign| skip.iter().any(|own| matches(&own.name, one));
    let mut findings = Vec::new();
    for all in &several {
        let left: Vec<&str> =
            all.iter().filter(|one| !is_skipped(one)).map(|one| one.version.as_str()).collect();
        if left.len() > 1 {
            findings.push(format!("{}: versions {}", all[0].name, left.join(", ")));
        }
    }
    let is_needed =
        |own: &&Named| several.iter().any(|all| all.iter().any(|one| matches(&own.name, one)));
    let idle = skip.iter().filter(|own| !is_needed(own));
    findings.extend(idle.map(|own| format!("deny.toml skips {}, which is not there", own.name)));
    findings
}

/// Whether `name` or `name@version`, whose version may end early, means a crate.
fn matches(named: &str, one: &Foreign) -> bool {
    let (name, version) = named.split_once('@').map_or((named, None), |(n, v)| (n, Some(v)));
    let begins = |version: &str| {
        one.version
            .strip_prefix(version)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    name == one.name && version.is_none_or(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        [graph]
        targets = ["x"]
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        [bans]
        deny = [{ crate = "bad", reason = "good is used" }]
        skip = [{ crate = "old@0.1", reason = "others" }]
    "#;

    fn one(name: &str, version: &str, license: &str) -> Foreign {
        Foreign {
            name: name.into(),
            version: version.into(),
            license: (!license.is_empty()).then(|| license.into()),
            source: CRATES_IO.into(),
        }
    }

    fn findings(crates: &[Foreign]) -> Vec<String> {
        let rules: DenyRules = toml::from_str(RULES).expect("rules");
        let old = [one("old", "0.1.7", "MIT"), one("old", "0.2.0", "MIT")];
        check(&rules, &[crates, &old].concat())
    }

    #[test]
    fn licences_are_read_as_expressions() {
        for good in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR ISC) AND Apache-2.0"]
        {
            assert_eq!(findings(&[one("a", "1.0.0", good)]), [""; 0], "{good}");
        }
        for bad in ["GPL-3.0-only", "MIT AND ISC", "", "whatever I like"] {
            assert_eq!(findings(&[one("a", "1.0.0", bad)]).len(), 1, "{bad}");
        }
    }

    #[test]
    fn bans_versions_and_sources() {
        assert_eq!(findings(&[one("bad", "1.0.0", "MIT")]), ["bad 1.0.0: banned: good is used"]);
        let twice = [one("a", "1.0.0", "MIT"), one("a", "2.0.0", "MIT")];
        assert_eq!(findings(&twice), ["a: versions 1.0.0, 2.0.0"]);
        let third = [one("old", "0.3.0", "MIT")];
        assert_eq!(findings(&third), ["old: versions 0.3.0, 0.2.0"]);
        let elsewhere = Foreign { source: "git+https://x".into(), ..one("a", "1.0.0", "MIT") };
        assert_eq!(findings(&[elsewhere]), ["a 1.0.0: not from crates.io: git+https://x"]);
        let rules: DenyRules = toml::from_str(RULES).expect("rules");
        assert_eq!(check(&rules, &[]), ["deny.toml skips old@0.1, which is not there"]);
    }
}
