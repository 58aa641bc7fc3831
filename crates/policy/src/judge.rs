//! The answer of one policy, from its own rules alone.
//!
//! `network` and `http` are one question: a connection is opened by a rule of either, and a request
//! is allowed, asked about or denied by a rule of either.

use crate::decide::{Access, DecidedBy, Decision, Denial, Identity};
use crate::document::{Policy, PolicyRule, RuleLists};
use crate::http::{HttpPattern, HttpRequest};
use crate::pattern::{NetworkPattern, RuleKind, is_private};
use crate::reach::Protocol;
use crate::rego::{self, RegoAnswer};
use std::net::SocketAddrV4;

const QUIC: u16 = 443;

/// The rule that each kind of list has for an access.
#[derive(Default)]
struct FoundRules {
    deny: Option<String>,
    ask: Option<String>,
    allow: Option<String>,
    /// The policy does not restrict it: it has no section for it.
    open: bool,
}

impl FoundRules {
    fn open() -> FoundRules {
        FoundRules { open: true, ..FoundRules::default() }
    }

    /// The answers of a section, by the rules that concern an access.
    fn of<P>(
        section: &str,
        lists: &RuleLists<P>,
        own: impl Fn(RuleKind, &P) -> bool,
    ) -> FoundRules {
        let find = |kind: RuleKind, list: &[PolicyRule<P>]| {
            let rule = list.iter().find(|rule| own(kind, &rule.pattern))?;
            Some(format!("{section}.{} {:?}", kind.word(), rule.text))
        };
        FoundRules {
            deny: find(RuleKind::Deny, &lists.deny),
            ask: find(RuleKind::Ask, &lists.ask),
            allow: find(RuleKind::Allow, &lists.allow),
            open: false,
        }
    }

    fn or(self, other: FoundRules) -> FoundRules {
        FoundRules {
            deny: self.deny.or(other.deny),
            ask: self.ask.or(other.ask),
            allow: self.allow.or(other.allow),
            open: self.open || other.open,
        }
    }
}

impl Policy {
    pub(crate) fn judge(&self, who: &Identity, access: &Access<'_>) -> Decision {
        let private = match *access {
            Access::Connect { protocol: Protocol::Udp, address, .. } if address.port() == QUIC => {
                return Decision::Deny(Denial::Quic, Some(self.by(None)));
            }
            Access::Connect { address, .. } | Access::Request { address, .. } => {
                is_private(*address.ip())
            }
            _ => false,
        };
        let other = if private { Denial::Private } else { Denial::NotAllowed };
        if let Some(v8) = &self.v8 {
            let (category, verdict) =
                if private { ("fetch", Err(other)) } else { v8.judge(who, access) };
            let by = Some(self.by(Some(category.to_owned())));
            return match verdict {
                Ok(()) => Decision::Allow(by),
                Err(denial) => Decision::Deny(denial, by),
            };
        }
        let found = self.found(access);
        match &self.rego {
            Some(rego) if found.deny.is_none() => match rego.answer(&rego::input(who, access)) {
                Ok(answer) => self.with_rego(found, answer, private, other),
                Err(failure) => Decision::Deny(Denial::RegoFailed(failure.0), Some(self.by(None))),
            },
            _ => self.answer(found, other),
        }
    }

    /// Rules of Rego count as rules of the policy. Private addresses need a rule that names them,
    /// which Rego is not.
    fn with_rego(
        &self,
        found: FoundRules,
        rego: RegoAnswer,
        private: bool,
        other: Denial,
    ) -> Decision {
        let rule = |name: &str| Some(format!("rego {name}"));
        if let Some(reason) = rego.deny {
            return Decision::Deny(Denial::Rego(reason), Some(self.by(rule("deny"))));
        }
        let open = found.open;
        let ask = found.ask.or_else(|| rego.ask.then(|| rule("ask")).flatten());
        let opens = rego.allow && !private;
        let allow = found.allow.or_else(|| opens.then(|| rule("allow")).flatten());
        self.answer(FoundRules { ask, allow, deny: None, open }, other)
    }

