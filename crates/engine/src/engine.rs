//! The engine's front: launch, capture, restore, park.

use crate::capture::{self, Captured, ShareState, SourceFate};
use crate::confine::Confinement;
use crate::error::{Error, ErrorContext, Result};
use crate::fair_queue::FairQueue;
use crate::fill::PageSource;
use crate::flatten;
use crate::forks::Forks;
use crate::held;
use crate::plan;
use crate::prepared::{Preparation, PreparedBudget, PreparedKind};
use crate::restore::{self, HostFeatures, Lazy, RestoreTarget};
use crate::spare_pool::{SpareKey, SparePool};
use crate::spawner::Spawner;
use crate::template::Template;
use crate::template_pool::{TemplatePool, lacking};
use crate::tree::{self, Tree};
use crate::unsaved::UnsavedState;
use crate::validate;
use crate::walls::WallsPool;
use stasis_fault as fault;
use stasis_image::ImageId;
use stasis_image::model::{Manifest, ObjectKind, Process, ProcessState};
use stasis_sandbox::WallsConfig;
use stasis_spawner::protocol::{LaunchSpec, NetworkLink};
use stasis_store::{Collected, Image, Store};
use stasis_sys::{mount, probe, process};
use std::collections::HashSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// How an engine is set up.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Where images, packs and running trees' files are kept.
    pub dir: PathBuf,
    /// Where writable layers of running trees go; on another file system than `roots` if that is
    /// an ancestor of it.
    pub run_dir: PathBuf,
    /// Where the read-only root file systems are, by name. Images remember which one is theirs.
    /// `a+b` is a root of two directories, `a` above `b`.
    pub roots: PathBuf,
    /// The spawner's program file.
    pub spawner: PathBuf,
    pub lazy: Lazy,
    pub walls: WallsConfig,
    pub preparation: Preparation,
}

/// Outside descriptors of a tree: their targets, and their numbers inside.
pub struct OutsideFds {
    pub fds: Vec<OwnedFd>,
    pub numbers: Vec<i32>,
}

/// Sizes of the pools of prepared resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PreparedCounts {
    /// Sandboxes without a process.
    pub sandboxes: usize,
    /// Processes that wait in a sandbox for the image they are to become.
    pub processes: usize,
    /// Processes that hold the memory of an image.
    pub templates: usize,
}

pub struct Engine {
    config: EngineConfig,
    /// Before the walls: what waits in them goes first.
    spares: SparePool,
    walls: Arc<WallsPool>,
    confinement: Arc<Confinement>,
    store: Store,
    host: HostFeatures,
    blank: Arc<Template>,
    parked: TemplatePool,
    forks: Forks,
    captures: Arc<FairQueue>,
    budget: Arc<PreparedBudget>,
}

