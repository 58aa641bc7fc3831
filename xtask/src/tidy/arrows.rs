//! Which crate may use which. Dependencies point one way:
//!
//!   cli ─► bench ─► command, server
//!   cli ─► server ─► machine ─► engine ─► spawner ─► sys
//!             │         │          ├────► store ─► api, fault, image, sandbox, sys
//!             ▼         │          └────► sys      image, sys, protocol: nothing of ours
//!            api        ├────► template ─► engine, agent
//!                       ├────► records ─► api, fault, image
//!                       ├────► agent ─► protocol
//!                       ├────► egress ─► policy, sandbox, sys
//!                       ├────► policy ─► api
//!                       └────► tools     upstream MCP servers; nothing of ours

use super::Finding;
use serde_json::Value;
use std::io;
use std::path::Path;
use std::process::Command;

const ARROWS: &[(&str, &[&str])] = &[
    ("stasis-sys", &[]),
    ("stasis-image", &[]),
    ("stasis-spawner", &["stasis-sys"]),
    ("stasis-sandbox", &["stasis-sys"]),
    ("stasis-fault", &["stasis-sys"]),
    (
        "stasis-store",
        &["stasis-api", "stasis-fault", "stasis-image", "stasis-sandbox", "stasis-sys"],
    ),
    (
        "stasis-engine",
        &[
            "stasis-fault",
            "stasis-image",
            "stasis-sandbox",
            "stasis-spawner",
            "stasis-store",
            "stasis-sys",
        ],
    ),
    ("stasis-policy", &["stasis-api"]),
    // its threads restrict themselves
    (
        "stasis-egress",
        &["stasis-api", "stasis-policy", "stasis-sandbox", "stasis-secrets", "stasis-sys"],
    ),
    ("stasis-secrets", &["stasis-api", "stasis-policy"]),
    ("stasis-protocol", &[]),
    ("stasis-tools", &[]),
    ("stasis-agent", &["stasis-protocol", "stasis-sys"]),
    ("stasis-api", &[]),
    // its tests mount a small disk
    ("stasis-records", &["stasis-api", "stasis-fault", "stasis-image", "stasis-sys"]),
    (
        "stasis-template",
        &["stasis-protocol", "stasis-agent", "stasis-egress", "stasis-engine", "stasis-sys"],
    ),
    (
        "stasis-machine",
        &[
            "stasis-api",
            "stasis-protocol",
            "stasis-agent",
            "stasis-records",
            "stasis-template",
            "stasis-tools",
            "stasis-engine",
            "stasis-egress",
            "stasis-policy",
            "stasis-secrets",
            "stasis-sys",
            "stasis-testbed",
        ],
    ),
    (
        "stasis-mcp",
        &[
            "stasis-agent",
            "stasis-api",
            "stasis-forkd",
            "stasis-machine",
            "stasis-mcpv8",
            "stasis-testbed",
        ],
    ),
    // its tests make a run hang
    (
        "stasis-mcpv8",
        &["stasis-api", "stasis-fault", "stasis-machine", "stasis-policy", "stasis-testbed"],
    ),
    (
        "stasis-forkd",
        &["stasis-agent", "stasis-api", "stasis-machine", "stasis-template", "stasis-testbed"],
    ),
    (
        "stasis-server",
        &[
            "stasis-api",
            "stasis-forkd",
            "stasis-machine",
            "stasis-mcp",
            "stasis-mcpv8",
            "stasis-sandbox",
            "stasis-template",
            "stasis-testbed",
        ],
    ),
    // only tests use it
    ("stasis-testbed", &["stasis-api", "stasis-machine", "stasis-sys", "stasis-template"]),
    ("stasis-command", &["stasis-api", "stasis-engine", "stasis-machine", "stasis-template"]),
    (
        "stasis-bench",
        &[
            "stasis-api",
            "stasis-command",
            "stasis-engine",
            "stasis-machine",
            "stasis-policy",
            "stasis-server",
            "stasis-sys",
            "stasis-template",
            "stasis-testbed",
        ],
    ),
    (
        "stasis-cli",
        &[
            "stasis-agent",
            "stasis-api",
            "stasis-bench",
            "stasis-command",
            "stasis-engine",
            "stasis-machine",
            "stasis-mcp",
            "stasis-mcpv8",
            // checks and tests files without a service
            "stasis-policy",
            "stasis-server",
            "stasis-records",
            "stasis-sandbox",
            "stasis-sys",
            "stasis-template",
            "stasis-testbed",
        ],
    ),
    (
        "stasis-fuzz",
        &[
            "stasis-api",
            "stasis-egress",
            "stasis-engine",
            "stasis-image",
            "stasis-policy",
            "stasis-protocol",
        ],
    ),
    // knows the service by its document alone; its tests start one
    ("stasis-sdk", &["stasis-testbed"]),
    ("xtask", &[]),
];

/// A crate of the workspace and its dependencies within the workspace, in tests and build scripts
/// too.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub uses: Vec<String>,
}

pub fn read(root: &Path) -> io::Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(cargo).args(arguments).current_dir(root).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("cargo metadata: {said}")));
    }
    Ok(parse(&serde_json::from_slice(&output.stdout)?))
}

/// The packages in the answer of `cargo metadata`.
pub fn parse(metadata: &Value) -> Vec<Package> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let is_ours = |name: &String| name.starts_with("stasis-");
    let package = |value: &Value| Package {
        name: name(value),
        uses: list(&value["dependencies"]).iter().map(name).filter(is_ours).collect(),
    };
    list(&metadata["packages"]).iter().map(package).collect()
}

pub fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let mut say = |what| findings.push(Finding::new(&package.name, 0, what));
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
            say("a crate that the arrows in xtask do not know".to_owned());
            continue;
        };
        for used in package.uses.iter().filter(|used| !allowed.contains(&used.as_str())) {
            say(format!("must not use {used}: dependencies point one way"));
        }
    }
    findings
}
