//! Clones forked ahead: each waits at its gate, in walls of its own, for an image to become.
//!
//!   restore ──take──► pool of a template and a root ◄──add── a thread, while no restore waits
//!
//! Forking is the longest step of a restore, and depends only on the template, the sandbox and the
//! root's pid. A pool is created at its first request, and filled from the second on: machines with
//! files of their own each have their own root, which is rarely used again soon. An empty pool
//! doubles its size; an unused one is emptied after a while. Images with sockets do without: those
//! are made under pids that an existing clone would have taken. An exited clone is skipped; if none
//! can be forked, restores fork for themselves.

use crate::clone::ProcessClone;
use crate::error::{ErrorContext, Result};
use crate::fair_queue::FairQueue;
use crate::prepared::{
    Demand, LULL, PoolSizes, PreparedBudget, PreparedItem, PreparedKind, PreparedShare,
};
use crate::restore::RestoreTarget;
use crate::template::Template;
use crate::walls::WallsPool;
use parking_lot::{Condvar, Mutex, MutexGuard};
use stasis_image::ImageId;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The size of a pool from its second request on.
const SPARES: PoolSizes = PoolSizes { first: 2, most: 64, after_lull: 0, after_long_lull: 0 };
/// Pools remembered.
const POOLS: usize = 8;
/// Quiet time after a request before more are forked, so as not to compete with restores.
const QUIET: Duration = Duration::from_millis(8);

/// The key of a spare clone.
#[derive(Clone, PartialEq, Eq)]
pub struct SpareKey {
    /// The image whose template it is forked from.
    pub template: ImageId,
    pub lower: Vec<String>,
    /// The root's number inside.
    pub pid: i32,
}

struct Pool<T> {
    fit: SpareKey,
    standing: Vec<T>,
    demand: Demand,
}

/// Most recently asked first. Pure, so that it can be tested without clones.
struct Pools<T>(VecDeque<Pool<T>>);

impl<T> Default for Pools<T> {
    fn default() -> Pools<T> {
        Pools(VecDeque::new())
    }
}

impl<T> Pools<T> {
    fn take(&mut self, fit: &SpareKey, now: Instant) -> Option<T> {
        let known = self.0.iter().position(|pool| pool.fit == *fit);
        let mut pool = match known.and_then(|index| self.0.remove(index)) {
            Some(pool) => pool,
            None => {
                let demand = Demand::new(SPARES, now);
                Pool { fit: fit.clone(), standing: Vec::new(), demand }
            }
        };
        let one = pool.standing.pop();
        pool.demand.ask(known.is_none() || one.is_some(), now);
        self.0.push_front(pool);
        one
    }

    /// A pool with fewer clones than wanted, if there was no recent request.
    fn lacking(&self, now: Instant) -> Option<SpareKey> {
        let last = self.0.front()?.demand.asked;
        let lacks = |pool: &&Pool<T>| pool.standing.len() < pool.demand.wanted;
        let quiet = now.duration_since(last) >= QUIET;
        self.0.iter().find(lacks).filter(|_| quiet).map(|pool| pool.fit.clone())
    }

    fn add(&mut self, fit: &SpareKey, one: T) {
        if let Some(pool) = self.0.iter_mut().find(|pool| pool.fit == *fit) {
            pool.standing.push(one);
        }
    }

    /// Removes unused clones, and pools beyond the last one remembered.
    fn thin_out(&mut self, now: Instant) -> Vec<Pool<T>> {
        let fresh = self.0.iter().take(POOLS);
        let kept = fresh.take_while(|pool| now.duration_since(pool.demand.asked) < LULL).count();
        self.0.drain(kept..).collect()
    }

    fn remove(&mut self, gone: impl Fn(&SpareKey) -> bool) -> Vec<Pool<T>> {
        let all = std::mem::take(&mut self.0);
        let (old, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|pool| gone(&pool.fit));
        self.0 = kept.into();
        old
    }
}

struct Shared {
    walls: Arc<WallsPool>,
    captures: Arc<FairQueue>,
    budget: Arc<PreparedBudget>,
    pools: Mutex<Pools<PreparedItem<RestoreTarget>>>,
    /// Templates of the pools, to fork from while they are there.
    templates: Mutex<VecDeque<Weak<Template>>>,
    asked: Condvar,
    over: AtomicBool,
}

