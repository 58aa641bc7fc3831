//! A pool of restored templates for new machines.
//!
//!   new machine ──take──► pool of its template ◄──add── a thread, while no restore waits
//!
//! The first order to a new machine's tree contains the machine's name. A pool starts small,
//! doubles when it runs empty, and shrinks after a lull. A tree that ended in the pool (memory ran
//! out) is skipped; if none can be made, machines start without.

use crate::host::HostInner;
use crate::wake::{RestoredTree, restore};
use parking_lot::{Condvar, Mutex, MutexGuard};
use stasis_engine::{Demand, ImageId, PoolSizes, Preparation, PreparedItem, PreparedKind};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STANDBY: PoolSizes = PoolSizes { first: 4, most: 64, after_lull: 2, after_long_lull: 0 };
/// Templates with a pool.
const POOLS: usize = 4;
/// Quiet time after a tree was taken before more are made, so as not to compete with new machines.
const QUIET: Duration = Duration::from_millis(10);

/// Ready and wanted trees of each pool: pure, so that it can be tested without trees.
struct Pools<T>(HashMap<ImageId, Pool<T>>, PoolSizes);

struct Pool<T> {
    standing: Vec<T>,
    demand: Demand,
}

impl<T> Pools<T> {
    /// Takes a tree of an image out of its pool.
    fn take(&mut self, image: ImageId, now: Instant) -> Option<T> {
        if !self.0.contains_key(&image) {
            self.make_room();
        }
        let sizes = self.1;
        let new = || Pool { standing: Vec::new(), demand: Demand::new(sizes, now) };
        let pool = self.0.entry(image).or_insert_with(new);
        let one = pool.standing.pop();
        pool.demand.ask(one.is_some(), now);
        one
    }

    /// Drops the least recently used pool when there are too many.
    fn make_room(&mut self) {
        let oldest = self.0.iter().min_by_key(|(_, pool)| pool.demand.asked);
        if self.0.len() >= POOLS
            && let Some(image) = oldest.map(|(image, _)| *image)
        {
            self.0.remove(&image);
        }
    }

    /// An image whose pool has fewer trees than wanted, in a quiet time.
    fn lacking(&self, now: Instant) -> Option<ImageId> {
        let quiet = |pool: &Pool<T>| now.duration_since(pool.demand.asked) >= QUIET;
        let mut pools = self.0.iter();
        let lacks = |pool: &Pool<T>| quiet(pool) && pool.standing.len() < pool.demand.wanted;
        pools.find(|(_, pool)| lacks(pool)).map(|(image, _)| *image)
    }

    fn add(&mut self, image: ImageId, one: T) {
        if let Some(pool) = self.0.get_mut(&image) {
            pool.standing.push(one);
        }
    }

    /// Removes trees that were not needed for a while.
    fn thin_out(&mut self, now: Instant) -> Vec<T> {
        let mut gone = Vec::new();
        for pool in self.0.values_mut() {
            let keep = pool.demand.relax(now).min(pool.standing.len());
            gone.extend(pool.standing.drain(keep..));
        }
        gone
    }
}

pub struct StandbyPool {
    pools: Mutex<Pools<PreparedItem<RestoredTree>>>,
    asked: Condvar,
    over: AtomicBool,
}

impl StandbyPool {
    pub fn new(preparation: Preparation) -> StandbyPool {
        StandbyPool {
            pools: Mutex::new(Pools(HashMap::new(), preparation.sizes(STANDBY))),
            asked: Condvar::new(),
            over: AtomicBool::new(false),
        }
    }

    fn pools(&self) -> MutexGuard<'_, Pools<PreparedItem<RestoredTree>>> {
        self.pools.lock()
    }

    /// A ready tree of this image, if any.
    pub fn take(&self, image: ImageId) -> Option<RestoredTree> {
        let next = || self.pools().take(image, Instant::now()).map(PreparedItem::taken);
        let mut taken = next();
        while let Some(dead) = taken.take_if(|made| !made.tree.is_alive()) {
            drop(dead);
            taken = next();
        }
        self.asked.notify_one();
        taken
    }

    /// Number of ready trees.
    pub fn standing(&self) -> usize {
        self.pools().0.values().map(|pool| pool.standing.len()).sum()
    }

    /// Drops the pool of an image that is no longer a template.
    pub fn forget(&self, image: ImageId) {
        let gone = self.pools().0.remove(&image);
        drop(gone);
    }

    /// Drops all pools. They fill again on the next request.
    pub fn clear(&self) {
        let gone = std::mem::take(&mut self.pools().0);
        drop(gone);
    }

    /// Ends all trees; none is made afterwards.
    pub fn end(&self) {
        {
            // not between the thread's last check and its wait, which would then be a long one
            let _pools = self.pools();
            self.over.store(true, Ordering::Relaxed);
        }
        self.asked.notify_one();
        self.clear();
    }
}

