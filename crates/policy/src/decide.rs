//! The one decision about what a machine may reach, resolve and import.
//!
//!   access ─► network? ─► floor ─► every level: host's policy, machine's policy ─► the narrowest
//!
//! A level is a named policy, and denies what it does not allow. The answer is the narrowest of all
//! levels, so a policy cannot allow what the one above it does not. Within a policy, `deny` beats
//! `ask` and `ask` beats `allow`, in whatever order they are written. No policy lifts the floor.

use crate::document::{Policy, PolicyRule, RuleLists};
use crate::modules::{self, ImportRefusal, ImportRule, ImportSource};
use crate::pattern::{ModulePattern, NetworkPattern, RuleKind, is_private};
use crate::reach::{self, Protocol, Refusal};
use stasis_api::{Explanation, Network, PolicyVerdict};
use std::fmt;
use std::net::SocketAddrV4;
use std::sync::Arc;

const QUIC: u16 = 443;

/// Who asks: a machine with its network, and the policies that it is held to.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub network: &'a Network,
    pub levels: &'a [Arc<Policy>],
    /// What the operator allows to machines without a network.
    pub imports: ImportRule,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// The addresses of a name.
    Resolve {
        name: &'a str,
    },
    Connect {
        /// The name that the address was resolved from, or that the machine claims in TLS.
        name: Option<&'a str>,
        address: SocketAddrV4,
        protocol: Protocol,
        /// Whether it is one of the host's own addresses.
        own: bool,
    },
    Import {
        source: ImportSource,
        specifier: &'a str,
    },
}

/// Why something is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// The floor: no policy allows it.
    Floor(Refusal),
    NoNetwork,
    /// The policy of the machine, or of the host, does not exist.
    NoPolicy(String),
    /// A rule denies it.
    Denied,
    /// No rule allows it.
    NotAllowed,
    /// No rule names this private address.
    Private,
    /// UDP on port 443, where names are hidden. Clients fall back to TCP.
    Quic,
    /// The name in TLS is encrypted.
    HiddenName,
    /// What begins as TLS is none.
    BadHello,
    Import(ImportRefusal),
}

/// The rule of a policy that decides; without a rule, the policy itself does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedBy {
    pub policy: String,
    pub rule: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allow(Option<DecidedBy>),
    Ask(DecidedBy),
    Deny(Denial, Option<DecidedBy>),
}

impl fmt::Display for Denial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denial::Floor(refusal) => write!(out, "{refusal}: no policy allows it"),
            Denial::NoNetwork => out.write_str("the machine has no network"),
            Denial::NoPolicy(name) => write!(out, "policy `{name}` does not exist"),
            Denial::Denied => out.write_str("a rule denies it"),
            Denial::NotAllowed => out.write_str("no rule allows it"),
            Denial::Private => out.write_str("a private address, which no rule names"),
            Denial::Quic => out.write_str("QUIC hides its names; clients fall back to TCP"),
            Denial::HiddenName => out.write_str("its name is encrypted (ECH)"),
            Denial::BadHello => out.write_str("it begins like TLS and is none"),
            Denial::Import(refusal) => refusal.fmt(out),
        }
    }
}

impl Decision {
    pub fn verdict(&self) -> PolicyVerdict {
        match self {
            Decision::Allow(_) => PolicyVerdict::Allow,
            Decision::Ask(_) => PolicyVerdict::Ask,
            Decision::Deny(..) => PolicyVerdict::Deny,
        }
    }

    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    /// The answer for people.
    pub fn explain(&self) -> Explanation {
        let (reason, by) = match self {
            Decision::Allow(Some(by)) => ("a rule allows it".to_owned(), Some(by)),
            Decision::Allow(None) => ("the network is open".to_owned(), None),
            Decision::Ask(by) => ("a person has to allow it".to_owned(), Some(by)),
            Decision::Deny(denial, by) => (denial.to_string(), by.as_ref()),
        };
        Explanation {
            verdict: self.verdict(),
            reason,
            policy: by.map(|by| by.policy.clone()),
            rule: by.and_then(|by| by.rule.clone()),
        }
    }

    /// How narrow it is.
    fn rank(&self) -> u8 {
        match self {
            Decision::Allow(_) => 0,
            Decision::Ask(_) => 1,
            Decision::Deny(..) => 2,
        }
    }
}

