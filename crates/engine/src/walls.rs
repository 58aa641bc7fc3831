//! Walls for trees: built on demand, with a few standing ready.
//!
//! Creating namespaces costs more than forking into them, so after sandboxes for a root were
//! requested, a thread builds a few more like them while none is requested. A burst takes those
//! first and then waits for its own; the next one finds more. A ready sandbox holds an init and an
//! empty directory, nothing else, and ends with the engine.

use crate::confine::{Confinement, MachineSlot};
use crate::disk::DiskAccount;
use crate::disk_watch::DiskWatch;
use crate::error::{Error, ErrorContext, Result};
use crate::fair_queue::FairQueue;
use crate::prepared::{Demand, PoolSizes, Preparation, PreparedBudget, PreparedItem, PreparedKind};
use crate::spawner::{Init, Spawner};
use parking_lot::{Condvar, Mutex, MutexGuard};
use stasis_sandbox::{Cgroup, IdRange, Ids};
use stasis_spawner::protocol::{Entrance, InitRequest, NetworkLink, RootSpec, WallsSpec};
use stasis_store::{Keepers, private_dir};
use stasis_sys::{files, trees};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many stand ready for each root.
const READY: PoolSizes = PoolSizes { first: 24, most: 112, after_lull: 24, after_long_lull: 4 };
/// For how many roots.
const ROOTS: usize = 2;
/// Quiet time after a request before more are built, so as not to compete with it: a burst is
/// over after the first, and few are left when it is not worth waiting for that.
const QUIET: Duration = Duration::from_millis(15);
const QUIET_WHEN_FEW: Duration = Duration::from_millis(3);
/// Quiet time after the last request, during which restores have the processors for themselves: a
/// burst requests all sandboxes first.
const HEAD_START: Duration = Duration::from_millis(60);
const HEAD_START_EACH: Duration = Duration::from_millis(10);

const UPPER: &str = "upper";

pub const HOSTNAME: &str = "stasis";

/// A tree's walls: its init, and the directories of its overlay.
pub struct Walls {
    pub init: Init,
    pub files: RootSpec,
    pub group: Arc<Cgroup>,
    /// How a restored process gets into the machine's cgroup.
    pub entrances: Vec<OwnedFd>,
    pub entrance: Entrance,
    /// No process inside can enter other namespaces: the filter refuses every call that would.
    pub sealed: bool,
    /// Read by the thread that watches disks.
    pub disk: Arc<DiskAccount>,
    _ids: IdRange,
    _dir: RunDir,
}

impl Walls {
    pub fn ids(&self) -> Ids {
        self.init.ids
    }

    /// Makes the interface that leads outside; where its packets come and go. Programs are to trust
    /// the certificates in two files: those of the host, and those of the machine.
    pub fn open_network(&self, link: NetworkLink, trusted: &[BorrowedFd]) -> Result<OwnedFd> {
        self.init.ask(&InitRequest::Network(link), trusted)?.pop().ok_or(Error::Gone)
    }
}

/// A running tree's own directory; removed with it. Data that must outlive it is in an image, or in
/// an inode that one needs.
pub struct RunDir {
    path: PathBuf,
    keepers: Arc<Keepers>,
}

impl Drop for RunDir {
    fn drop(&mut self) {
        self.keepers.release(&self.path.join(UPPER));
        let _ = trees::remove(&self.path);
    }
}

pub struct WallsPool {
    shared: Arc<Shared>,
    builder: Option<JoinHandle<()>>,
}

impl Drop for WallsPool {
    /// After an engine ends, its directories may be removed: nothing is built after this.
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.asked.notify_all();
        if let Some(builder) = self.builder.take() {
            let _ = builder.join();
        }
    }
}

struct Shared {
    spawner: Spawner,
    confinement: Arc<Confinement>,
    disk: DiskWatch,
    run_dir: PathBuf,
    keepers: Arc<Keepers>,
    captures: Arc<FairQueue>,
    budget: Arc<PreparedBudget>,
    sizes: PoolSizes,
    restores: AtomicUsize,
    next: AtomicU64,
    ready: Mutex<Ready>,
    asked: Condvar,
    over: AtomicBool,
}

#[derive(Default)]
struct Ready {
    /// Most recently used root first.
    roots: VecDeque<Standing>,
    asked_at: Option<Instant>,
}

/// Walls around one root.
struct Standing<T = PreparedItem<Walls>> {
    lower: Vec<String>,
    walls: Vec<T>,
    demand: Demand,
}

impl<T> Standing<T> {
    /// Removes sandboxes kept for bursts, when none has come for a while.
    fn thin_out(&mut self, now: Instant) -> Vec<T> {
        let most = self.demand.relax(now);
        self.walls.split_off(self.walls.len().min(most))
    }

    /// Removes all; only a few are built again before the next request.
    fn empty(&mut self) -> Vec<T> {
        self.demand.start_over();
        std::mem::take(&mut self.walls)
    }
}

