//! What a machine's traffic may do: asks the policies, and reports refusals.
//!
//!   name, address, first bytes ─► Guard ─► policy::decide ─► allowed, or refused and reported
//!
//! A machine can be refused as often as it likes, so only so many refusals are reported: the same
//! one once a minute, and 30 in a burst. The next report says how many were left out.

use crate::book::PolicyBook;
use crate::hello::FirstBytes;
use crate::names::ResolvedNames;
use crate::packet::Endpoints;
use stasis_api::{Network, RefusedAccess};
use stasis_policy::decide::{Access, Decision, Denial, Subject, decide};
use stasis_policy::modules::ImportRule;
use stasis_policy::reach::Protocol;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the same refusal is not reported again.
const AGAIN: Duration = Duration::from_secs(60);
/// Reports at once, and how long it takes until there is one more.
const BURST: usize = 30;
const ONE_MORE: Duration = Duration::from_secs(2);

/// Hears of refusals; it must not wait for anything.
pub type RefusalSink = Box<dyn Fn(RefusedAccess) + Send + Sync>;

/// The rules of one machine.
pub struct EgressRules {
    pub network: Network,
    pub book: Arc<PolicyBook>,
    pub refused: RefusalSink,
}

pub struct Guard {
    rules: EgressRules,
    names: ResolvedNames,
    reports: RefusalReports,
    version: u64,
}

/// A connection or flow that is allowed, by the name that was decisive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedTarget {
    pub name: Option<String>,
}

impl Guard {
    pub fn new(rules: EgressRules) -> Guard {
        let version = rules.book.version();
        Guard { rules, version, names: ResolvedNames::default(), reports: Default::default() }
    }

    /// Whether names matter: the machine is held to a policy.
    pub fn is_named(&self) -> bool {
        self.rules.book.is_named(&self.rules.network)
    }

    /// Whether a policy changed since this was last asked.
    pub fn has_changed(&mut self) -> bool {
        let version = self.rules.book.version();
        std::mem::replace(&mut self.version, version) != version
    }

    fn decide(&self, access: &Access<'_>) -> Decision {
        let EgressRules { network, book, .. } = &self.rules;
        let levels = book.levels(network);
        decide(&Subject { network, levels: &levels, imports: ImportRule::Network }, access)
    }

    fn connect(&self, name: Option<&str>, address: SocketAddrV4, protocol: Protocol) -> Decision {
        let own = is_own(*address.ip());
        self.decide(&Access::Connect { name, address, protocol, own })
    }

    /// Whether a machine may open a connection or a flow: by one of the names that its address was
    /// resolved from, or as an address.
    pub fn open(&mut self, ends: &Endpoints, protocol: Protocol) -> Option<AllowedTarget> {
        let (to, now) = (ends.outside, Instant::now());
        // the name resolved last is the likeliest
        let names: Vec<String> = self.names.of(*to.ip(), now).map(str::to_owned).collect();
        let names = names.into_iter().rev().map(Some);
        let mut refused = None;
        for name in names.chain(self.names.of(*to.ip(), now).next().is_none().then_some(None)) {
            match self.connect(name.as_deref(), to, protocol) {
                Decision::Allow(_) => return Some(AllowedTarget { name }),
                decision => refused = refused.or(Some((name, decision))),
            }
        }
        let (name, decision) = refused?;
        self.report(&connection(name.as_deref(), to, protocol), &decision);
        None
    }

    /// Whether a connection or flow is still allowed.
    pub fn still(&mut self, name: Option<&str>, to: SocketAddrV4, protocol: Protocol) -> bool {
        let decision = self.connect(name, to, protocol);
        if !decision.is_allowed() {
            self.report(&connection(name, to, protocol), &decision);
        }
        decision.is_allowed()
    }

    /// Whether a connection may begin as it does; with the name it is known by from then on.
    pub fn first_bytes(
        &mut self,
        known: Option<&str>,
        to: SocketAddrV4,
        first: FirstBytes,
    ) -> Option<AllowedTarget> {
        let known = known.map(str::to_owned);
        let (name, decision) = match first {
            FirstBytes::Plain | FirstBytes::Tls(None) => {
                return Some(AllowedTarget { name: known });
            }
            FirstBytes::Tls(Some(name)) => {
                let decision = self.connect(Some(&name), to, Protocol::Tcp);
                (Some(name), decision)
            }
            FirstBytes::Hidden => (known, Decision::Deny(Denial::HiddenName, None)),
            FirstBytes::Bad | FirstBytes::Incomplete => {
                (known, Decision::Deny(Denial::BadHello, None))
            }
        };
        if decision.is_allowed() {
            return Some(AllowedTarget { name });
        }
        self.report(&connection(name.as_deref(), to, Protocol::Tcp), &decision);
        None
    }

