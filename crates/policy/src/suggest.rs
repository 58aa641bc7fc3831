//! The rule that would have allowed what was refused.
//!
//! Refusals name what was asked for in words (`RefusedAccess::access`). A rule is written for
//! exactly that, and no wider.

use crate::commands::{CommandPattern, CommandText};
use crate::document::{Policy, PolicyFault};
use crate::files::FilePattern;
use crate::pattern::{ModulePattern, NetworkPattern, RuleKind, package_of};
use stasis_api::{PolicyDocument, PolicyVerdict, RefusedAccess};

/// A rule of a section of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestedRule {
    /// `network`, `modules`, `tools`, `files` or `commands`.
    pub section: &'static str,
    pub text: String,
}

/// The rule that would have allowed a refused access, if a rule can.
pub fn rule_for(refused: &RefusedAccess) -> Result<SuggestedRule, PolicyFault> {
    let wrong = |said: &str| PolicyFault(format!("{}: {said}", refused.access));
    if refused.policy.is_none() {
        return Err(wrong(&format!("{}; no rule changes that", refused.reason)));
    }
    if let Some(rule) = &refused.rule {
        return Err(wrong(&match refused.verdict {
            PolicyVerdict::Ask => format!("{rule} asks about it: answer, or change that rule"),
            _ => format!("{rule} denies it: a rule that allows does not beat it, so change it"),
        }));
    }
    let (what, object) = refused.access.split_once(' ').unwrap_or_default();
    let found = match what {
        "tcp" | "udp" => connection(object, what == "udp"),
        "resolve" => host(object.split(' ').next().unwrap_or_default()),
        "import" => Some(("modules", package_of(object))),
        "tool" => object.split(' ').next().map(|name| ("tools", name.to_owned())),
        // a star in a name would make it a wider rule
        "read" | "write" if !object.contains('*') => Some(("files", refused.access.clone())),
        "command" => command(object),
        _ => None,
    };
    let (section, text) = found.ok_or_else(|| wrong("no rule can be written for it"))?;
    let fits = match section {
        "network" => NetworkPattern::parse(&text, RuleKind::Allow).map(|_| ()),
        "modules" => ModulePattern::parse(&text).map(|_| ()),
        "files" => FilePattern::parse(&text).map(|_| ()),
        "commands" => CommandPattern::parse(&text).map(|_| ()),
        _ => Ok(()),
    };
    fits.map_err(PolicyFault)?;
    Ok(SuggestedRule { section, text })
}

/// `HOST:PORT (ADDRESS)`, or `ADDRESS:PORT`.
fn connection(object: &str, udp: bool) -> Option<(&'static str, String)> {
    let (target, address) = match object.split_once(" (") {
        Some((target, address)) => (target, address.trim_end_matches(')')),
        None => (object, object.rsplit_once(':')?.0),
    };
    let (name, port) = target.rsplit_once(':')?;
    // a name does not open a private address
    let private = address.parse().is_ok_and(crate::pattern::is_private);
    let host = if private { address } else { name };
    let suffix = if udp { "/udp" } else { "" };
    Some(("network", format!("{host}:{port}{suffix}")))
}

/// A command that is nothing but words.
fn command(text: &str) -> Option<(&'static str, String)> {
    let words = CommandText::Shell(text).words()?;
    Some(("commands", words.join(" ")))
}

fn host(name: &str) -> Option<(&'static str, String)> {
    (!name.is_empty()).then(|| ("network", name.to_owned()))
}

impl SuggestedRule {
    /// Adds it to a policy, which must remain one.
    pub fn add(&self, document: &mut PolicyDocument) -> Result<(), PolicyFault> {
        let rules = match self.section {
            "network" => &mut document.network,
            "modules" => &mut document.modules,
            "tools" => &mut document.tools,
            // a section that is not there restricts nothing; with one rule it would
            own => {
                let section = match own {
                    "files" => &mut document.files,
                    _ => &mut document.commands,
                };
                section.as_mut().ok_or_else(|| {
                    PolicyFault(format!("the policy has no section `{own}`: it does not refuse it"))
                })?
            }
        };
        if !rules.allow.contains(&self.text) {
            rules.allow.push(self.text.clone());
        }
        let name = "changed".parse().map_err(|_| PolicyFault("no name".into()))?;
        Policy::compile(name, document).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_api::PolicyRules;

    fn refused(access: &str) -> RefusedAccess {
        RefusedAccess {
            access: access.into(),
            verdict: PolicyVerdict::Deny,
            reason: "no rule allows it".into(),
            policy: Some("web".into()),
            rule: None,
            unreported: 0,
        }
    }

    #[test]
    fn the_rule_is_no_wider_than_what_was_refused() {
        for (access, section, text) in [
            ("tcp api.example.com:8443 (203.0.113.7)", "network", "api.example.com:8443"),
            ("udp t.example:123 (203.0.113.7)", "network", "t.example:123/udp"),
            ("tcp 203.0.113.7:443", "network", "203.0.113.7:443"),
            ("tcp db.example:5432 (10.1.2.3)", "network", "10.1.2.3:5432"),
            ("resolve api.example.com", "network", "api.example.com"),
            ("import npm:@a/b@1.2/c", "modules", "npm:@a/b"),
            ("import https://esm.sh/react", "modules", "https://esm.sh/react"),
            ("tool github.create_issue", "tools", "github.create_issue"),
            ("read /home/user/a b", "files", "read /home/user/a b"),
            ("write /x", "files", "write /x"),
            ("command git  log -1", "commands", "git log -1"),
        ] {
            let rule = rule_for(&refused(access)).expect(access);
            assert_eq!((rule.section, rule.text.as_str()), (section, text));
            let mut document = PolicyDocument {
                files: Some(PolicyRules::default()),
                commands: Some(PolicyRules::default()),
                ..PolicyDocument::default()
            };
            rule.add(&mut document).expect("a policy");
            rule.add(&mut document).expect("the same policy");
            let PolicyDocument { network, modules, tools, files, commands, .. } = document;
            let optional = [files, commands].map(Option::unwrap_or_default);
            let all = [network, modules, tools].into_iter().chain(optional);
            assert_eq!(all.map(|rules| rules.allow.len()).sum::<usize>(), 1);
        }
    }

    #[test]
    fn what_no_rule_allows_has_none() {
        let floor = RefusedAccess { policy: None, ..refused("tcp 127.0.0.1:80") };
        assert!(rule_for(&floor).expect_err("the floor").0.contains("no rule changes"));
        let rule = Some("network.deny \"*\"".into());
        let denied = RefusedAccess { rule, ..refused("tcp a.example:80 (203.0.113.7)") };
        assert!(rule_for(&denied).expect_err("denied").0.contains("network.deny"));
        for access in [
            "",
            "x",
            "import react",
            "tcp",
            "resolve ",
            "read /tmp/*",
            "write x",
            "command git log; ls",
            "command ls *",
            "command ",
        ] {
            assert!(rule_for(&refused(access)).is_err(), "{access}");
        }
        let read = rule_for(&refused("read /x")).expect("a rule");
        assert!(read.add(&mut PolicyDocument::default()).is_err(), "no section refuses it");
    }
}
