//! Connections without a valid token yet: few, short-lived, and never at the expense of others.
//!
//!   accepted ─► unproven ──valid token──► proven, counted by account
//!                  ├─ no token in time ─► closed
//!                  └─ too many ─────────► the oldest of that address, or of all, is closed
//!
//! A new connection is accepted and the oldest silent one closed, not the other way around: a
//! client with a token needs milliseconds to present it. Younger connections are spared up to twice
//! the bound, so that a burst of correct clients loses none.

use crate::connection::Peer;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Maximum time of a connection without a valid token.
const PROOF_IN_TIME: Duration = Duration::from_secs(15);
/// A connection younger than this is not closed for another one.
const SPARED: Duration = Duration::from_millis(250);
/// Below this many connections in total, shares do not apply.
const FEW: usize = 8;

/// The bound of all connections.
pub struct ConnectionRegister {
    bounds: Bounds,
    open: Mutex<Open>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    /// Bounds of unproven ones: in total, and of one address.
    unproven: usize,
    address: usize,
    /// Bound of proven ones of one account.
    account: usize,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// Unproven ones by age.
    unproven: BTreeMap<u64, Waiting>,
    accounts: HashMap<String, usize>,
}

struct Waiting {
    from: Option<IpAddr>,
    since: Instant,
    end: Arc<Notify>,
}

/// One connection's entry in the register.
pub struct Ticket {
    register: Arc<ConnectionRegister>,
    number: u64,
    end: Arc<Notify>,
    account: Mutex<Option<String>>,
}