impl Engine {
    pub fn start(config: EngineConfig) -> Result<Engine> {
        // each tree in memory takes some, and restores place theirs far above a program's own
        let _ = process::raise_descriptor_limit();
        let store = Store::open(&config.dir, validate::check)?;
        let spawner = Spawner::start(&config.spawner)?;
        let confinement = Arc::new(Confinement::find(config.walls.clone())?);
        let captures = Arc::new(FairQueue::for_this_host());
        let budget = PreparedBudget::of_host();
        let walls = WallsPool::start(
            spawner,
            &config.run_dir,
            confinement.clone(),
            store.keepers().clone(),
            captures.clone(),
            (budget.clone(), config.preparation),
        )?;
        let (pid, pidfd, control) = walls.spawner().blank()?;
        let blank = Arc::new(Template::blank(pid, pidfd, control)?);
        let walls = Arc::new(walls);
        let spares = SparePool::start(walls.clone(), captures.clone(), budget.clone())?;
        let host = HostFeatures::probe(config.lazy)?;
        let (parked, forks) = (TemplatePool::default(), Forks::start()?);
        Ok(Engine {
            config,
            spares,
            walls,
            confinement,
            store,
            host,
            blank,
            parked,
            forks,
            captures,
            budget,
        })
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Starts a program in new walls around the root file system of that name.
    pub fn launch(&self, root: &str, program: LaunchSpec, outside: OutsideFds) -> Result<Tree> {
        let walls = self.walls.take(texts(self.root_dirs(root)?.into_iter()))?;
        let confine = self.confinement.launch(&walls.group.limits());
        tree::launch(walls, root, program, outside, confine)
    }

    /// "v1", "v2" or "none", and which limits machines on this host cannot have, and why.
    pub fn cgroups(&self) -> (&'static str, &[String]) {
        (self.confinement.cgroups.kind(), self.confinement.cgroups.missing())
    }

    /// Captures a tree, which runs on.
    pub fn capture(&self, tree: &Tree) -> Result<Captured> {
        self.capture_for(tree, "")
    }

    /// The same, on behalf of an owner, between whom captures are shared out fairly.
    pub fn capture_for(&self, tree: &Tree, owner: &str) -> Result<Captured> {
        self.capture_source(tree, SourceFate::RunsOn, owner, None)
    }

    /// The same. `share` is given the state before it is on disk, so that others can be restored
    /// from it meanwhile: before it is written, if there is much to write.
    pub fn capture_sharing(
        &self,
        tree: &Tree,
        owner: &str,
        share: impl FnOnce(UnsavedState) + Send,
    ) -> Result<Captured> {
        self.capture_source(tree, SourceFate::RunsOn, owner, Some(Box::new(share)))
    }

    /// The same in the thread that calls it. That thread must end right after: the kernel then
    /// releases everything it traced.
    pub fn capture_sharing_here(
        &self,
        tree: &Tree,
        owner: &str,
        share: impl FnOnce(UnsavedState) + Send,
    ) -> Result<Captured> {
        tree.wait_saved()?;
        let turn = self.captures.take(owner);
        capture::capture(tree, &self.store, SourceFate::RunsOn, Some(Box::new(share)), turn)
    }

    /// Captures a tree for the last time: it does nothing any more that is not in the image. When
    /// this fails it runs on, otherwise it is killed, and [`Tree::kill`] waits for its end.
    pub fn capture_last(&self, tree: &Tree) -> Result<Captured> {
        self.capture_source(tree, SourceFate::Ends, "", None)
    }

    /// Runs in its own thread: when that ends, for whatever reason, the kernel releases everything
    /// it traced.
    fn capture_source(
        &self,
        tree: &Tree,
        source: SourceFate,
        owner: &str,
        share: Option<ShareState>,
    ) -> Result<Captured> {
        // before it enters the queue: it may wait for another capture
        tree.wait_saved()?;
        let turn = self.captures.take(owner);
        let faults = fault::owner();
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("stasis-capture".into());
            let capture = move || {
                fault::adopt(faults);
                capture::capture(tree, &self.store, source, share, turn)
            };
            let thread = thread.spawn_scoped(scope, capture).doing(|| "start a thread".into())?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Restores an image as a new tree; `outside` are its outside descriptors by slot.
    pub fn restore(&self, image: &Image, outside: Vec<OwnedFd>) -> Result<Tree> {
        let _restoring = self.walls.restoring();
        let template = self.template_for(image);
        let ground = self.ground_for(image, &template)?;
        self.restore_on(ground, image, &template, outside, None)
    }

    /// Restores a state that may not be on disk yet.
    pub fn restore_unsaved(&self, state: &UnsavedState, outside: Vec<OwnedFd>) -> Result<Tree> {
        if let Some(saved) = state.image_now()? {
            return self.restore(&saved, outside);
        }
        self.store.validate(&state.image)?;
        let _restoring = self.walls.restoring();
        let template = self.template_for(&state.image);
        let ground = self.ground_for(&state.image, &template)?;
        self.restore_on(ground, &state.image, &template, outside, Some(state))
    }

    /// The same with a way outside, which is there before its sockets are; where its packets come
    /// and go.
    pub fn restore_open(
        &self,
        image: &Image,
        outside: Vec<OwnedFd>,
        link: NetworkLink,
        trusted: &[BorrowedFd],
    ) -> Result<(Tree, OwnedFd)> {
        let _restoring = self.walls.restoring();
        let template = self.template_for(image);
        let ground = self.ground_for(image, &template)?;
        let packets = ground.walls.open_network(link, trusted)?;
        Ok((self.restore_on(ground, image, &template, outside, None)?, packets))
    }

    /// Walls around an image's files.
    fn ground_for(&self, image: &Image, template: &Arc<Template>) -> Result<RestoreTarget> {
        self.confinement.check(&image.manifest)?;
        let layer = stasis_store::layers::materialize(&self.store, image)?;
        let root = self.root_dirs(&image.manifest.meta.root)?;
        let lower = texts(layer.iter().cloned().chain(root.iter().cloned()));
        if let Some(held) = held::find(&self.store, image, layer.as_deref(), &root) {
            let walls = self.walls.make(lower, |upper| held.place(upper))?;
            return Ok(RestoreTarget { walls, spare: None });
        }
        let ahead = template.stays && !needs_its_pids(&image.manifest);
        if let Some(held) = template.image().filter(|_| ahead) {
            let pid = plan::root_of(&image.manifest)?.pid;
            let fit = SpareKey { template: held.id, lower: lower.clone(), pid };
            if let Some(ground) = self.spares.take(&fit, template) {
                return Ok(ground);
            }
        }
        Ok(RestoreTarget { walls: self.walls.take(lower)?, spare: None })
    }

    fn restore_on(
        &self,
        ground: RestoreTarget,
        image: &Image,
        template: &Template,
        outside: Vec<OwnedFd>,
        unsaved: Option<&UnsavedState>,
    ) -> Result<Tree> {
        let unsaved = unsaved.map(|state| &state.pages);
        let scene = restore::RestoreContext {
            pages: PageSource { store: &self.store, unsaved },
            host: &self.host,
            confinement: &self.confinement,
            forks: &self.forks,
        };
        let admitted = ground.walls.group.admit(tasks_of(&image.manifest));
        let admitted = admitted.doing(|| "admit the tasks of an image".into())?;
        let tree = restore::restore(&scene, image, template, ground, outside)?;
        if admitted {
            // the tasks stay; no more are allowed than before
            tree.set_limits(tree.limits())?;
        }
        Ok(tree)
    }

    fn template_for(&self, image: &Image) -> Arc<Template> {
        self.parked.nearest(image, &self.store).unwrap_or_else(|| self.blank.clone())
    }

    /// Whether processor, kernel and walls are such that an image could come back here; otherwise
    /// why not.
    pub fn check_fit(&self, manifest: &Manifest) -> Result<()> {
        self.confinement.check(manifest)?;
        restore::check_fit(&self.host, manifest)
    }

    /// Whether an image could come back here, now that all of it is; otherwise why not.
    pub fn check(&self, image: &Image) -> Result<()> {
        self.check_fit(&image.manifest)?;
        self.root_dirs(&image.manifest.meta.root).map(drop)
    }

    /// Holds an image's memory in a parked process, from which restores are fastest.
    pub fn park(&self, image: &Image) -> Result<()> {
        if !self.parked.holds(image.id) {
            let template = self.parked_copy(image)?;
            self.parked.insert(image.id, vec![template]);
        }
        Ok(())
    }

    /// The same for a while, for this many restores at once. Forks of one process come one after
    /// another, so there is one for each processor; none are forked ahead, which would be for
    /// nothing.
    pub fn park_for_burst(&self, image: &Image, restores: usize) -> Result<()> {
        /// Fewer than this are forked in the time that a copy takes.
        const WORTH_A_COPY: usize = 16;
        if self.parked.holds(image.id) {
            return Ok(());
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let copies = processors.min(restores.div_ceil(WORTH_A_COPY)).max(1);
        let faults = fault::owner();
        let park = || {
            fault::adopt(faults);
            self.parked_copy(image).map(|template| {
                let share = self.budget.charge(PreparedKind::Template, template.adds);
                template.for_a_while(share)
            })
        };
        let templates = std::thread::scope(|scope| {
            let parking: Vec<_> = (1..copies).map(|_| scope.spawn(park)).collect();
            let mut templates = vec![park()?];
            // one is enough, if need be
            templates.extend(parking.into_iter().filter_map(|parking| parking.join().ok()?.ok()));
            Ok::<_, Error>(templates)
        })?;
        self.parked.insert(image.id, templates);
        Ok(())
    }

    fn parked_copy(&self, image: &Image) -> Result<Template> {
        let trunk = self.parked.trunk(image, &self.store);
        let from = trunk.as_deref().unwrap_or(&*self.blank);
        let mut template =
            restore::park(&self.store, &self.host, image, from, &self.roots(image)?)?;
        template.adds = lacking(from, image);
        Ok(template)
    }

    /// Rewrites an image so that all its pages are in one pack of its own.
    pub fn flatten(&self, image: &Image) -> Result<Image> {
        flatten::flatten(&self.store, image)
    }

    /// Removes data that no image in `keep` needs and that is not in use. `keep` is called once the
    /// collection has begun, so that data recorded meanwhile is safe.
    pub fn collect<E: From<Error>>(
        &self,
        keep: impl FnOnce() -> std::result::Result<HashSet<ImageId>, E>,
    ) -> std::result::Result<Collected, E> {
        let collection = self.store.begin_collection();
        let collected = collection.sweep(&keep()?).map_err(Error::from)?;
        self.spares.forget_layers(&collected.layers);
        self.walls.forget(&collected.layers);
        Ok(collected)
    }

    /// Lets a parked process go. Its image stays.
    pub fn evict(&self, image: ImageId) -> bool {
        let evicted = self.parked.remove(image);
        self.store.forget_pages();
        self.spares.forget(image);
        evicted
    }

    pub fn evict_all(&self) {
        self.parked.clear();
        self.drop_spares();
    }

    /// Drops the pools of forked clones, sandboxes and read pages, when memory is short.
    pub fn drop_spares(&self) {
        self.store.forget_pages();
        self.spares.clear();
        self.walls.clear();
    }

    /// Memory for what is prepared ahead of requests.
    pub fn budget(&self) -> &Arc<PreparedBudget> {
        &self.budget
    }

    /// Resources that are prepared ahead of requests.
    pub fn prepared(&self) -> PreparedCounts {
        PreparedCounts {
            sandboxes: self.walls.standing(),
            processes: self.spares.standing(),
            templates: self.parked.standing(),
        }
    }

    /// Directories an image's mapped files come from, topmost first, as detached mounts, so that
    /// their names in a template are those inside the machine.
    fn roots(&self, image: &Image) -> Result<Vec<OwnedFd>> {
        let layer = stasis_store::layers::materialize(&self.store, image)?;
        let dirs = layer.into_iter().chain(self.root_dirs(&image.manifest.meta.root)?);
        dirs.map(|dir| {
            mount::clone_tree(&dir.to_string_lossy(), false)
                .doing(|| format!("copy the mount of {}", dir.display()))
        })
        .collect()
    }

    /// An image says which root is its own, and images are not trusted: a name is no path.
    pub(crate) fn root_dirs(&self, name: &str) -> Result<Vec<PathBuf>> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let dir = |name: &str| {
            let dir = self.config.roots.join(name);
            let fine = !name.starts_with('.') && name.chars().all(plain) && dir.is_dir();
            (!name.is_empty() && fine).then_some(dir)
        };
        let missing = || Error::Unfit(format!("its root file system {name:?} is not here"));
        name.split('+').map(dir).collect::<Option<_>>().ok_or_else(missing)
    }
}

/// How many tasks a restore of an image creates.
fn tasks_of(manifest: &Manifest) -> u64 {
    let tasks = |process: &Process| match &process.state {
        ProcessState::Live(live) => live.threads.len() as u64,
        ProcessState::Zombie { .. } => 1,
    };
    manifest.processes.iter().map(tasks).sum()
}

/// Whether something is made under the pids of an image's processes before they are there: sockets
/// remember who made them.
fn needs_its_pids(manifest: &Manifest) -> bool {
    manifest.objects.iter().any(|object| matches!(object.kind, ObjectKind::Socket(_)))
}

fn texts(paths: impl Iterator<Item = PathBuf>) -> Vec<String> {
    paths.map(|path| path.to_string_lossy().into_owned()).collect()
}

impl HostFeatures {
    fn probe(lazy: Lazy) -> Result<HostFeatures> {
        let rlimits = (0..16)
            .map(|resource| process::rlimit_of(0, resource).doing(|| "read own limits".into()))
            .collect::<Result<_>>()?;
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split(['.', '-']).map(|word| word.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Ok(HostFeatures {
            rlimits,
            timer_ids: version >= (6, 15),
            track: probe::has_pagemap_scan(),
            lazy,
            vdso_hash: crate::vdso::own_hash(),
        })
    }
}
