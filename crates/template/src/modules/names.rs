//! Names of modules, as imports give them: strings of a machine's.

use crate::error::{Error, Result};
use reqwest::Url;

const LONGEST: usize = 2048;
const LONGEST_NAME: usize = 214;
/// The scope that JSR's packages have in its registry for npm.
pub const JSR_SCOPE: &str = "@jsr/";

#[derive(Debug, PartialEq, Eq)]
pub enum ModuleName {
    Package(PackageName),
    Web(Url),
}

/// A package, the versions that will do, and a path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageName {
    pub name: String,
    /// A range of versions, or a tag; empty for the newest.
    pub range: String,
    /// Empty, or a path that begins with `/`.
    pub subpath: String,
}

pub fn parse(specifier: &str) -> Result<ModuleName> {
    let plain = |c: char| !c.is_control() && c != '\\';
    if specifier.len() > LONGEST || !specifier.chars().all(plain) {
        return Err(Error::Module("the name is too long, or has odd characters".into()));
    }
    match specifier.split_once(':') {
        Some(("npm", rest)) => package(rest.trim_start_matches('/')).map(ModuleName::Package),
        Some(("jsr", rest)) => jsr(rest.trim_start_matches('/')).map(ModuleName::Package),
        Some(("https", _)) => web(specifier).map(ModuleName::Web),
        _ => Err(Error::Module(format!("{specifier:?} is no npm:, jsr: or https: name"))),
    }
}

/// `name@range/path`, `@scope/name@range/path`.
pub fn package(text: &str) -> Result<PackageName> {
    let odd = || Error::Module(format!("{text:?} does not name a package"));
    let scope = if text.starts_with('@') { text.find('/').ok_or_else(odd)? + 1 } else { 0 };
    let rest = &text[scope..];
    let end = rest.find('@').or_else(|| rest.find('/')).unwrap_or(rest.len());
    let name = match rest.find('/') {
        Some(slash) if slash < end => &text[..scope + slash],
        _ => &text[..scope + end],
    };
    let after = &text[name.len()..];
    // a range has no `/`, and a path comes last
    let (range, subpath) = match after.strip_prefix('@') {
        Some(range) => range.split_at(range.find('/').unwrap_or(range.len())),
        None => ("", after),
    };
    if !is_name(name) || subpath.split('/').any(|part| part == "..") {
        return Err(odd());
    }
    Ok(PackageName { name: name.into(), range: range.trim().into(), subpath: subpath.into() })
}

/// Whether this can be the name of a package, and of a directory.
pub fn is_name(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._~-".contains(c);
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(known)
    };
    name.len() <= LONGEST_NAME
        && match name.strip_prefix('@') {
            Some(scoped) => scoped
                .split_once('/')
                .is_some_and(|(scope, own)| part(scope) && part(own.trim_start_matches('_'))),
            None => part(name),
        }
}

/// `@scope/name` of JSR is `@jsr/scope__name` in its registry for npm.
fn jsr(text: &str) -> Result<PackageName> {
    let found = package(text)?;
    let name = found.name.strip_prefix('@').and_then(|name| name.split_once('/'));
    let (scope, own) =
        name.ok_or_else(|| Error::Module("names of JSR are jsr:@scope/name".into()))?;
    Ok(PackageName { name: format!("{JSR_SCOPE}{scope}__{own}"), ..found })
}

fn web(specifier: &str) -> Result<Url> {
    let odd = |what: &str| Error::Module(what.to_owned());
    let mut url = Url::parse(specifier).map_err(|error| odd(&error.to_string()))?;
    if url.scheme() != "https" {
        return Err(odd("only https: addresses are fetched"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(odd("an address with a password is not fetched"));
    }
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, range: &str, subpath: &str) -> Option<PackageName> {
        let [name, range, subpath] = [name, range, subpath].map(str::to_owned);
        Some(PackageName { name, range, subpath })
    }

    #[test]
    fn packages_ranges_and_paths() {
        let of = |text| match parse(text) {
            Ok(ModuleName::Package(name)) => Some(name),
            _ => None,
        };
        assert_eq!(of("npm:left-pad"), named("left-pad", "", ""));
        assert_eq!(of("npm:/a@1.2.x/b/c.js"), named("a", "1.2.x", "/b/c.js"));
        assert_eq!(of("npm:@s/a@^1.0.0-b/c"), named("@s/a", "^1.0.0-b", "/c"));
        assert_eq!(of("npm:@s/a/c@d"), named("@s/a", "", "/c@d"));
        assert_eq!(of("npm:a@latest"), named("a", "latest", ""));
        assert_eq!(of("jsr:@std/path@1/posix"), named("@jsr/std__path", "1", "/posix"));
        for odd in [
            "npm:",
            "npm:..",
            "npm:../a",
            "npm:@s",
            "npm:@../a",
            "npm:a/../../b",
            "npm:a b",
            "jsr:path",
            "npm:a\0",
            "npm:-g",
            "npm:.bin",
            "node:fs",
            "npm:%2e%2e",
            "npm:a\\..\\b",
        ] {
            assert_eq!(of(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn addresses_are_https_and_without_secrets() {
        assert!(matches!(parse("https://a.example/b.js?c#d"),
            Ok(ModuleName::Web(url)) if url.as_str() == "https://a.example/b.js?c"));
        for odd in ["http://a.example", "https://u:p@a.example", "https://", "file:///etc/passwd"] {
            assert!(parse(odd).is_err(), "{odd}");
        }
        assert!(parse(&format!("https://a.example/{}", "a".repeat(LONGEST))).is_err());
    }
}
