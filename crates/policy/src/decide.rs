//! The one decision about a machine's accesses.
//!
//!   access ─► network? ─► floor ─► every level: host, account, template, machine ─► the narrowest
//!
//! A level is a named policy, and denies everything it does not allow. The answer is the narrowest
//! of all levels, so a policy cannot allow more than the one above it. Within a policy, `deny`
//! beats `ask` and `ask` beats `allow`, in any order. No policy lifts the floor.

use crate::commands::CommandText;
use crate::document::Policy;
use crate::files::FileUse;
use crate::http::HttpRequest;
use crate::modules::{self, ImportRefusal, ImportRule, ImportSource};
use crate::reach::{self, Protocol, Refusal};
use serde_json::Value;
use stasis_api::{Explanation, Limits, Network, PolicyVerdict};
use std::fmt;
use std::net::SocketAddrV4;
use std::sync::Arc;

/// A machine, as policies know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub account: String,
    pub template: String,
    pub machine: String,
}

/// The subject: a machine with its network, and its policies.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub who: &'a Identity,
    pub network: &'a Network,
    pub levels: &'a [Arc<Policy>],
    /// Imports that the operator allows to machines without a network.
    pub imports: ImportRule,
}

/// The requested access.
#[derive(Debug, Clone, Copy, PartialEq)]
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
    /// A request of HTTP, on a connection that was allowed.
    Request {
        /// The name in TLS, or the host that the request names.
        name: Option<&'a str>,
        address: SocketAddrV4,
        own: bool,
        what: HttpRequest<'a>,
    },
    Import {
        source: ImportSource,
        specifier: &'a str,
    },
    /// A secret in a request to a host: a name, or an address as text.
    Secret {
        secret: &'a str,
        host: &'a str,
        port: u16,
    },
    /// A call of a tool.
    Tool {
        server: &'a str,
        tool: &'a str,
        arguments: &'a Value,
    },
    /// A new machine, from a template.
    Create {
        template: &'a str,
        limits: &'a Limits,
    },
    /// A file that a client reads or writes through the service.
    File(FileUse<'a>),
    /// A command that a client has the service start.
    Command(CommandText<'a>),
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
    /// Data that begins as TLS but is not.
    BadHello,
    /// Rules are about its requests, which cannot be read.
    Unreadable,
    /// The record of the machine's template cannot be read, and with it the template's policy.
    Unidentified,
    Import(ImportRefusal),
    /// Rego denies it, and says why.
    Rego(String),
    /// Rego has no answer.
    RegoFailed(String),
    /// A hook denies it, in its words.
    Hook(String),
    /// Requests under hooks are made by the function that has them.
    AroundHooks,
    /// A budget is used up, in its words.
    Budget(String),
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
            Denial::Unreadable => {
                out.write_str("its rules are about requests, and its requests cannot be read")
            }
            Denial::Unidentified => out.write_str("the machine's template cannot be read"),
            Denial::Import(refusal) => refusal.fmt(out),
            Denial::Rego(reason) => out.write_str(reason),
            Denial::RegoFailed(why) => write!(out, "Rego has no answer: {why}"),
            Denial::Hook(said) | Denial::Budget(said) => out.write_str(said),
            Denial::AroundHooks => {
                out.write_str("it goes around the hooks of `fetch`: call the global `fetch`")
            }
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
            Decision::Allow(None) => ("no policy is about it".to_owned(), None),
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

    /// Its narrowness.
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
    if let Access::Connect { address, own, .. } | Access::Request { address, own, .. } = access
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
        // none of them needs the network of the machine
        (_, Access::Tool { .. } | Access::Create { .. } | Access::File(_) | Access::Command(_)) => {
            None
        }
        (Network::None, _) => Some(Denial::NoNetwork),
        (Network::Open, _) => None,
    };
    let granted = granted.map_or(Decision::Allow(None), |denial| Decision::Deny(denial, None));
    let judged = subject.levels.iter().map(|level| level.judge(subject.who, access));
    // the first of the narrowest
    std::iter::once(granted).chain(judged).reduce(narrower).unwrap_or(Decision::Allow(None))
}

fn narrower(one: Decision, other: Decision) -> Decision {
    // a rule is more specific than an open network
    let more = matches!((&one, &other), (Decision::Allow(None), Decision::Allow(_)));
    if other.rank() > one.rank() || more { other } else { one }
}
