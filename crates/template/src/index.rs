//! Where packages come from: the settings of the host's installers, translated for programs that
//! run in a jail. No index is named here; without settings, the installers' own default holds.

use stasis_agent::environment::IndexSettings;
use stasis_sys::jail::Jail;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

/// Variables for any installer, passed on as they are.
const PASSED: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];
/// Where any program finds certificates.
const CERTIFICATES: &str = "SSL_CERT_FILE";

/// The settings of a language's installer on this host.
#[derive(Default)]
pub struct HostIndex {
    about: Option<&'static IndexSettings>,
    /// Its settings, by key.
    settings: BTreeMap<String, String>,
}

impl HostIndex {
    /// Asks the host's installer for all it was told, in files and in variables.
    pub fn ask(about: &'static IndexSettings, interpreter: Option<&Path>) -> HostIndex {
        let output = interpreter.map(|program| Command::new(program).args(about.list).output());
        let text =
            output.and_then(|said| Some(String::from_utf8_lossy(&said.ok()?.stdout).into_owned()));
        let settings = parse(&text.unwrap_or_default(), about.sections);
        HostIndex { about: Some(about), settings }
    }

    /// The variables for an installer, and a jail that shows it the files they name.
    pub fn variables(&self, mut jail: Jail) -> io::Result<(BTreeMap<String, String>, Jail)> {
        let mut env = BTreeMap::new();
        let translated = self.about.map_or(&[][..], |about| about.translated);
        for (key, names) in translated {
            let Some(value) = self.settings.get(*key) else { continue };
            env.extend(names.iter().map(|name| ((*name).to_owned(), value.clone())));
        }
        let own = self.about.map_or(&[][..], |about| about.passed);
        let set = |name: &&str| Some(((*name).to_owned(), std::env::var(name).ok()?));
        env.extend(PASSED.iter().chain(own).filter_map(set));
        if let Some(certificates) = self.certificates() {
            jail = jail.show(&certificates, "cert")?;
            let own = self.about.map_or(&[][..], |about| about.certificate.1);
            for name in std::iter::once(&CERTIFICATES).chain(own) {
                env.insert((*name).to_owned(), "/run/cert".to_owned());
            }
        }
        let (links, jail) = self.links(jail)?;
        let names = self.about.map_or(&[][..], |about| about.links.1);
        for (name, between) in names.iter().filter(|_| !links.is_empty()) {
            env.insert((*name).to_owned(), links.join(between));
        }
        Ok((env, jail))
    }

    fn certificates(&self) -> Option<String> {
        let own = self.about.and_then(|about| self.settings.get(about.certificate.0));
        let file = own.cloned().or_else(|| std::env::var(CERTIFICATES).ok());
        file.filter(|path| Path::new(path).is_file())
    }

    /// Addresses as they are, directories shown in the jail.
    fn links(&self, mut jail: Jail) -> io::Result<(Vec<String>, Jail)> {
        let mut links = Vec::new();
        let all = self.about.and_then(|about| self.settings.get(about.links.0));
        let all = all.map(String::as_str).unwrap_or_default();
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
}

/// `global.index-url='https://...'`; the sections are in the order of their weight.
fn parse(text: &str, sections: &[&str]) -> BTreeMap<String, String> {
    let weight = |section: &str| sections.iter().position(|own| *own == section);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_weigh_more_than_files() {
        let text = ":env:.index-url='https://b.example/simple'\n\
            global.index-url='https://a.example/simple'\n\
            global.extra-index-url='https://c.example\\nhttps://d.example'\n\
            freeze.timeout='10'\n";
        let settings = parse(text, &["global", "install", ":env:"]);
        assert_eq!(settings["index-url"], "https://b.example/simple");
        assert_eq!(settings["extra-index-url"], "https://c.example https://d.example");
        assert_eq!(settings.len(), 2);
    }
}
