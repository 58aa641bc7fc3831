//! Resources that are prepared ahead of requests: one policy and one memory budget for all kinds.
//!
//!   sandboxes   around the roots used last           ─┐
//!   processes   clones that wait for their image      ├─► each has a share of the budget
//!   machines    restored trees of templates           │
//!   templates   states that many branches start from ─┘
//!
//! When a request finds none ready, the pool makes twice as many afterwards. After a lull it
//! shrinks, after a long one further. If the budget is used up, no more sandboxes, processes and
//! machines are made, and requests make their own. Templates for a burst are always made: without
//! them each branch would have a copy of what they hold.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Unused time after which a pool shrinks.
pub const LULL: Duration = Duration::from_secs(30);
pub const LONG_LULL: Duration = Duration::from_secs(300);
/// Share of the host's memory that may be used in advance.
const SHARE: u64 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreparedKind {
    Sandbox,
    Process,
    Machine,
    Template,
}

impl PreparedKind {
    pub const ALL: [PreparedKind; 4] = [
        PreparedKind::Sandbox,
        PreparedKind::Process,
        PreparedKind::Machine,
        PreparedKind::Template,
    ];

    pub fn name(self) -> &'static str {
        ["sandbox", "process", "machine", "template"][self as usize]
    }

    /// Typical memory of one, the kernel's included. A process and a machine have a sandbox each.
    fn bytes(self) -> u64 {
        const KIB: u64 = 1 << 10;
        [640 * KIB, 1792 * KIB, 4096 * KIB, 0][self as usize]
    }
}

/// Sizes of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolSizes {
    /// At first.
    pub first: usize,
    pub most: usize,
    pub after_lull: usize,
    pub after_long_lull: usize,
}

/// How much is prepared at first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Preparation {
    #[default]
    Usual,
    /// At most two of a kind, until a burst needs more. Engines that live as long as a test spend
    /// most of their time on the rest otherwise: it is made, never used, and ended with them.
    Little,
}

impl Preparation {
    pub fn sizes(self, usual: PoolSizes) -> PoolSizes {
        match self {
            Preparation::Usual => usual,
            Preparation::Little => PoolSizes { first: usual.first.min(2), ..usual },
        }
    }
}

/// How many of a pool should be ready.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    sizes: PoolSizes,
    pub wanted: usize,
    /// The last request.
    pub asked: Instant,
}

impl Demand {
    /// Before its first request.
    pub fn new(sizes: PoolSizes, now: Instant) -> Demand {
        Demand { sizes, wanted: 0, asked: now }
    }

    /// A request came, which found some ready or not.
    pub fn ask(&mut self, found: bool, now: Instant) {
        self.asked = now;
        if !found {
            self.wanted = (2 * self.wanted).clamp(self.sizes.first, self.sizes.most);
        }
    }

    /// How many may stay, when none was requested for a while.
    pub fn relax(&mut self, now: Instant) -> usize {
        let most = match now.saturating_duration_since(self.asked) {
            idle if idle >= LONG_LULL => self.sizes.after_long_lull,
            idle if idle >= LULL => self.sizes.after_lull,
            _ => self.sizes.most,
        };
        self.wanted = self.wanted.min(most);
        most
    }

    /// All were dropped: until the next request only a few are made again.
    pub fn start_over(&mut self) {
        self.wanted = self.wanted.min(self.sizes.after_long_lull);
    }
}

/// Memory for everything that is prepared, in bytes.
pub struct PreparedBudget {
    most: u64,
    used: Mutex<[u64; PreparedKind::ALL.len()]>,
}

impl PreparedBudget {
    pub fn of_host() -> Arc<PreparedBudget> {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = total.and_then(|text| text.trim().strip_suffix("kB")?.trim().parse().ok());
        PreparedBudget::new(kib.unwrap_or(0_u64).saturating_mul(1024) / SHARE)
    }

    fn new(most: u64) -> Arc<PreparedBudget> {
        Arc::new(PreparedBudget { most, used: Mutex::default() })
    }

    pub fn most(&self) -> u64 {
        self.most
    }

    pub fn used(&self, kind: PreparedKind) -> u64 {
        self.used.lock()[kind as usize]
    }