/// The thread that fills the pools; it ends with `StandbyPool::end`.
pub fn start(host: &Arc<HostInner>) -> std::io::Result<JoinHandle<()>> {
    let host = Arc::downgrade(host);
    std::thread::Builder::new().name("stasis-standby".into()).spawn(move || keep_ready(&host))
}

fn keep_ready(host: &Weak<HostInner>) {
    /// Pause after a failure, which the next restore meets and reports.
    const AFTER_FAILURE: Duration = Duration::from_secs(5);
    const LOOK: Duration = Duration::from_secs(5);
    const LATER: Duration = Duration::from_millis(20);
    while let Some(host) = host.upgrade() {
        let standby = &host.standby;
        if standby.over.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let gone = standby.pools().thin_out(now);
        drop(gone);
        let lacking = standby.pools().lacking(now);
        let wait = match lacking {
            Some(image) if !host.may_stand(image) => LATER,
            Some(image) => match host.engine.budget().admit(PreparedKind::Machine) {
                Some(share) => match restore(&host, image, "") {
                    Ok(made) => {
                        standby.pools().add(image, PreparedItem::new(made, share));
                        continue;
                    }
                    Err(_) => AFTER_FAILURE,
                },
                None => LOOK,
            },
            None if standby.pools().lacking(now + QUIET).is_some() => QUIET,
            None => LOOK,
        };
        let mut pools = standby.pools();
        if !standby.over.load(Ordering::Relaxed) {
            standby.asked.wait_for(&mut pools, wait);
        }
    }
}

impl HostInner {
    /// Whether a tree may be made ahead: not from a template that does not exist yet, and not while
    /// many machines are entering memory.
    fn may_stand(&self, image: ImageId) -> bool {
        self.warm.is_parked(image) && !self.traffic.is_arriving()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pinned::tests::image;
    use stasis_engine::{LONG_LULL, LULL};

    fn fill(pools: &mut Pools<u32>, now: Instant) -> usize {
        let mut made = 0;
        while let Some(image) = pools.lacking(now) {
            pools.add(image, made);
            made += 1;
        }
        made as usize
    }

    #[test]
    fn a_pool_grows_with_bursts_and_shrinks_in_lulls() {
        let now = Instant::now();
        let mut pools = Pools(HashMap::new(), STANDBY);
        assert_eq!(pools.take(image("a"), now), None);
        assert_eq!(pools.lacking(now), None, "not while restores are under way");
        assert_eq!(fill(&mut pools, now + QUIET), STANDBY.first);
        let burst = now + QUIET;
        let had = (0..100).filter_map(|_| pools.take(image("a"), burst)).count();
        assert_eq!(had, STANDBY.first);
        assert_eq!(fill(&mut pools, burst + QUIET), STANDBY.most);
        let gone = pools.thin_out(burst + LULL).len();
        assert_eq!(gone, STANDBY.most - STANDBY.after_lull);
        assert_eq!(pools.lacking(burst + LULL), None);
        assert_eq!(pools.thin_out(burst + LONG_LULL).len(), STANDBY.after_lull);
        assert_eq!(pools.lacking(burst + LONG_LULL), None);
    }

    #[test]
    fn the_template_asked_longest_ago_makes_room() {
        let now = Instant::now();
        let mut pools: Pools<u32> = Pools(HashMap::new(), STANDBY);
        for index in 0..=POOLS {
            let _ = pools.take(image(&index.to_string()), now + QUIET * index as u32);
        }
        assert_eq!(pools.0.len(), POOLS);
        assert!(!pools.0.contains_key(&image("0")));
    }
}
