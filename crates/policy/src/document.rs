//! Policies as people write them (TOML, or JSON of the same shape), read and checked.
//!
//!   text ─► PolicyDocument ─► Policy: rules sorted by their text, ready to decide
//!
//! An unknown key, an invalid rule and an oversized document are errors that name the position and
//! a valid form.

use crate::commands::CommandPattern;
use crate::files::FilePattern;
use crate::glob::Glob;
use crate::http::{HttpPattern, SecretPattern};
use crate::pattern::{ModulePattern, NetworkPattern, RuleKind};
use crate::rego::{self, RegoModule};
use crate::request::AccessRequest;
use crate::tools::ToolPattern;
use crate::v8::V8Policies;
use stasis_api::{BudgetLimits, Name, PolicyDocument, PolicyRules, Ranged, TrafficLimits};
use std::net::SocketAddrV4;
use std::sync::Arc;

/// The largest document: rules, and Rego as long as it may be.
pub const LONGEST: usize = (64 << 10) + rego::LONGEST;
/// Rules in one list, and tests in a document.
const MOST: usize = 1000;
const LONGEST_DESCRIPTION: usize = 500;
const LONGEST_NAME: usize = 256;

/// The fault of a policy.
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

impl<P> Default for RuleLists<P> {
    fn default() -> RuleLists<P> {
        RuleLists { allow: Vec::new(), ask: Vec::new(), deny: Vec::new() }
    }
}

impl<P> RuleLists<P> {
    pub fn all(&self) -> impl Iterator<Item = &P> {
        self.allow.iter().chain(&self.ask).chain(&self.deny).map(|rule| &rule.pattern)
    }

    /// The rules that do not deny.
    pub fn granting(&self) -> impl Iterator<Item = &PolicyRule<P>> {
        self.allow.iter().chain(&self.ask)
    }
}

/// A policy that was read and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub name: Name,
    pub(crate) network: RuleLists<NetworkPattern>,
    pub(crate) http: RuleLists<HttpPattern>,
    pub(crate) secrets: RuleLists<SecretPattern>,
    pub(crate) tools: RuleLists<ToolPattern>,
    pub(crate) modules: RuleLists<ModulePattern>,
    pub(crate) machines: Option<RuleLists<Glob>>,
    pub(crate) files: Option<RuleLists<FilePattern>>,
    pub(crate) commands: Option<RuleLists<CommandPattern>>,
    pub(crate) rego: Option<RegoModule>,
    pub(crate) v8: Option<V8Policies>,
    traffic: TrafficLimits,
    /// Of a line of machines, and of an account.
    budgets: [BudgetLimits; 2],
    accounts: Vec<String>,
    templates: Vec<String>,
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
        Policy {
            name,
            network: RuleLists::default(),
            http: RuleLists::default(),
            secrets: RuleLists::default(),
            tools: RuleLists::default(),
            modules: RuleLists::default(),
            machines: None,
            files: None,
            commands: None,
            rego: None,
            v8: None,
            traffic: TrafficLimits::default(),
            budgets: Default::default(),
            accounts: Vec::new(),
            templates: Vec::new(),
        }
    }

    /// mcp-v8's policies, as one policy.
    pub fn of_v8(name: Name, v8: V8Policies) -> Policy {
        Policy { v8: Some(v8), ..Policy::nothing(name) }
    }

    /// A policy that allows nothing.
    pub fn unreadable(name: Name, document: &PolicyDocument) -> Policy {
        Policy {
            accounts: document.accounts.clone(),
            templates: document.templates.clone(),
            machines: document.machines.as_ref().map(|_| RuleLists::default()),
            files: document.files.as_ref().map(|_| RuleLists::default()),
            commands: document.commands.as_ref().map(|_| RuleLists::default()),
            traffic: document.traffic,
            budgets: [document.budget, document.account_budget],
            ..Policy::nothing(name)
        }
    }

    /// Checks a document: its rules and its tests can be read. The tests are not run.
    pub fn compile(name: Name, document: &PolicyDocument) -> Result<Policy, PolicyFault> {
        check_size(document)?;
        let secrets = lists("secrets", &document.secrets, SecretPattern::parse)?;
        let tools = lists("tools", &document.tools, |text, _| ToolPattern::parse(text))?;
        let modules = lists("modules", &document.modules, |text, _| ModulePattern::parse(text))?;
        let machines = optional_lists("machines", &document.machines, template_pattern)?;
        let files = optional_lists("files", &document.files, |text, _| FilePattern::parse(text))?;
        let commands = &document.commands;
        let commands = optional_lists("commands", commands, |text, _| CommandPattern::parse(text))?;
        let policy = Policy {
            network: lists("network", &document.network, NetworkPattern::parse)?,
            http: lists("http", &document.http, HttpPattern::parse)?,
            secrets,
            tools,
            modules,
            machines,
            files,
            commands,
            rego: document.rego.as_deref().map(RegoModule::compile).transpose()?,
            ..Policy::unreadable(name, document)
        };
        for (index, case) in document.test.iter().enumerate() {
            AccessRequest::of_case(case)
                .map_err(|fault| PolicyFault(format!("test[{index}]: {fault}")))?;
        }
        Ok(policy)
    }

    /// mcp-v8's policies, if it is made of these.
    pub fn v8(&self) -> Option<&V8Policies> {
        self.v8.as_ref()
    }

    /// Whether its answer to a request may take its time: Rego evaluates, or a server or a hook is
    /// asked.
    pub fn waits_for_requests(&self) -> bool {
        self.rego.is_some() || self.v8.is_some()
    }

    /// How much each machine sends and receives.
    pub fn traffic(&self) -> TrafficLimits {
        self.traffic
    }

    /// The budgets of a machine with its branches, and of an account.
    pub fn budgets(&self) -> [BudgetLimits; 2] {
        self.budgets
    }

    /// The accounts whose machines are held to it.
    pub fn accounts(&self) -> &[String] {
        &self.accounts
    }

    /// The templates whose machines are held to it.
    pub fn templates(&self) -> &[String] {
        &self.templates
    }

    /// Whether requests to a host must be read, because a rule concerns their method or path, or a
    /// secret in them. Secrets that a rule allows without a host are not known here: call `decide`
    /// for each secret that is bound to the host.
    pub fn needs_interception(&self, name: Option<&str>, to: SocketAddrV4) -> bool {
        let mut secrets = self.secrets.granting().map(|rule| &rule.pattern);
        let rego = |rego: &RegoModule| rego.intercepts(&rego::target(name, to));
        self.http.all().any(|rule| rule.is_about(name, to))
            || secrets.any(|rule| rule.is_about(name, to))
            || self.rego.as_ref().is_some_and(rego)
            || self.v8.as_ref().is_some_and(V8Policies::reads_requests)
    }
}

