//! The guard of a machine's traffic: remembers names, asks the policies, and reports refusals.
//!
//!   name, address, first bytes ─► Guard ─► rules ─► allowed, read, or refused and reported

use crate::dns::ResolvedAnswer;
use crate::hello::FirstBytes;
use crate::intercept::InterceptedConnection;
use crate::lookup::{ANY_PORT, has_route};
use crate::names::ResolvedNames;
use crate::other_side::RequestReader;
use crate::packet::Endpoints;
use crate::rules::{EgressRules, MachineRules, unreadable};
use crate::stand_in::StandIns;
use crate::traffic::{RelayTraffic, TrafficLimit};
use crate::unguarded::EgressGuard;
use stasis_policy::decide::{Access, Decision, Denial};
use stasis_policy::document::Policy;
use stasis_policy::reach::{self, Protocol};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub struct Guard {
    rules: Arc<MachineRules>,
    names: ResolvedNames,
    stand_ins: StandIns,
    version: u64,
}

/// A connection or flow that is allowed, by the name that was decisive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedTarget {
    pub name: Option<String>,
    /// Whether its requests are read.
    pub is_read: bool,
}

impl Guard {
    pub fn new(rules: EgressRules) -> Guard {
        let rules = Arc::new(MachineRules::new(rules));
        let (names, stand_ins) = Default::default();
        Guard { version: rules.version(), rules, names, stand_ins }
    }

    /// Whether names matter: the machine is held to a policy.
    pub fn is_named(&self) -> bool {
        self.rules.is_named()
    }

    /// The policies that the machine is held to.
    pub fn levels(&self) -> Vec<Arc<Policy>> {
        self.rules.levels()
    }

    /// Reports what a limit of the machine's traffic refused.
    pub fn limited(&self, access: &str, limit: TrafficLimit, traffic: &RelayTraffic) {
        let (reason, policy, rule) = traffic.explain(limit);
        self.rules.report_limit(access, reason, policy, rule);
    }

    /// Whether a policy or a secret changed since this was last asked.
    pub fn has_changed(&mut self) -> bool {
        let version = self.rules.version();
        std::mem::replace(&mut self.version, version) != version
    }

    fn connect(&self, name: Option<&str>, address: SocketAddrV4, protocol: Protocol) -> Decision {
        let own = is_own(*address.ip());
        match self.rules.decide(&Access::Connect { name, address, protocol, own }) {
            // datagrams have no requests that could be read
            Decision::Allow(_)
                if protocol == Protocol::Udp && self.rules.needs_interception(name, address) =>
            {
                unreadable()
            }
            decision => decision,
        }
    }

    /// Whether a machine may open a connection or a flow: by one of the names that its address was
    /// resolved from, or as an address.
    pub fn open(&mut self, ends: &Endpoints, protocol: Protocol) -> Option<AllowedTarget> {
        let (to, now) = (ends.outside, Instant::now());
        if let Some(six) = self.stand_ins.of(*to.ip())
            && let Some(floor) = reach::floor_v6(six, is_own(six))
            && !self.rules.is_removed(EgressGuard::Floor)
        {
            let decision = Decision::Deny(Denial::Floor(floor), None);
            self.rules
                .report(&format!("{protocol} {}", SocketAddr::from((six, to.port()))), &decision);
            return None;
        }
        // the name resolved last is the likeliest
        let names: Vec<String> = self.names.of(*to.ip(), now).map(str::to_owned).collect();
        let names = names.into_iter().rev().map(Some);
        let mut refused = None;
        for name in names.chain(self.names.of(*to.ip(), now).next().is_none().then_some(None)) {
            match self.connect(name.as_deref(), to, protocol) {
                Decision::Allow(_) => {
                    let is_read = self.rules.needs_interception(name.as_deref(), to);
                    return Some(AllowedTarget { name, is_read });
                }
                decision => refused = refused.or(Some((name, decision))),
            }
        }
        let (name, decision) = refused?;
        self.rules.report(&connection(name.as_deref(), to, protocol), &decision);
        None
    }

    /// The address outside that packets for an address go to.
    pub fn destination(&self, to: SocketAddrV4) -> SocketAddr {
        match self.stand_ins.of(*to.ip()) {
            Some(six) => (six, to.port()).into(),
            None => to.into(),
        }
    }

    /// Whether a flow is still allowed.
    pub fn still(&mut self, name: Option<&str>, to: SocketAddrV4, protocol: Protocol) -> bool {
        let decision = self.connect(name, to, protocol);
        if !decision.is_allowed() {
            self.rules.report(&connection(name, to, protocol), &decision);
        }
        decision.is_allowed()
    }

    /// Whether a connection is still allowed, and still read as before.
    pub fn still_connected(&mut self, target: &AllowedTarget, to: SocketAddrV4) -> bool {
        let name = target.name.as_deref();
        let same = || self.rules.needs_interception(name, to) == target.is_read;
        let same = same();
        self.still(name, to, Protocol::Tcp) && same
    }

