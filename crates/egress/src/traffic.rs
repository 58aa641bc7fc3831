//! How much a machine sends and receives: connections, rate and total, as its policies limit them.
//!
//!   bytes of TCP and UDP ─► rate: what may pass now, the rest waits ─► total: used up, it ends
//!
//! The lowest limit of all policies counts. Bytes are counted where they enter or leave the
//! machine. The total belongs to a line of machines, so a swap or a branch does not renew it; an
//! account may have a total, too. The machines' host records both.

use crate::tcp::MOST;
use stasis_api::Name;
use stasis_policy::document::Policy;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Bytes that may pass at once, as a part of a second, and at least.
const BURST: f64 = 0.1;
const LEAST: f64 = 16384.0;

/// Bytes that a line of machines has sent and received, or an account.
#[derive(Debug, Default)]
pub struct TrafficMeter {
    bytes: AtomicU64,
    /// Bytes as they were recorded last.
    recorded: AtomicU64,
    /// That of the account of a line.
    account: Option<Arc<TrafficMeter>>,
}

impl TrafficMeter {
    /// The meter of a line of machines of an account.
    pub fn of(account: Arc<TrafficMeter>) -> TrafficMeter {
        TrafficMeter { account: Some(account), ..TrafficMeter::default() }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes, if they are not recorded yet.
    pub fn unrecorded(&self) -> Option<u64> {
        let bytes = self.bytes();
        (bytes != self.recorded.load(Ordering::Relaxed)).then_some(bytes)
    }

    pub fn set_recorded(&self, bytes: u64) {
        self.recorded.store(bytes, Ordering::Relaxed);
    }

    /// Takes over what was recorded before a restart.
    pub fn restore(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.recorded.fetch_add(bytes, Ordering::Relaxed);
    }

    fn account_bytes(&self) -> u64 {
        self.account.as_ref().map_or(0, |account| account.bytes())
    }

    fn add(&self, bytes: usize) {
        for meter in [Some(self), self.account.as_deref()].into_iter().flatten() {
            meter.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

/// A limit, and the policy that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficBound {
    pub most: u64,
    pub policy: Name,
    pub rule: &'static str,
}

impl TrafficBound {
    fn lowest(
        levels: &[Arc<Policy>],
        rule: &'static str,
        limit: impl Fn(&Policy) -> Option<u64>,
    ) -> Option<TrafficBound> {
        let bound = |level: &Arc<Policy>| {
            limit(level).map(|most| TrafficBound { most, policy: level.name.clone(), rule })
        };
        levels.iter().filter_map(bound).min_by_key(|bound| bound.most)
    }

    fn lower(one: Option<TrafficBound>, other: Option<TrafficBound>) -> Option<TrafficBound> {
        one.into_iter().chain(other).min_by_key(|bound| bound.most)
    }
}

/// A bound that keeps a machine from another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficLimit {
    /// As many connections as the relay has for one machine.
    Most,
    Connections,
    Total,
    /// The total of its account.
    Account,
}

/// The traffic of one machine.
pub struct RelayTraffic {
    meter: Arc<TrafficMeter>,
    pub connections: Option<TrafficBound>,
    pub total: Option<TrafficBound>,
    account: Option<TrafficBound>,
    /// Bytes per second.
    rate: Option<u64>,
    /// Bytes that may pass now, as of an instant.
    tokens: f64,
    filled: Instant,
}

impl RelayTraffic {
    pub fn new(meter: Arc<TrafficMeter>, now: Instant) -> RelayTraffic {
        let (connections, total, account, rate) = Default::default();
        RelayTraffic { meter, connections, total, account, rate, tokens: 0.0, filled: now }
    }

    /// Takes the limits of a machine's policies.
    pub fn limit(&mut self, levels: &[Arc<Policy>]) {
        let connections = |level: &Policy| level.traffic().connections.map(u64::from);
        self.connections = TrafficBound::lowest(levels, "traffic.connections", connections);
        let total = |level: &Policy| level.traffic().total_mib.map(|most| most * MIB);
        let [line, account] = [0, 1].map(|scope| {
            move |level: &Policy| level.budgets()[scope].traffic_mib.map(|most| most * MIB)
        });
        let total = TrafficBound::lowest(levels, "traffic.total_mib", total);
        let line = TrafficBound::lowest(levels, "budget.traffic_mib", line);
        self.total = TrafficBound::lower(total, line);
        self.account = TrafficBound::lowest(levels, "account_budget.traffic_mib", account);
        let rate = |level: &Policy| level.traffic().kib_per_s.map(|most| most * KIB);
        self.rate = TrafficBound::lowest(levels, "traffic.kib_per_s", rate).map(|bound| bound.most);
    }

    /// The bound that keeps a machine with that many connections from another one.
    pub fn limit_of(&self, connections: usize) -> Option<TrafficLimit> {
        let full = |bound: &TrafficBound| connections as u64 >= bound.most;
        match () {
            () if self.left_of_line() == Some(0) => Some(TrafficLimit::Total),
            () if self.left_of_account() == Some(0) => Some(TrafficLimit::Account),
            () if self.connections.as_ref().is_some_and(full) => Some(TrafficLimit::Connections),
            () if connections >= MOST => Some(TrafficLimit::Most),
            () => None,
        }
    }

    /// A limit as refusals name it: the reason, the policy and its rule.
    pub fn explain(&self, limit: TrafficLimit) -> (String, Option<&Name>, Option<String>) {
        let bound = match limit {
            TrafficLimit::Most => {
                return (format!("a machine has at most {MOST} connections at once"), None, None);
            }
            TrafficLimit::Connections => &self.connections,
            TrafficLimit::Total => &self.total,
            TrafficLimit::Account => &self.account,
        };
        let most = bound.as_ref().map_or(0, |bound| bound.most);
        let reason = match limit {
            TrafficLimit::Total => format!("its traffic of {} MiB is used up", most / MIB),
            TrafficLimit::Account => {
                format!("its account's traffic of {} MiB is used up", most / MIB)
            }
            _ => format!("it has at most {most} connections at once"),
        };
        let policy = bound.as_ref().map(|bound| &bound.policy);
        (reason, policy, bound.as_ref().map(|bound| bound.rule.to_owned()))
    }

    pub fn is_used_up(&self) -> bool {
        [self.left_of_line(), self.left_of_account()].contains(&Some(0))
    }

    /// The limit that is used up.
    pub fn used_up(&self) -> TrafficLimit {
        match self.left_of_line() {
            Some(0) => TrafficLimit::Total,
            _ => TrafficLimit::Account,
        }
    }

    fn left_of_line(&self) -> Option<u64> {
        self.total.as_ref().map(|total| total.most.saturating_sub(self.meter.bytes()))
    }

    fn left_of_account(&self) -> Option<u64> {
        let used = self.meter.account_bytes();
        self.account.as_ref().map(|account| account.most.saturating_sub(used))
    }

    /// Brings the rate up to date.
    pub fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled);
        self.filled = now;
        if let Some(rate) = self.rate {
            let burst = (rate as f64 * BURST).max(LEAST);
            self.tokens = (self.tokens + passed.as_secs_f64() * rate as f64).min(burst);
        }
    }