    /// A share for one more, if there is room.
    pub fn admit(self: &Arc<Self>, kind: PreparedKind) -> Option<PreparedShare> {
        let mut used = self.used.lock();
        let fits = used.iter().sum::<u64>() + kind.bytes() <= self.most;
        fits.then(|| self.share(&mut used, kind, kind.bytes()))
    }

    /// A share of this size, whether or not there is room.
    pub fn charge(self: &Arc<Self>, kind: PreparedKind, bytes: u64) -> PreparedShare {
        self.share(&mut self.used.lock(), kind, bytes)
    }

    fn share(
        self: &Arc<Self>,
        used: &mut [u64; PreparedKind::ALL.len()],
        kind: PreparedKind,
        bytes: u64,
    ) -> PreparedShare {
        used[kind as usize] += bytes;
        PreparedShare { budget: self.clone(), kind, bytes }
    }
}

/// A part of the budget, until it is dropped.
pub struct PreparedShare {
    budget: Arc<PreparedBudget>,
    kind: PreparedKind,
    bytes: u64,
}

impl Drop for PreparedShare {
    fn drop(&mut self) {
        self.budget.used.lock()[self.kind as usize] -= self.bytes;
    }
}

/// A resource that waits for its request.
pub struct PreparedItem<T> {
    item: T,
    _share: PreparedShare,
}

impl<T> PreparedItem<T> {
    pub fn new(item: T, share: PreparedShare) -> PreparedItem<T> {
        PreparedItem { item, _share: share }
    }

    /// It is used from now on, and no longer prepared.
    pub fn taken(self) -> T {
        self.item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: PoolSizes = PoolSizes { first: 2, most: 16, after_lull: 4, after_long_lull: 1 };

    #[test]
    fn demand_grows_with_bursts_and_shrinks_in_lulls() {
        let now = Instant::now();
        let mut demand = Demand::new(SIZES, now);
        let wanted: Vec<usize> = (0..5)
            .map(|_| {
                demand.ask(false, now);
                demand.wanted
            })
            .collect();
        assert_eq!(wanted, [2, 4, 8, 16, 16]);
        demand.ask(true, now);
        assert_eq!((demand.relax(now), demand.wanted), (16, 16));
        assert_eq!((demand.relax(now + LULL), demand.wanted), (4, 4));
        assert_eq!((demand.relax(now + LONG_LULL), demand.wanted), (1, 1));
        demand.ask(false, now + LONG_LULL);
        assert_eq!(demand.wanted, 2);
        demand.start_over();
        assert_eq!(demand.wanted, 1);
    }

    #[test]
    fn little_is_prepared_until_a_burst_needs_more() {
        let now = Instant::now();
        let mut demand =
            Demand::new(Preparation::Little.sizes(PoolSizes { first: 8, ..SIZES }), now);
        let wanted: Vec<usize> = (0..4)
            .map(|_| {
                demand.ask(false, now);
                demand.wanted
            })
            .collect();
        assert_eq!(wanted, [2, 4, 8, 16]);
    }

    #[test]
    fn a_budget_is_shared_by_all_kinds_and_given_back() {
        let room = PreparedKind::Machine.bytes() + PreparedKind::Sandbox.bytes();
        let budget = PreparedBudget::new(room);
        let machine = budget.admit(PreparedKind::Machine).expect("room for a machine");
        assert!(budget.admit(PreparedKind::Process).is_none());
        let sandbox = budget.admit(PreparedKind::Sandbox).map(|share| PreparedItem::new(7, share));
        assert!(budget.admit(PreparedKind::Sandbox).is_none());
        assert_eq!(sandbox.map(PreparedItem::taken), Some(7));
        assert_eq!(budget.used(PreparedKind::Sandbox), 0);
        let burst = budget.charge(PreparedKind::Template, 2 * room);
        assert!(budget.admit(PreparedKind::Sandbox).is_none());
        drop((burst, machine));
        assert!(PreparedKind::ALL.iter().all(|kind| budget.used(*kind) == 0));
        assert!(budget.admit(PreparedKind::Machine).is_some());
    }
}
