//! Policies as people write them (TOML, or JSON of the same shape), read and checked.
//!
//!   text ─► PolicyDocument ─► Policy: rules sorted by their text, ready to decide
//!
//! An unknown key, a rule that cannot be read and a document that is too large are errors that say
//! where the fault is and what to write.

use crate::decide::{Access, Decision, Subject, decide};
use crate::modules::{ImportRule, ImportSource};
use crate::pattern::{ModulePattern, NetworkPattern, RuleKind, normal_name};
use crate::reach::Protocol;
use stasis_api::{
    ExplainQuery, Name, Network, PolicyCase, PolicyDocument, PolicyRules, PolicyVerdict,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use url::{Host, Url};

/// The largest document.
pub const LONGEST: usize = 64 << 10;
/// Rules in one list, and tests in a document.
const MOST: usize = 1000;
const LONGEST_DESCRIPTION: usize = 500;

/// The address that stands for any public one, where only a name is known.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// What is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFault(pub String);

impl std::fmt::Display for PolicyFault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for PolicyFault {}

/// A rule with the text it was written as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyRule<P> {
    pub text: String,
    pub pattern: P,
}

/// Rules of one kind: without an order, because they are sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleLists<P> {
    pub allow: Vec<PolicyRule<P>>,
    pub ask: Vec<PolicyRule<P>>,
    pub deny: Vec<PolicyRule<P>>,
}

/// A policy that was read and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub name: Name,
    pub(crate) network: RuleLists<NetworkPattern>,
    pub(crate) modules: RuleLists<ModulePattern>,
}

/// Reads a policy from TOML, or from JSON if it begins with a brace.
pub fn parse(text: &str) -> Result<PolicyDocument, PolicyFault> {
    if text.len() > LONGEST {
        return Err(PolicyFault(format!("a policy has at most {LONGEST} bytes")));
    }
    let document = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| error.to_string()),
        false => toml::from_str(text).map_err(|error| error.to_string()),
    };
    document.map_err(|said| PolicyFault(said.trim_end().to_owned()))
}

impl Policy {
    /// A policy without rules, which allows nothing.
    pub fn nothing(name: Name) -> Policy {
        let network = RuleLists { allow: Vec::new(), ask: Vec::new(), deny: Vec::new() };
        let modules = RuleLists { allow: Vec::new(), ask: Vec::new(), deny: Vec::new() };
        Policy { name, network, modules }
    }

    /// Checks a document: its rules and its tests can be read. The tests are not run.
    pub fn compile(name: Name, document: &PolicyDocument) -> Result<Policy, PolicyFault> {
        let long = |text: &String| text.len() > LONGEST_DESCRIPTION;
        if document.description.as_ref().is_some_and(long) {
            let said = format!("a description has at most {LONGEST_DESCRIPTION} bytes");
            return Err(PolicyFault(said));
        }
        if document.test.len() > MOST {
            return Err(PolicyFault(format!("a policy has at most {MOST} tests")));
        }
        let network = lists("network", &document.network, NetworkPattern::parse)?;
        let modules = lists("modules", &document.modules, |text, _| ModulePattern::parse(text))?;
        for (index, case) in document.test.iter().enumerate() {
            let query = query(case);
            AccessRequest::of(&query)
                .map_err(|fault| PolicyFault(format!("test[{index}]: {fault}")))?;
        }
        Ok(Policy { name, network, modules })
    }
}

fn lists<P>(
    section: &str,
    rules: &PolicyRules,
    parse: impl Fn(&str, RuleKind) -> Result<P, String>,
) -> Result<RuleLists<P>, PolicyFault> {
    let list = |kind: RuleKind, texts: &[String]| {
        if texts.len() > MOST {
            let word = kind.word();
            return Err(PolicyFault(format!("{section}.{word} has more than {MOST} rules")));
        }
        let mut rules = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let at = |said| PolicyFault(format!("{section}.{}[{index}]: {said}", kind.word()));
            let rule = PolicyRule { pattern: parse(text, kind).map_err(at)?, text: text.clone() };
            rules.push(rule);
        }
        rules.sort_by(|one: &PolicyRule<P>, other| one.text.cmp(&other.text));
        Ok(rules)
    };
    Ok(RuleLists {
        allow: list(RuleKind::Allow, &rules.allow)?,
        ask: list(RuleKind::Ask, &rules.ask)?,
        deny: list(RuleKind::Deny, &rules.deny)?,
    })
}

/// A request that somebody wrote down: of a test, or to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRequest {
    name: Option<String>,
    address: SocketAddrV4,
    protocol: Protocol,
    import: Option<(ImportSource, String)>,
}

impl AccessRequest {
    pub fn of(query: &ExplainQuery) -> Result<AccessRequest, PolicyFault> {
        match (&query.fetch, &query.import) {
            (Some(url), None) => AccessRequest::fetch(url).map_err(PolicyFault),
            (None, Some(specifier)) => {
                let source = ImportSource::of(specifier).ok_or_else(|| {
                    PolicyFault("`import` is a module: npm:, jsr: or https:".into())
                })?;
                let address = SocketAddrV4::new(PUBLIC, 443);
                let import = Some((source, specifier.clone()));
                Ok(AccessRequest { name: None, address, protocol: Protocol::Tcp, import })
            }
            _ => Err(PolicyFault("write either `fetch` or `import`".into())),
        }
    }