    /// Bytes that may pass now.
    pub fn room(&self) -> usize {
        let left = self.left_of_line().into_iter().chain(self.left_of_account());
        let now = self.rate.map(|_| self.tokens.max(0.0) as u64);
        left.chain(now).min().map_or(usize::MAX, |room| room as usize)
    }

    pub fn has_room(&self) -> bool {
        self.room() > 0
    }

    pub fn count(&mut self, bytes: usize) {
        self.meter.add(bytes);
        if self.rate.is_some() {
            self.tokens -= bytes as f64;
        }
    }

    /// Time until bytes may pass again, if it is the rate that they wait for.
    pub fn rest(&self) -> Option<Duration> {
        /// Fewer are not worth waking up for.
        const WORTH: f64 = 4096.0;
        let rate = self.rate? as f64;
        let missing = (WORTH - self.tokens).max(0.0);
        (!self.has_room() && !self.is_used_up()).then(|| Duration::from_secs_f64(missing / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_policy::document;

    fn level(name: &str, text: &str) -> Arc<Policy> {
        let document = document::parse(text).expect("a document");
        Arc::new(Policy::compile(name.parse().expect("a name"), &document).expect("a policy"))
    }

    #[test]
    fn the_lowest_limit_counts() {
        let meter = Arc::<TrafficMeter>::default();
        let start = Instant::now();
        let mut traffic = RelayTraffic::new(meter.clone(), start);
        assert_eq!((traffic.room(), traffic.rest()), (usize::MAX, None));
        let wide = level("wide", "[traffic]\nconnections = 9\nkib_per_s = 100\ntotal_mib = 2");
        let low = level("low", "[traffic]\nconnections = 4\ntotal_mib = 1");
        traffic.limit(&[wide, low]);
        let policy = "low".parse().expect("a name");
        let rule = "traffic.connections";
        assert_eq!(traffic.connections, Some(TrafficBound { most: 4, policy, rule }));
        assert!(!traffic.has_room(), "nothing has been saved up");
        assert_eq!(traffic.rest(), Some(Duration::from_millis(40)));
        traffic.fill(start + Duration::from_secs(60));
        assert_eq!(traffic.room(), 16384, "a burst, however long it waited");
        traffic.count(20_000);
        assert!(!traffic.has_room());
        traffic.fill(start + Duration::from_secs(61));
        assert!(traffic.has_room() && !traffic.is_used_up());
        traffic.count(1 << 20);
        assert!(traffic.is_used_up() && traffic.rest().is_none());
        // another machine of the same line
        let mut other = RelayTraffic::new(meter, start);
        other.limit(&[level("low", "[traffic]\ntotal_mib = 1")]);
        assert!(other.is_used_up());
        other.limit(&[]);
        assert!(other.has_room());
    }

    #[test]
    fn an_account_has_a_total_for_all_its_lines() {
        let account = Arc::<TrafficMeter>::default();
        let line = || {
            let meter = Arc::new(TrafficMeter::of(account.clone()));
            let mut traffic = RelayTraffic::new(meter, Instant::now());
            let text = "[budget]\ntraffic_mib = 2\n[account_budget]\ntraffic_mib = 3";
            traffic.limit(&[level("low", text)]);
            traffic
        };
        let (mut one, mut other) = (line(), line());
        one.count(2 << 20);
        assert_eq!(one.limit_of(0), Some(TrafficLimit::Total));
        assert_eq!(one.explain(TrafficLimit::Total).2.as_deref(), Some("budget.traffic_mib"));
        assert_eq!((other.limit_of(0), other.room()), (None, 1 << 20));
        other.count(1 << 20);
        assert_eq!(other.limit_of(0), Some(TrafficLimit::Account));
        let (said, _, rule) = other.explain(TrafficLimit::Account);
        assert_eq!(rule.as_deref(), Some("account_budget.traffic_mib"), "{said}");
    }
}