/// A restore under way, to which the builder leaves the processors.
pub struct Restoring<'a>(&'a AtomicUsize);

impl Drop for Restoring<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WallsPool {
    pub fn start(
        spawner: Spawner,
        run_dir: &Path,
        confinement: Arc<Confinement>,
        keepers: Arc<Keepers>,
        captures: Arc<FairQueue>,
        (budget, preparation): (Arc<PreparedBudget>, Preparation),
    ) -> Result<WallsPool> {
        private_dir(run_dir).doing(|| format!("make {}", run_dir.display()))?;
        remove_leftovers(run_dir);
        scatter(run_dir);
        let shared = Arc::new(Shared {
            spawner,
            confinement,
            disk: DiskWatch::start()?,
            run_dir: run_dir.to_owned(),
            keepers,
            captures,
            budget,
            sizes: preparation.sizes(READY),
            restores: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            ready: Mutex::default(),
            asked: Condvar::new(),
            over: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&shared);
        let builder = std::thread::Builder::new()
            .name("stasis-walls".into())
            .spawn(move || keep_ready(&weak))
            .doing(|| "start a thread".into())?;
        Ok(WallsPool { shared, builder: Some(builder) })
    }

    pub fn spawner(&self) -> &Spawner {
        &self.shared.spawner
    }

    /// Says that something is being restored, until what this gives is dropped.
    pub fn restoring(&self) -> Restoring<'_> {
        self.shared.restores.fetch_add(1, Ordering::Relaxed);
        Restoring(&self.shared.restores)
    }

    /// Walls around `lower`, topmost layer first, standing.
    pub fn take(&self, lower: Vec<String>) -> Result<Walls> {
        let walls = match self.shared.take_ready(&lower) {
            Some(walls) => walls,
            None => {
                let walls = self.shared.build(lower, |_| Ok(()))?;
                walls.init.wait_ready()?;
                walls
            }
        };
        self.shared.disk.add(&walls)?;
        Ok(walls)
    }

    /// The same with an upper directory that `fill` puts files into. None of these stand ready.
    pub fn make(
        &self,
        lower: Vec<String>,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Walls> {
        let walls = self.shared.build(lower, fill)?;
        walls.init.wait_ready()?;
        self.shared.disk.add(&walls)?;
        Ok(walls)
    }

    /// How many stand ready.
    pub fn standing(&self) -> usize {
        self.shared.ready().roots.iter().map(|standing| standing.walls.len()).sum()
    }

    /// Lets all go that stand ready, when memory is short.
    pub fn clear(&self) {
        let mut ready = self.shared.ready();
        let gone: Vec<Vec<_>> = ready.roots.iter_mut().map(Standing::empty).collect();
        drop(ready);
        drop(gone);
    }

    /// Drops sandboxes around removed layers.
    pub fn forget(&self, layers: &[PathBuf]) {
        let gone = |dir: &String| layers.iter().any(|layer| Path::new(dir) == layer);
        let mut ready = self.shared.ready();
        let (old, roots) = std::mem::take(&mut ready.roots)
            .into_iter()
            .partition(|standing| standing.lower.iter().any(gone));
        ready.roots = roots;
        drop(ready);
        drop::<VecDeque<Standing>>(old);
    }
}

impl Shared {
    fn ready(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock()
    }

    fn take_ready(&self, lower: &[String]) -> Option<Walls> {
        let mut ready = self.ready();
        ready.asked_at = Some(Instant::now());
        let known = ready.roots.iter().position(|standing| standing.lower == lower);
        let now = Instant::now();
        let mut standing = match known {
            Some(index) => ready.roots.remove(index)?,
            None => {
                let demand = Demand::new(self.sizes, now);
                Standing { lower: lower.to_vec(), walls: Vec::new(), demand }
            }
        };
        let walls = standing.walls.pop().map(PreparedItem::taken);
        standing.demand.ask(walls.is_some(), now);
        ready.roots.push_front(standing);
        ready.roots.truncate(ROOTS);
        self.asked.notify_one();
        walls
    }

    fn build(&self, lower: Vec<String>, fill: impl FnOnce(&Path) -> Result<()>) -> Result<Walls> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let dir = self.run_dir.join(format!("{}-{number}", std::process::id()));
        let (upper, work) = (dir.join(UPPER), dir.join("work"));
        std::fs::create_dir(&dir)
            .and_then(|()| std::fs::create_dir(&upper))
            .and_then(|()| std::fs::create_dir(&work))
            .doing(|| format!("make {}", dir.display()))?;
        let dir = RunDir { path: dir, keepers: self.keepers.clone() };
        fill(&upper)?;
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let files = RootSpec { lower, upper: text(upper), work: text(work) };
        let MachineSlot { ids, group, entrances, entrance } = self.confinement.place()?;
        let spec = WallsSpec {
            hostname: HOSTNAME.into(),
            root: files.clone(),
            uid_map: vec![ids.ids().map()],
            gid_map: vec![ids.ids().map()],
            map_files: !ids.ids().is_host(),
            mask_proc: self.confinement.config.masked_proc,
            entrance,
        };
        let init = self.spawner.walls(spec, &entrances, ids.ids())?;
        let limit = self.confinement.config.limits.disk;
        let disk = Arc::new(DiskAccount::new((&files.upper).into(), init.pid, &group, limit));
        let sealed = self.confinement.config.seccomp;
        Ok(Walls { init, files, group, entrances, entrance, sealed, disk, _ids: ids, _dir: dir })
    }

