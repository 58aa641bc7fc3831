//! Where packages come from: what the host's pip and uv are told, translated for programs that run
//! in a jail. No index is named here; without settings, the installers' own default holds.

use stasis_sys::jail::Jail;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

/// Passed on as they are.
const PASSED: [&str; 16] = [
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_INDEX_STRATEGY",
    "UV_INSECURE_HOST",
    "UV_HTTP_TIMEOUT",
    "UV_OFFLINE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];
/// A setting of pip's, and the variables that say the same to uv and to pip.
const TRANSLATED: [(&str, &[&str]); 5] = [
    ("index-url", &["UV_DEFAULT_INDEX", "PIP_INDEX_URL"]),
    ("extra-index-url", &["UV_INDEX", "PIP_EXTRA_INDEX_URL"]),
    ("trusted-host", &["UV_INSECURE_HOST", "PIP_TRUSTED_HOST"]),
    ("default-timeout", &["UV_HTTP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"]),
    ("timeout", &["UV_HTTP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"]),
];

/// Settings of pip's, by key.
pub type PipSettings = BTreeMap<String, String>;

/// Asks the host's pip for all it was told, in files and in variables.
pub fn of_host(python: Option<&Path>) -> PipSettings {
    let Some(python) = python else { return PipSettings::new() };
    let output = Command::new(python).args(["-m", "pip", "config", "list"]).output();
    parse(&output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default())
}

/// `global.index-url='https://...'`; the sections are in the order of their weight.
fn parse(text: &str) -> PipSettings {
    let weight = |section: &str| ["global", "install", ":env:"].iter().position(|s| *s == section);
    let mut lines: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            let (section, key) = name.rsplit_once('.')?;
            Some((weight(section)?, key.to_owned(), value.trim_matches(['\'', '"']).to_owned()))
        })
        .collect();
    lines.sort_by_key(|(weight, ..)| *weight);
    lines.into_iter().map(|(_, key, value)| (key, value.replace("\\n", " "))).collect()
}

/// The variables for an installer, and a jail that shows it the files they name.
pub fn variables(
    settings: &PipSettings,
    mut jail: Jail,
) -> io::Result<(BTreeMap<String, String>, Jail)> {
    let mut env = BTreeMap::new();
    for (key, names) in TRANSLATED {
        for (name, value) in names.iter().zip(std::iter::repeat(settings.get(key))) {
            env.extend(value.map(|value| ((*name).to_owned(), value.clone())));
        }
    }
    env.extend(
        PASSED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))),
    );
    if let Some(cert) = certificate(settings) {
        jail = jail.show(&cert, "cert")?;
        for name in ["SSL_CERT_FILE", "PIP_CERT"] {
            env.insert(name.to_owned(), "/run/cert".to_owned());
        }
    }
    let (links, jail) = find_links(settings, jail)?;
    if !links.is_empty() {
        env.insert("UV_FIND_LINKS".to_owned(), links.join(","));
        env.insert("PIP_FIND_LINKS".to_owned(), links.join(" "));
    }
    Ok((env, jail))
}

fn certificate(settings: &PipSettings) -> Option<String> {
    let own = settings.get("cert").cloned();
    own.or_else(|| std::env::var("SSL_CERT_FILE").ok()).filter(|path| Path::new(path).is_file())
}

/// Addresses as they are, directories shown in the jail.
fn find_links(settings: &PipSettings, mut jail: Jail) -> io::Result<(Vec<String>, Jail)> {
    let mut links = Vec::new();
    let all = settings.get("find-links").map(String::as_str).unwrap_or_default();
    for (index, link) in all.split([' ', ',']).filter(|link| !link.is_empty()).enumerate() {
        let path = link.strip_prefix("file://").unwrap_or(link);
        if Path::new(path).is_dir() {
            jail = jail.show(path, &format!("links{index}"))?;
            links.push(format!("/run/links{index}"));
        } else if link.contains("://") {
            links.push(link.to_owned());
        }
    }
    Ok((links, jail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_weigh_more_than_files() {
        let text = ":env:.index-url='https://b.example/simple'\n\
            global.index-url='https://a.example/simple'\n\
            global.extra-index-url='https://c.example\\nhttps://d.example'\n\
            freeze.timeout='10'\n";
        let settings = parse(text);
        assert_eq!(settings["index-url"], "https://b.example/simple");
        assert_eq!(settings["extra-index-url"], "https://c.example https://d.example");
        assert_eq!(settings.len(), 2);
    }
}