    fn found(&self, access: &Access<'_>) -> FoundRules {
        match *access {
            Access::Resolve { name } => self.resolve(name),
            Access::Connect { name, address, protocol, .. } => {
                let mut found = self.connect(name, address, protocol);
                let opens = |rule: &&PolicyRule<HttpPattern>| rule.pattern.opens(name, address);
                if found.allow.is_none() && protocol == Protocol::Tcp {
                    let rule = self.http.granting().find(opens);
                    found.allow = rule.map(|rule| format!("http {:?}", rule.text));
                }
                found
            }
            Access::Request { name, address, what, .. } => {
                self.connect(name, address, Protocol::Tcp).or(self.request(name, address, what))
            }
            Access::Import { specifier, .. } => {
                FoundRules::of("modules", &self.modules, |_, rule| rule.fits(specifier))
            }
            Access::Secret { secret, host, port } => {
                FoundRules::of("secrets", &self.secrets, |_, rule| rule.fits(secret, host, port))
            }
            Access::Tool { server, tool, arguments } => {
                let fits = |kind, rule: &crate::tools::ToolPattern| {
                    rule.fits(kind, server, tool, arguments)
                };
                FoundRules::of("tools", &self.tools, fits)
            }
            Access::Create { template, .. } => match &self.machines {
                Some(own) => FoundRules::of("machines", own, |_, rule| rule.fits(template)),
                None => FoundRules::open(),
            },
            Access::File(what) => match &self.files {
                Some(own) => FoundRules::of("files", own, |kind, rule| rule.fits(kind, what)),
                None => FoundRules::open(),
            },
            Access::Command(command) => match &self.commands {
                Some(own) => FoundRules::of("commands", own, |kind, rule| rule.fits(kind, command)),
                None => FoundRules::open(),
            },
        }
    }

    fn resolve(&self, name: &str) -> FoundRules {
        let allowed = self.network.allow.iter().any(|rule| rule.pattern.fits_name(name));
        // rules about some ports leave others of the name, so it may be resolved
        let own = |kind, rule: &NetworkPattern| match kind {
            RuleKind::Allow => rule.fits_name(name),
            RuleKind::Ask => rule.fits_name(name) && !allowed,
            RuleKind::Deny => rule.fits_name(name) && rule.is_total(),
        };
        let mut found = FoundRules::of("network", &self.network, own);
        if found.allow.is_none() {
            let rule = self.http.granting().find(|rule| rule.pattern.fits_name(name));
            found.allow = rule.map(|rule| format!("http {:?}", rule.text));
        }
        found
    }

    fn connect(&self, name: Option<&str>, to: SocketAddrV4, protocol: Protocol) -> FoundRules {
        let own = |kind, rule: &NetworkPattern| match kind {
            RuleKind::Allow => rule.allows(name, to, protocol),
            _ => rule.covers(name, to, protocol),
        };
        FoundRules::of("network", &self.network, own)
    }

    fn request(&self, name: Option<&str>, to: SocketAddrV4, what: HttpRequest<'_>) -> FoundRules {
        let own = |kind, rule: &HttpPattern| match kind {
            RuleKind::Allow => rule.allows(name, to, what),
            _ => rule.covers(name, to, what),
        };
        FoundRules::of("http", &self.http, own)
    }

    fn answer(&self, found: FoundRules, other: Denial) -> Decision {
        match found {
            FoundRules { deny: Some(rule), .. } => {
                Decision::Deny(Denial::Denied, Some(self.by(Some(rule))))
            }
            FoundRules { ask: Some(rule), .. } => Decision::Ask(self.by(Some(rule))),
            FoundRules { allow: Some(rule), .. } => Decision::Allow(Some(self.by(Some(rule)))),
            FoundRules { open: true, .. } => Decision::Allow(None),
            _ => Decision::Deny(other, Some(self.by(None))),
        }
    }

    fn by(&self, rule: Option<String>) -> DecidedBy {
        DecidedBy { policy: self.name.to_string(), rule }
    }
}