    /// Whether a name may be resolved.
    pub fn resolve(&mut self, name: &str) -> bool {
        let decision = self.decide(&Access::Resolve { name });
        if !decision.is_allowed() {
            self.report(&format!("resolve {name}"), &decision);
        }
        decision.is_allowed()
    }

    /// Remembers what a name was resolved to. Addresses of the floor are left out: a name that
    /// points at the host is an attempt to reach it.
    pub fn resolved(&mut self, name: &str, found: &mut Vec<Ipv4Addr>, ttl: Duration) {
        /// Any port will do: the floor does not depend on it.
        const PORT: u16 = 443;
        let mut refused = None;
        found.retain(|ip| {
            let to = SocketAddrV4::new(*ip, PORT);
            let floor = stasis_policy::reach::floor(to, is_own(*ip));
            refused = refused.or(floor.map(|floor| (*ip, floor)));
            floor.is_none()
        });
        for ip in found.iter() {
            self.names.remember(*ip, name, ttl, Instant::now());
        }
        if let Some((ip, floor)) = refused {
            let decision = Decision::Deny(Denial::Floor(floor), None);
            self.report(&format!("resolve {name} ({ip})"), &decision);
        }
    }

    fn report(&mut self, access: &str, decision: &Decision) {
        let explained = decision.explain();
        tracing::debug!(access, reason = explained.reason, "a machine was refused");
        let same = format!("{access}: {}", explained.reason);
        let Some(unreported) = self.reports.take(&same, Instant::now()) else { return };
        (self.rules.refused)(RefusedAccess {
            access: access.to_owned(),
            verdict: explained.verdict,
            reason: explained.reason,
            policy: explained.policy,
            rule: explained.rule,
            unreported,
        });
    }
}

fn connection(name: Option<&str>, to: SocketAddrV4, protocol: Protocol) -> String {
    match name {
        Some(name) => format!("{protocol} {name}:{} ({})", to.port(), to.ip()),
        None => format!("{protocol} {to}"),
    }
}

/// Whether an address is one of this host's, on whatever interface: then, and only then, a socket
/// can be bound to it. When that cannot be found out, it counts as the host's.
pub fn is_own(ip: Ipv4Addr) -> bool {
    match UdpSocket::bind((ip, 0)) {
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
        Ok(_) => true,
    }
}

/// Which refusals are reported.
#[derive(Debug, Default)]
struct RefusalReports {
    recent: HashMap<String, Instant>,
    unreported: u64,
}

impl RefusalReports {
    /// How many were left out before this one; none, if this one is left out too.
    fn take(&mut self, same: &str, now: Instant) -> Option<u64> {
        let since = |at: &Instant| now.saturating_duration_since(*at);
        self.recent.retain(|_, at| since(at) < AGAIN);
        let lately = self.recent.values().filter(|at| since(at) < ONE_MORE).count();
        let full = self.recent.len() >= BURST && lately > 0;
        let many = self.recent.len() >= BURST + (AGAIN.as_secs() / ONE_MORE.as_secs()) as usize;
        if self.recent.contains_key(same) || full || many {
            self.unreported += 1;
            return None;
        }
        self.recent.insert(same.to_owned(), now);
        Some(std::mem::take(&mut self.unreported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_known_as_such() {
        assert!(is_own(Ipv4Addr::LOCALHOST));
        assert!(is_own(Ipv4Addr::new(127, 9, 9, 9)));
        assert!(!is_own(Ipv4Addr::new(198, 51, 100, 7)));
    }

    #[test]
    fn only_so_many_refusals_are_reported() {
        let (mut reports, now) = (RefusalReports::default(), Instant::now());
        assert_eq!(reports.take("a", now), Some(0));
        assert_eq!(reports.take("a", now), None);
        let told = (0..1000).filter(|n| reports.take(&format!("b{n}"), now).is_some()).count();
        assert_eq!(told, BURST - 1);
        let later = now + ONE_MORE;
        assert_eq!(reports.take("c", later), Some(1000 - (BURST as u64 - 1)));
        assert_eq!(reports.take("d", later), None, "one at a time");
        let flood = (0..100_000u32).filter(|n| {
            let at = now + Duration::from_millis(u64::from(*n));
            reports.take(&format!("e{n}"), at).is_some()
        });
        let told = flood.count();
        assert!((40..=110).contains(&told), "{told}");
        assert!(reports.recent.len() <= 60);
        assert_eq!(reports.take("a", now + Duration::from_secs(3600)).map(|n| n > 0), Some(true));
    }
}
