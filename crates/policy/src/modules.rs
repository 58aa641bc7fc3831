//! Which modules the host fetches for the imports of a machine that has no policy.
//!
//! Without a policy, imports follow the installers of packages: pip and npm need a network, so a
//! machine that has none imports nothing that the host would have to fetch. An operator allows
//! more for all machines. A policy decides by its own rules (`decide`). Addresses of `https:`
//! modules are decided by `reach` as well.

use stasis_api::Network;
use std::fmt;

/// The source of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportSource {
    /// A package of the npm registry.
    Npm,
    /// A package of JSR.
    Jsr,
    /// A file of a web server.
    Web,
}

/// Imports the operator allows to machines without a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImportRule {
    /// Nothing: imports need a network, as installers do.
    #[default]
    Network,
    /// Packages of both registries.
    Packages,
    /// Packages, and files of web servers.
    All,
}

/// Why an import is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportRefusal(ImportSource);

impl fmt::Display for ImportRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.0 {
            ImportSource::Npm => "npm: imports need",
            ImportSource::Jsr => "jsr: imports need",
            ImportSource::Web => "https: imports need",
        };
        let hint = match self.0 {
            ImportSource::Web => "imports = \"all\"",
            ImportSource::Npm | ImportSource::Jsr => "imports = \"packages\"",
        };
        write!(
            out,
            "{what} a network, and this machine has none; create it with network \"open\", use a \
             template that has the package, or ask the operator for {hint}"
        )
    }
}

impl ImportSource {
    /// The source that a name is of; none, if the host fetches no such name.
    pub fn of(specifier: &str) -> Option<ImportSource> {
        let (scheme, _) = specifier.split_once(':')?;
        match scheme {
            "npm" => Some(ImportSource::Npm),
            "jsr" => Some(ImportSource::Jsr),
            "https" => Some(ImportSource::Web),
            _ => None,
        }
    }
}

/// Whether a machine may import from a source.
pub fn verdict(
    rule: ImportRule,
    network: &Network,
    source: ImportSource,
) -> Result<(), ImportRefusal> {
    let allowed = match rule {
        _ if !network.is_none() => true,
        ImportRule::All => true,
        ImportRule::Packages => source != ImportSource::Web,
        ImportRule::Network => false,
    };
    if allowed { Ok(()) } else { Err(ImportRefusal(source)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_follow_the_network_unless_the_operator_allows_more() {
        use ImportSource::{Jsr, Npm, Web};
        let allowed =
            |rule, network| [Npm, Jsr, Web].map(|source| verdict(rule, network, source).is_ok());
        for rule in [ImportRule::Network, ImportRule::Packages, ImportRule::All] {
            assert_eq!(allowed(rule, &Network::Open), [true; 3]);
        }
        assert_eq!(allowed(ImportRule::Network, &Network::None), [false; 3]);
        assert_eq!(allowed(ImportRule::Packages, &Network::None), [true, true, false]);
        assert_eq!(allowed(ImportRule::All, &Network::None), [true; 3]);
    }

    #[test]
    fn a_name_says_where_it_comes_from() {
        let found = ["npm:a@1", "jsr:@a/b", "https://a/b.js", "http://a", "node:fs", "a", ""]
            .map(ImportSource::of);
        let (npm, jsr, web) = (ImportSource::Npm, ImportSource::Jsr, ImportSource::Web);
        assert_eq!(found, [Some(npm), Some(jsr), Some(web), None, None, None, None]);
    }
}