    fn fetch(text: &str) -> Result<AccessRequest, String> {
        let shown: String = text.chars().take(80).collect();
        let wrong = |said: &str| format!("{shown:?}: {said}");
        let url = Url::parse(text).map_err(|error| wrong(&format!("not a URL: {error}")))?;
        let protocol = match url.scheme() {
            "http" | "https" | "ws" | "wss" | "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            _ => return Err(wrong("the scheme is http, https, ws, wss, tcp or udp")),
        };
        let port = url.port_or_known_default().ok_or_else(|| wrong("it needs a port"))?;
        let host = url.host().ok_or_else(|| wrong("it has no host"))?;
        let (name, ip) = match host {
            Host::Ipv6(_) => return Err(wrong("machines have IPv4 only")),
            Host::Ipv4(ip) => (None, ip),
            // other schemes are not parsed as far
            Host::Domain(name) => match name.parse::<Ipv4Addr>() {
                Ok(ip) => (None, ip),
                Err(_) => {
                    let name = normal_name(name).ok_or_else(|| wrong("its host is no name"))?;
                    (Some(name), PUBLIC)
                }
            },
        };
        let address = SocketAddrV4::new(ip, port);
        Ok(AccessRequest { name, address, protocol, import: None })
    }

    /// What it is about. An address that it does not name is taken to be public, and none of the
    /// host's own.
    pub fn access(&self) -> Access<'_> {
        match &self.import {
            Some((source, specifier)) => Access::Import { source: *source, specifier },
            None => Access::Connect {
                name: self.name.as_deref(),
                address: self.address,
                protocol: self.protocol,
                own: false,
            },
        }
    }
}

fn query(case: &PolicyCase) -> ExplainQuery {
    ExplainQuery { fetch: case.fetch.clone(), import: case.import.clone() }
}

/// A test of a policy that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedCase {
    pub index: usize,
    pub request: String,
    pub expected: PolicyVerdict,
    pub decision: Decision,
}

/// Runs the tests of a document against its policy alone. How many there are, and which failed.
pub fn test(document: &PolicyDocument) -> Result<(usize, Vec<FailedCase>), PolicyFault> {
    let name: Name = "tested".parse().map_err(|_| PolicyFault("no name".into()))?;
    let policy = Arc::new(Policy::compile(name.clone(), document)?);
    let (network, levels) = (Network::Policy(name), [policy]);
    let subject = Subject { network: &network, levels: &levels, imports: ImportRule::Network };
    let mut failed = Vec::new();
    for (index, case) in document.test.iter().enumerate() {
        let query = query(case);
        let decision = decide(&subject, &AccessRequest::of(&query)?.access());
        if decision.verdict() != case.expect {
            let request = query.fetch.or(query.import).unwrap_or_default();
            failed.push(FailedCase { index, request, expected: case.expect, decision });
        }
    }
    Ok((document.test.len(), failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = r#"
        description = "packages, and our API"
        [network]
        allow = ["pypi.org", "*.pythonhosted.org", "api.example.com:443", "10.1.0.0/16:5432"]
        deny = ["legacy.pythonhosted.org"]
        [modules]
        allow = ["npm:*"]
        deny = ["npm:left-pad"]
        [[test]]
        fetch = "https://pypi.org/simple/"
        expect = "allow"
        [[test]]
        fetch = "https://legacy.pythonhosted.org/"
        expect = "deny"
        [[test]]
        fetch = "tcp://10.1.2.3:5432"
        expect = "allow"
        [[test]]
        import = "npm:left-pad@1"
        expect = "deny"
    "#;

    #[test]
    fn toml_and_json_say_the_same() {
        let document = parse(WEB).expect("a policy");
        let json = serde_json::to_string(&document).expect("JSON");
        assert_eq!(parse(&json).expect("the same"), document);
        assert_eq!(test(&document).expect("it can be read"), (4, vec![]));
    }

    #[test]
    fn a_failed_test_names_the_rule() {
        let wrong = WEB.replacen("expect = \"deny\"", "expect = \"allow\"", 1);
        let (count, failed) = test(&parse(&wrong).expect("a policy")).expect("it can be read");
        assert_eq!((count, failed.len(), failed[0].index), (4, 1, 1));
        let said = format!("{:?}", failed[0].decision);
        assert!(said.contains("legacy.pythonhosted.org"), "{said}");
    }

    #[test]
    fn faults_say_where_and_what_to_write() {
        let said = |text: &str| {
            let name: Name = "web".parse().expect("a name");
            let compiled = parse(text).and_then(|document| Policy::compile(name, &document));
            compiled.expect_err(text).to_string()
        };
        for (text, hint) in [
            ("[netwrok]\nallow = []", "expected one of"),
            ("[network]\nallows = []", "expected one of"),
            ("[network]\nallow = \"a\"", "expected a sequence"),
            ("{\"network\": {\"alow\": []}}", "unknown field `alow`"),
            ("network = []", "invalid type"),
            (
                "[network]\nallow = [\"a.example\", \"b example\"]",
                "network.allow[1]: \"b example\"",
            ),
            ("[modules]\ndeny = [\"react\"]", "modules.deny[0]: \"react\""),
            ("[[test]]\nexpect = \"allow\"", "test[0]: write either"),
            ("[[test]]\nfetch = \"ftp://a\"\nexpect = \"allow\"", "test[0]: \"ftp://a\""),
            ("[[test]]\nfetch = \"https://a\"\nexpect = \"maybe\"", "unknown variant"),
        ] {
            assert!(said(text).contains(hint), "{text}: {}", said(text));
        }
        let many = format!("[network]\nallow = [{}]", "\"a.example\",".repeat(1001));
        assert!(said(&many).contains("more than 1000"));
        assert!(said(&" ".repeat(LONGEST + 1)).contains("at most"));
    }
}