    /// Whether a connection may begin as it does; with the name it is known by from then on.
    pub fn first_bytes(
        &mut self,
        known: Option<&str>,
        to: SocketAddrV4,
        first: FirstBytes,
    ) -> Option<AllowedTarget> {
        let known = known.map(str::to_owned);
        let (name, guard, decision) = match first {
            FirstBytes::Plain | FirstBytes::Tls(None) => {
                let is_read = self.rules.needs_interception(known.as_deref(), to);
                return Some(AllowedTarget { name: known, is_read });
            }
            FirstBytes::Tls(Some(name)) => {
                let decision = self.connect(Some(&name), to, Protocol::Tcp);
                (Some(name), EgressGuard::ServerName, decision)
            }
            FirstBytes::Hidden => {
                let decision = Decision::Deny(Denial::HiddenName, None);
                (known, EgressGuard::HiddenName, decision)
            }
            FirstBytes::Bad | FirstBytes::Incomplete => {
                (known, EgressGuard::BadHello, Decision::Deny(Denial::BadHello, None))
            }
        };
        if decision.is_allowed() || self.rules.is_removed(guard) {
            let is_read = self.rules.needs_interception(name.as_deref(), to);
            return Some(AllowedTarget { name, is_read });
        }
        self.rules.report(&connection(name.as_deref(), to, Protocol::Tcp), &decision);
        None
    }

    /// Has the requests on a connection read; what is given back takes the place of its socket.
    pub fn read_requests(
        &self,
        target: &AllowedTarget,
        to: SocketAddrV4,
        is_tls: bool,
        outside: TcpStream,
    ) -> Option<RequestReader> {
        let (machine, rules) = (self.rules.intercept().clone(), self.rules.clone());
        let name = target.name.clone();
        let access = connection(name.as_deref(), to, Protocol::Tcp);
        if let Err(error) = machine.authority() {
            self.rules.report_plain(&access, &format!("its requests cannot be read: {error}"));
            return None;
        }
        let is_revoked = Arc::<AtomicBool>::default();
        let own = is_revoked.clone();
        let read = InterceptedConnection { machine, rules, name, to, is_tls, is_revoked: own };
        let begun = read.begin(outside);
        let begun = begun.inspect_err(|error| tracing::warn!(%error, "requests cannot be read"));
        Some(RequestReader { stream: begun.ok()?, is_revoked })
    }

    /// Whether a name may be resolved.
    pub fn resolve(&mut self, name: &str) -> bool {
        let decision = self.rules.decide(&Access::Resolve { name });
        if !decision.is_allowed() {
            self.rules.report(&format!("resolve {name}"), &decision);
        }
        decision.is_allowed()
    }

    /// Remembers what a name was resolved to. Addresses of the floor are left out: a name that
    /// points at the host is an attempt to reach it.
    pub fn resolved(&mut self, name: &str, found: &mut Vec<Ipv4Addr>, ttl: Duration) {
        let mut refused = None;
        let filters = !self.rules.is_removed(EgressGuard::Answers);
        found.retain(|ip| {
            let to = SocketAddrV4::new(*ip, ANY_PORT);
            let floor = stasis_policy::reach::floor(to, is_own(*ip)).filter(|_| filters);
            refused = refused.or(floor.map(|floor| (*ip, floor)));
            floor.is_none()
        });
        for ip in found.iter() {
            self.names.remember(*ip, name, ttl, Instant::now());
        }
        if let Some((ip, floor)) = refused {
            let decision = Decision::Deny(Denial::Floor(floor), None);
            self.rules.report(&format!("resolve {name} ({ip})"), &decision);
        }
    }

    /// Remembers what a name was resolved to that has IPv6 only: the machine gets addresses that
    /// stand for these.
    pub fn resolved_six(&mut self, name: &str, found: &mut ResolvedAnswer) {
        /// Clients try one after the other.
        const MOST: usize = 4;
        let (now, filters) = (Instant::now(), !self.rules.is_removed(EgressGuard::Answers));
        let reached = std::mem::take(&mut found.six).into_iter();
        for six in reached.filter(|six| has_route((*six, ANY_PORT).into())).take(MOST) {
            if let Some(floor) = reach::floor_v6(six, is_own(six)).filter(|_| filters) {
                let decision = Decision::Deny(Denial::Floor(floor), None);
                self.rules.report(&format!("resolve {name} ({six})"), &decision);
            } else {
                let stand_in = self.stand_ins.stand_for(six, now);
                if stand_in.is_new {
                    self.names.forget(stand_in.ip);
                }
                self.names.remember(stand_in.ip, name, found.ttl, now);
                found.addresses.push(stand_in.ip);
            }
        }
    }
}

/// A connection or flow as reports show it.
pub fn connection(name: Option<&str>, to: SocketAddrV4, protocol: Protocol) -> String {
    match name {
        Some(name) => format!("{protocol} {name}:{} ({})", to.port(), to.ip()),
        None => format!("{protocol} {to}"),
    }
}

/// Whether an address is one of this host's, on whatever interface: then, and only then, a socket
/// can be bound to it. When that cannot be found out, it counts as the host's.
pub fn is_own(ip: impl Into<IpAddr>) -> bool {
    match UdpSocket::bind((ip.into(), 0)) {
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
        Ok(_) => true,
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
}