impl ConnectionRegister {
    /// For this many connections in total; `descriptors` is the limit of this process.
    pub fn new(connections: usize, descriptors: usize) -> Arc<ConnectionRegister> {
        let bounds = Bounds::of(connections, descriptors);
        Arc::new(ConnectionRegister { bounds, open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }

    /// An entry for a new connection, for which an old one may be closed.
    pub fn enter(self: &Arc<Self>, peer: Peer) -> Arc<Ticket> {
        let (number, end) = self.open().enter(self.bounds, address(peer), Instant::now());
        Arc::new(Ticket { register: self.clone(), number, end, account: Mutex::default() })
    }

    /// Closes the oldest unproven connections: there are no descriptors left.
    pub fn make_room(&self) {
        let mut open = self.open();
        let count = open.unproven.len().div_ceil(2);
        for _ in 0..count {
            if let Some((_, oldest)) = open.unproven.pop_first() {
                oldest.end.notify_one();
            }
        }
    }
}

impl Bounds {
    fn of(connections: usize, descriptors: usize) -> Bounds {
        if connections < FEW {
            let any = usize::MAX;
            return Bounds { unproven: any, address: any, account: any };
        }
        let unproven = (connections / 4).min(descriptors / 8).max(1);
        let account = (connections / 4).min(descriptors / 4).max(1);
        Bounds { unproven, address: unproven.div_ceil(2), account }
    }
}

impl Open {
    fn enter(&mut self, bounds: Bounds, from: Option<IpAddr>, now: Instant) -> (u64, Arc<Notify>) {
        let same = |one: &Waiting| one.from == from;
        let own = self.unproven.values().filter(|one| same(one)).count();
        if own >= bounds.address {
            // an address at its share loses its own connections before others do
            let is_full = self.unproven.len() >= bounds.unproven;
            self.close_oldest(now, is_full || own >= bounds.address.saturating_mul(2), same);
        }
        let all = self.unproven.len();
        if all >= bounds.unproven {
            self.close_oldest(now, all >= bounds.unproven.saturating_mul(2), |_| true);
        }
        let (number, end) = (self.next, Arc::new(Notify::new()));
        self.next += 1;
        self.unproven.insert(number, Waiting { from, since: now, end: end.clone() });
        (number, end)
    }

    /// Closes the oldest of some connections; a young one only if necessary.
    fn close_oldest(&mut self, now: Instant, even_young: bool, which: impl Fn(&Waiting) -> bool) {
        let oldest = self.unproven.iter().find(|(_, one)| which(one));
        let old = |one: &Waiting| even_young || now.duration_since(one.since) >= SPARED;
        let number = oldest.filter(|(_, one)| old(one)).map(|(number, _)| *number);
        if let Some(gone) = number.and_then(|number| self.unproven.remove(&number)) {
            gone.end.notify_one();
        }
    }
}

impl Ticket {
    /// A request on it had a valid token. Whether the account may have one more connection; the
    /// service's own account is not bounded here.
    pub fn prove(&self, account: &str, bounded: bool) -> bool {
        let mut own = self.account.lock();
        if own.is_some() {
            return true;
        }
        let mut open = self.register.open();
        let count = open.accounts.entry(account.to_owned()).or_default();
        if bounded && *count >= self.register.bounds.account {
            return false;
        }
        *count += 1;
        open.unproven.remove(&self.number);
        *own = Some(account.to_owned());
        true
    }

    fn is_proven(&self) -> bool {
        self.account.lock().is_some()
    }

    /// Returns when the connection must be closed because it sent no token.
    pub async fn over(&self) {
        tokio::select! {
            () = self.end.notified() => {}
            () = tokio::time::sleep(PROOF_IN_TIME) => {}
        }
        if self.is_proven() {
            std::future::pending().await
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let own = self.account.get_mut().take();
        let mut open = self.register.open();
        open.unproven.remove(&self.number);
        let Some(account) = own else { return };
        if let Some(count) = open.accounts.get_mut(&account) {
            *count -= 1;
            if *count == 0 {
                open.accounts.remove(&account);
            }
        }
    }
}

/// The key of a peer: an address, or for IPv6 the network of one subscriber.
fn address(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Private => None,
        Peer::Tcp(address) => Some(match address.ip().to_canonical() {
            IpAddr::V4(ip) => IpAddr::V4(ip),
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::Tcp((IpAddr::from([10, 0, 0, last]), 1).into())
    }

    fn aged(register: &ConnectionRegister) {
        register.open().unproven.values_mut().for_each(|one| one.since -= SPARED);
    }

    #[test]
    fn newcomers_displace_old_ones_of_their_address() {
        let register = ConnectionRegister::new(64, 1 << 20);
        let decent = register.enter(peer(1));
        let idle: Vec<_> = (0..8).map(|_| register.enter(peer(2))).collect();
        aged(&register);
        let first: Vec<_> = (0..8).map(|_| register.enter(peer(2))).collect();
        let is_open = |one: &Ticket| register.open().unproven.contains_key(&one.number);
        assert!(!idle.iter().any(|one| is_open(one)) && first.iter().all(|one| is_open(one)));
        let more: Vec<_> = (0..100).map(|_| register.enter(peer(2))).collect();
        assert!(is_open(&decent), "it is another address's");
        assert!(is_open(&more[99]) && register.open().unproven.len() <= 32);
        drop((decent, idle, first, more));
        assert!(register.open().unproven.is_empty());
    }

    #[test]
    fn proven_ones_make_room_and_count_for_their_account() {
        let register = ConnectionRegister::new(64, 1 << 20);
        let tickets: Vec<_> = (0..20).map(|last| register.enter(peer(last))).collect();
        let proven = tickets.iter().filter(|one| one.prove("a", true)).count();
        assert_eq!(proven, register.bounds.account);
        assert!(tickets[0].prove("a", true), "it is proven already");
        assert!(tickets[19].prove("root", false));
        assert_eq!(register.open().unproven.len(), 20 - 16 - 1);
        drop(tickets);
        assert!(register.open().accounts.is_empty());
    }

    #[test]
    fn few_connections_are_not_divided() {
        assert_eq!(Bounds::of(1, 1024).unproven, usize::MAX);
    }
}