/// Whether every one of a machine's policies has a rule that allows a secret, for whichever host.
pub fn grants_secret(levels: &[Arc<Policy>], secret: &str) -> bool {
    let grants =
        |level: &Arc<Policy>| level.secrets.allow.iter().any(|rule| rule.pattern.is_for(secret));
    !levels.is_empty() && levels.iter().all(grants)
}

/// Whether requests to a host have to be read, by one of a machine's policies.
pub fn needs_interception(levels: &[Arc<Policy>], name: Option<&str>, to: SocketAddrV4) -> bool {
    levels.iter().any(|level| level.needs_interception(name, to))
}

/// The name of a template, with `*` in it.
fn template_pattern(text: &str, _: RuleKind) -> Result<Glob, String> {
    match text.is_empty() || text.len() > LONGEST_NAME || text.contains(char::is_whitespace) {
        true => Err("write the name of a template, such as `slim` or `team-*`".into()),
        false => Ok(Glob::new(text)),
    }
}

fn check_size(document: &PolicyDocument) -> Result<(), PolicyFault> {
    let long = |text: &String| text.len() > LONGEST_DESCRIPTION;
    if document.description.as_ref().is_some_and(long) {
        let said = format!("a description has at most {LONGEST_DESCRIPTION} bytes");
        return Err(PolicyFault(said));
    }
    for (what, list) in [("accounts", &document.accounts), ("templates", &document.templates)] {
        let odd = |name: &String| name.is_empty() || name.len() > LONGEST_NAME;
        if list.len() > MOST || list.iter().any(odd) {
            let said = format!("{what}: at most {MOST} names of at most {LONGEST_NAME} bytes");
            return Err(PolicyFault(said));
        }
    }
    document.traffic.check().map_err(|fault| PolicyFault(format!("traffic.{fault}")))?;
    document.budget.check().map_err(|fault| PolicyFault(format!("budget.{fault}")))?;
    let account = document.account_budget.check();
    account.map_err(|fault| PolicyFault(format!("account_budget.{fault}")))?;
    if document.test.len() > MOST {
        return Err(PolicyFault(format!("a policy has at most {MOST} tests")));
    }
    Ok(())
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

/// Rules of a section whose absence restricts nothing.
fn optional_lists<P>(
    section: &str,
    rules: &Option<PolicyRules>,
    parse: impl Fn(&str, RuleKind) -> Result<P, String>,
) -> Result<Option<RuleLists<P>>, PolicyFault> {
    rules.as_ref().map(|rules| lists(section, rules, parse)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::test;

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
            ("[network]\nallow = [\"2001:db8::1\"]", "IPv6 by name alone"),
            ("[network]\ndeny = [\"[2001:db8::1]:443\"]", "IPv6 by name alone"),
            ("[http]\nallow = [\"GET [2001:db8::1]:443/x\"]", "IPv6 by name alone"),
            ("[[test]]\nfetch = \"http://[::1]/\"\nexpect = \"deny\"", "IPv6 by name alone"),
            ("[files]\nallow = [\"home\"]", "files.allow[0]: \"home\""),
            ("[commands]\nallow = [\"\"]", "commands.allow[0]"),
            ("[modules]\ndeny = [\"react\"]", "modules.deny[0]: \"react\""),
            ("[[test]]\nexpect = \"allow\"", "test[0]: write one of"),
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