/// Ends with its thread, and everything that waits.
pub struct SparePool {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for SparePool {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.asked.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl SparePool {
    pub fn start(
        walls: Arc<WallsPool>,
        captures: Arc<FairQueue>,
        budget: Arc<PreparedBudget>,
    ) -> Result<SparePool> {
        let shared = Arc::new(Shared {
            walls,
            captures,
            budget,
            pools: Mutex::default(),
            templates: Mutex::default(),
            asked: Condvar::new(),
            over: AtomicBool::new(false),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("stasis-spares".into());
        let thread = thread.spawn(move || own.keep_filled()).doing(|| "start a thread".into())?;
        Ok(SparePool { shared, thread: Some(thread) })
    }

    /// Walls with a clone that waits in them, if there are any of this use.
    pub fn take(&self, fit: &SpareKey, template: &Arc<Template>) -> Option<RestoreTarget> {
        self.shared.remember(template);
        let next = || self.shared.pools().take(fit, Instant::now()).map(PreparedItem::taken);
        let mut taken = next();
        while let Some(dead) = taken.take_if(|ground| !waits(ground)) {
            drop(dead);
            taken = next();
        }
        self.shared.asked.notify_one();
        taken
    }

    /// How many wait.
    pub fn standing(&self) -> usize {
        self.shared.pools().0.iter().map(|pool| pool.standing.len()).sum()
    }

    /// Lets go of those that were forked from a template.
    pub fn forget(&self, template: ImageId) {
        drop(self.shared.remove(|fit| fit.template == template));
    }

    /// Drops clones around removed layers.
    pub fn forget_layers(&self, layers: &[PathBuf]) {
        let gone = |dir: &String| layers.iter().any(|layer| Path::new(dir) == layer);
        drop(self.shared.remove(|fit| fit.lower.iter().any(gone)));
    }

    pub fn clear(&self) {
        drop(self.shared.remove(|_| true));
    }
}

fn waits(ground: &RestoreTarget) -> bool {
    ground.spare.as_ref().is_some_and(ProcessClone::is_waiting)
}

impl Shared {
    fn pools(&self) -> MutexGuard<'_, Pools<PreparedItem<RestoreTarget>>> {
        self.pools.lock()
    }

    fn remove(&self, gone: impl Fn(&SpareKey) -> bool) -> Vec<Pool<PreparedItem<RestoreTarget>>> {
        self.pools().remove(gone)
    }

    fn remember(&self, template: &Arc<Template>) {
        let mut known = self.templates.lock();
        known.retain(|known| known.upgrade().is_some_and(|known| !Arc::ptr_eq(&known, template)));
        known.push_front(Arc::downgrade(template));
        known.truncate(POOLS);
    }

    fn template(&self, image: ImageId) -> Option<Arc<Template>> {
        let known = self.templates.lock();
        let mut alive = known.iter().filter_map(Weak::upgrade);
        alive.find(|template| template.image().is_some_and(|held| held.id == image))
    }

    fn keep_filled(&self) {
        const LOOK: Duration = Duration::from_millis(4);
        const IDLE: Duration = Duration::from_millis(200);
        while !self.over.load(Ordering::Relaxed) {
            let old = self.pools().thin_out(Instant::now());
            drop(old);
            let lacking = self.pools().lacking(Instant::now());
            let share = || self.budget.admit(PreparedKind::Process);
            let lacking = lacking.filter(|_| !self.captures.any_taken());
            match lacking.and_then(|fit| Some((fit, share()?))) {
                Some((fit, share)) => self.fill(&fit, share),
                None => {
                    let mut pools = self.pools();
                    let busy = pools.0.iter().any(|pool| pool.standing.len() < pool.demand.wanted);
                    self.asked.wait_for(&mut pools, if busy { LOOK } else { IDLE });
                }
            }
        }
        self.remove(|_| true);
    }

    /// One more; a pool that cannot be filled is forgotten.
    fn fill(&self, fit: &SpareKey, share: PreparedShare) {
        match self.fork(fit) {
            Some(ground) => self.pools().add(fit, PreparedItem::new(ground, share)),
            None => drop(self.remove(|other| other == fit)),
        }
    }

    fn fork(&self, fit: &SpareKey) -> Option<RestoreTarget> {
        let template = self.template(fit.template)?;
        let walls = self.walls.take(fit.lower.clone()).ok()?;
        let clone = ProcessClone::fork_into(&template, &walls, fit.pid).ok()?;
        Some(RestoreTarget { walls, spare: Some(clone) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> SpareKey {
        let template = ImageId::of(b"a template");
        SpareKey { template, lower: vec![name.into()], pid: 2 }
    }

    #[test]
    fn a_pool_is_filled_from_the_second_time_on_and_grows_with_bursts() {
        let (mut pools, start) = (Pools::<u8>::default(), Instant::now());
        let later = start + QUIET;
        assert!(pools.take(&of("a"), start).is_none());
        assert!(pools.lacking(later).is_none());
        assert!(pools.take(&of("a"), start).is_none());
        assert!(pools.lacking(start).is_none(), "somebody asked just now");
        for _ in 0..SPARES.first {
            assert!(pools.lacking(later).is_some());
            pools.add(&of("a"), 1);
        }
        assert!(pools.lacking(later).is_none());
        for _ in 0..SPARES.first {
            assert!(pools.take(&of("a"), later).is_some());
        }
        assert!(pools.take(&of("a"), later).is_none());
        assert_eq!(pools.0[0].demand.wanted, 2 * SPARES.first);
    }

    #[test]
    fn what_is_not_asked_for_goes_and_so_does_what_is_forgotten() {
        let (mut pools, start) = (Pools::<u8>::default(), Instant::now());
        pools.take(&of("old"), start);
        pools.add(&of("old"), 1);
        pools.take(&of("new"), start + LULL);
        assert_eq!(pools.thin_out(start + LULL).len(), 1);
        assert_eq!(pools.remove(|fit| fit.lower == ["new"]).len(), 1);
        assert!(pools.0.is_empty());
    }
}