    /// A root with fewer walls standing than it should have.
    fn lacking(&self) -> Option<Vec<String>> {
        let ready = self.ready();
        let is_lacking = |own: &&Standing| own.walls.len() < own.demand.wanted;
        let lacks = ready.roots.iter().find(is_lacking);
        lacks.map(|standing| standing.lower.clone())
    }

    /// The wait until there was no request for a while, nothing is being restored, and no tree is
    /// stopped for a capture. When few are left, no longer than a restore usually takes.
    fn not_quiet_yet(&self) -> Option<Duration> {
        let ready = self.ready();
        let few = ready.roots.iter().any(|root| 4 * root.walls.len() < root.demand.wanted);
        let since = ready.asked_at?.elapsed();
        let restores = self.restores.load(Ordering::Relaxed) as u32;
        let restoring = restores > 0 && since < HEAD_START.max(restores * HEAD_START_EACH);
        if restoring || (!few && self.captures.any_taken()) {
            return Some(QUIET_WHEN_FEW);
        }
        let quiet = if few { QUIET_WHEN_FEW } else { QUIET };
        let left = quiet.saturating_sub(since);
        (!left.is_zero()).then_some(left)
    }

    fn add(&self, lower: &[String], walls: PreparedItem<Walls>) {
        let mut ready = self.ready();
        if let Some(standing) = ready.roots.iter_mut().find(|own| own.lower == lower) {
            standing.walls.push(walls);
        }
    }
}

/// Builds sandboxes while none is requested, until the pool ends.
fn keep_ready(pool: &Weak<Shared>) {
    while let Some(shared) = pool.upgrade().filter(|shared| !shared.over.load(Ordering::Relaxed)) {
        if let Some(left) = shared.not_quiet_yet() {
            shared.asked.wait_for(&mut shared.ready(), left);
            continue;
        }
        let share = || shared.budget.admit(PreparedKind::Sandbox);
        match shared.lacking().and_then(|lower| Some((lower, share()?))) {
            Some((lower, share)) => {
                let built = shared.build(lower.clone(), |_| Ok(()));
                let Ok(walls) = built.and_then(|walls| walls.init.wait_ready().map(|()| walls))
                else {
                    // the next request meets the same error and reports it
                    std::thread::sleep(Duration::from_secs(1));
                    continue;
                };
                shared.add(&lower, PreparedItem::new(walls, share));
            }
            None => {
                let now = Instant::now();
                let gone: Vec<Vec<_>> =
                    shared.ready().roots.iter_mut().map(|root| root.thin_out(now)).collect();
                drop(gone);
                shared.confinement.cgroups.sweep();
                drop(shared);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Sandboxes are made and removed often, each with a directory. On file systems without the mark
/// nothing is to be done.
fn scatter(run_dir: &Path) {
    if let Ok(dir) = std::fs::File::open(run_dir) {
        let _ = files::scatter_directories(dir.as_fd());
    }
}

/// Directories of engines that have exited.
fn remove_leftovers(run_dir: &Path) {
    for entry in std::fs::read_dir(run_dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.split_once('-')?.0.parse::<u32>().ok());
        let alive = pid.is_some_and(|pid| {
            pid != std::process::id() && Path::new(&format!("/proc/{pid}")).exists()
        });
        if !alive {
            let _ = trees::remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepared::{LONG_LULL, LULL};

    #[test]
    fn what_a_burst_needed_goes_when_no_other_comes() {
        let asked = Instant::now();
        let mut demand = Demand::new(READY, asked);
        (0..4).for_each(|_| demand.ask(false, asked));
        let walls: Vec<u8> = vec![0; READY.most];
        let mut root = Standing { lower: Vec::new(), walls, demand };
        assert!(root.thin_out(asked + LULL / 2).is_empty());
        assert_eq!(root.thin_out(asked + LULL).len(), READY.most - READY.after_lull);
        assert_eq!(root.walls.len(), READY.after_lull);
        assert_eq!(
            root.thin_out(asked + LONG_LULL).len(),
            READY.after_lull - READY.after_long_lull
        );
        assert_eq!(root.demand.wanted, READY.after_long_lull);
        assert_eq!(root.empty().len(), READY.after_long_lull);
    }
}