/// Whether a machine may do something.
pub fn decide(subject: &Subject<'_>, access: &Access<'_>) -> Decision {
    if let Access::Connect { address, own, .. } = access
        && let Some(refusal) = reach::floor(*address, *own)
    {
        return Decision::Deny(Denial::Floor(refusal), None);
    }
    if let Network::Policy(name) = subject.network
        && !subject.levels.iter().any(|level| level.name == *name)
    {
        return Decision::Deny(Denial::NoPolicy(name.to_string()), None);
    }
    let granted = match (subject.network, access) {
        (Network::Policy(_), _) => None,
        (network, Access::Import { source, .. }) => {
            let verdict = modules::verdict(subject.imports, network, *source);
            verdict.err().map(Denial::Import)
        }
        (Network::None, _) => Some(Denial::NoNetwork),
        (Network::Open, _) => None,
    };
    let granted = granted.map_or(Decision::Allow(None), |denial| Decision::Deny(denial, None));
    let judged = subject.levels.iter().map(|level| level.judge(access));
    // the first of the narrowest
    std::iter::once(granted).chain(judged).reduce(narrower).unwrap_or(Decision::Allow(None))
}

fn narrower(one: Decision, other: Decision) -> Decision {
    // what a rule allows says more than that the network is open
    let more = matches!((&one, &other), (Decision::Allow(None), Decision::Allow(_)));
    if other.rank() > one.rank() || more { other } else { one }
}

impl Policy {
    fn judge(&self, access: &Access<'_>) -> Decision {
        match *access {
            Access::Resolve { name } => {
                let allowed = self.network.allow.iter().any(|rule| rule.pattern.fits_name(name));
                // what is left of the name by rules about some ports is worth resolving it
                let own = |kind, rule: &PolicyRule<NetworkPattern>| match kind {
                    RuleKind::Allow => rule.pattern.fits_name(name),
                    RuleKind::Ask => rule.pattern.fits_name(name) && !allowed,
                    RuleKind::Deny => rule.pattern.fits_name(name) && rule.pattern.is_total(),
                };
                self.found("network", &self.network, own, Denial::NotAllowed)
            }
            Access::Connect { protocol: Protocol::Udp, address, .. } if address.port() == QUIC => {
                Decision::Deny(Denial::Quic, Some(self.by(None)))
            }
            Access::Connect { name, address, protocol, .. } => {
                let own = |kind, rule: &PolicyRule<NetworkPattern>| match kind {
                    RuleKind::Allow => rule.pattern.allows(name, address, protocol),
                    _ => rule.pattern.covers(name, address, protocol),
                };
                let private = is_private(*address.ip());
                let other = if private { Denial::Private } else { Denial::NotAllowed };
                self.found("network", &self.network, own, other)
            }
            Access::Import { specifier, .. } => {
                let own = |_, rule: &PolicyRule<ModulePattern>| rule.pattern.fits(specifier);
                self.found("modules", &self.modules, own, Denial::NotAllowed)
            }
        }
    }

    /// The answer of the first list, from `deny` to `allow`, that has a rule for it.
    fn found<P>(
        &self,
        section: &str,
        lists: &RuleLists<P>,
        own: impl Fn(RuleKind, &PolicyRule<P>) -> bool,
        other: Denial,
    ) -> Decision {
        let find = |kind: RuleKind, list: &[PolicyRule<P>]| {
            let rule = list.iter().find(|rule| own(kind, rule))?;
            Some(self.by(Some(format!("{section}.{} {:?}", kind.word(), rule.text))))
        };
        if let Some(by) = find(RuleKind::Deny, &lists.deny) {
            return Decision::Deny(Denial::Denied, Some(by));
        }
        if let Some(by) = find(RuleKind::Ask, &lists.ask) {
            return Decision::Ask(by);
        }
        match find(RuleKind::Allow, &lists.allow) {
            Some(by) => Decision::Allow(Some(by)),
            None => Decision::Deny(other, Some(self.by(None))),
        }
    }

    fn by(&self, rule: Option<String>) -> DecidedBy {
        DecidedBy { policy: self.name.to_string(), rule }
    }
}
