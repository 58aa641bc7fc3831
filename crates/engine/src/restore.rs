//! Bringing an image back: into walls as a tree, or aside as a template.
//!
//!   walls, objects, pages ─► plan ─► stage ─► order to a template ─► the clone does the rest
//!
//! If any step fails the clone reports which and ends, the walls are dropped with everything in
//! them, and the error names the step. The image and the template are as they were.

use crate::clone::{CloneHandover, ProcessClone, SandboxedClone};
use crate::confine::Confinement;
use crate::error::{Error, ErrorContext, Result};
use crate::fill::{PageSource, install, while_reading};
use crate::forks::Forks;
use crate::identity;
use crate::lazy::{BackgroundFill, HugePageRanges};
use crate::objects::{self, CreatedObjects};
use crate::plan::{
    self, Built, CloneConfinement, ClonePurpose, Layout, MemoryPlan, Prepared, Track, root_of,
};
use crate::spawner::{Init, PendingReply};
use crate::template::{Template, TemplateMemory};
use crate::track::{self, Tracker};
use crate::tree::{self, Memo, Tree};
use crate::walls::Walls;
use parking_lot::Mutex;
use stasis_fault as fault;
use stasis_image::model::*;
use stasis_spawner::layout;
use stasis_spawner::protocol::{CloneOrder, InitRequest};
use stasis_store::{Image, Store};
use stasis_sys::process as sysprocess;
use stasis_sys::{PAGE, libc};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// When memory is filled on demand.
#[derive(Debug, Clone, Copy)]
pub struct Lazy {
    /// Below this many bytes to fill in all, it is not worth a thread.
    pub total: u64,
    /// Only mappings with at least this many bytes to fill.
    pub mapping: u64,
}

impl Default for Lazy {
    fn default() -> Lazy {
        Lazy { total: 16 << 20, mapping: 64 << 10 }
    }
}

/// The kind of this host, determined once.
#[derive(Clone)]
pub struct HostFeatures {
    pub rlimits: Vec<(u64, u64)>,
    pub timer_ids: bool,
    pub track: bool,
    pub lazy: Lazy,
    /// The hash of the kernel's vdso code.
    pub vdso_hash: Option<[u8; 32]>,
}

/// State shared by all restores of an engine.
pub struct RestoreContext<'a> {
    pub pages: PageSource<'a>,
    pub host: &'a HostFeatures,
    pub confinement: &'a Confinement,
    pub forks: &'a Forks,
}

/// Where a tree is restored: in walls, perhaps with a clone of the template waiting in them.
pub struct RestoreTarget {
    pub walls: Walls,
    pub spare: Option<ProcessClone>,
}

/// Restores an image as a new tree, from a template whose memory is as near as possible.
pub fn restore(
    scene: &RestoreContext,
    image: &Image,
    template: &Template,
    RestoreTarget { walls, spare }: RestoreTarget,
    outside: Vec<OwnedFd>,
) -> Result<Tree> {
    let RestoreContext { pages: source, host, confinement, forks } = *scene;
    let (manifest, init) = (&*image.manifest, &walls.init);
    check_fit(host, manifest)?;
    let root = root_of(manifest)?;
    let live = root.live().ok_or(Error::Gone)?;
    fault::point("restore.walls")?;
    let time = begin_time(init, &manifest.meta.clocks)?;
    let root_plan = template.plan_for(image.id, plan::layout_of(manifest, root.pid, live));
    let time = time.answer()?.pop().ok_or(Error::Gone)?;
    let made = objects::make(source.store, manifest, init, &outside)?;
    fault::point("restore.objects")?;
    let high = high_descriptor(manifest);
    let (objects, segments) = made_numbers(&made, high);
    let lazy = lazy_mappings(host.lazy, &root_plan, &live.vmas);
    let prepared = Prepared {
        manifest,
        root_plan: &root_plan,
        high,
        objects: &objects,
        segments: &segments,
        batches: &made.batches(),
        rlimits: &host.rlimits,
        purpose: ClonePurpose::Run,
        lazy: &lazy,
        track: track(host, template),
        timer_ids: host.timer_ids,
        confine: confinement.restore(walls.entrance),
    };
    let built = plan::build(&prepared)?;
    let check = || identity::check(manifest, root.pid, template.layout().files, init.pid);
    let inside = SandboxedClone { time: time.as_fd(), check: &check };
    let start = || -> Result<(ProcessClone, Option<Arc<OwnedFd>>)> {
        let mut forked =
            spare.map_or_else(|| ProcessClone::fork_into(template, &walls, root.pid), Ok)?;
        let inherited = forked.take_inherited().map(|uffd| forks.watch(uffd)).transpose()?;
        forked.begin(source, manifest, &built, Some(inside), made)?;
        Ok((forked, inherited))
    };
    let ((mut clone, inherited), pages) = while_reading(source, manifest, &built.installs, start)?;
    let given = Given { built: &built, lazy: &lazy, pages: &pages, inherited };
    let memo = give_memory(scene, image, init, &mut clone, given)?;
    fault::point("restore.cloned")?;
    clone.let_go(init, &built)?;
    restored_tree(clone, walls, image, &outside, memo)
}

/// The tree of a clone that runs. The image is what its next capture is compared with.
fn restored_tree(
    clone: ProcessClone,
    walls: Walls,
    image: &Image,
    outside: &[OwnedFd],
    memo: Memo,
) -> Result<Tree> {
    let (pid, pidfd, _) = clone.known()?;
    walls.disk.set_below(image);
    Ok(Tree {
        root: pid,
        root_fd: pidfd,
        walls,
        root_name: image.manifest.meta.root.clone(),
        base: Some(image.clone()),
        externals: tree::externals(outside)?,
        memo: Mutex::new(memo),
    })
}

/// Data installed in a clone's memory from outside.
struct Given<'a> {
    built: &'a Built,
    lazy: &'a [usize],
    pages: &'a [u8],
    /// The userfaultfd it has from its template.
    inherited: Option<Arc<OwnedFd>>,
}

/// Gives a clone its pages, and starts to track or to fill it, until it is ready.
fn give_memory(
    scene: &RestoreContext,
    image: &Image,
    init: &Init,
    clone: &mut ProcessClone,
    Given { built, lazy, pages, inherited }: Given,
) -> Result<Memo> {
    let tracker = if lazy.is_empty() { Tracker::new } else { Tracker::later };
    let mut memo = Memo { last: Some(image.clone()), ..Memo::default() };
    memo.unsaved = scene.pages.unsaved.cloned();
    memo.tracker = inherited.clone().map(tracker);
    while let Some(handed) = clone.next(built)? {
        match handed {
            CloneHandover::Memory => {
                let uffd = inherited.as_ref().ok_or(Error::Gone)?;
                track::register(uffd.as_fd(), &built.registers)?;
                install(clone.pid()?, uffd, &built.installs, pages)?;
                clone.tell(plan::INSTALLED);
            }
            CloneHandover::Later(uffd) => memo.tracker = Some(Tracker::later(Arc::new(uffd))),
            CloneHandover::Pages(uffd) if lazy.is_empty() => {
                install(clone.pid()?, &uffd, &built.installs, pages)?;
                clone.tell(plan::INSTALLED);
                memo.tracker = Some(Tracker::new(Arc::new(uffd)));
            }
            CloneHandover::Pages(uffd) => {
                memo.filling = Some(start_filling(scene, image, init, clone.pid()?, uffd, lazy)?);
            }
        }
    }
    Ok(memo)
}

/// How the clones of a template are tracked.
fn track(host: &HostFeatures, template: &Template) -> Track {
    match (host.track, template.is_tracked()) {
        (false, _) => Track::No,
        (true, false) => Track::Own,
        (true, true) => Track::Inherited,
    }
}

/// Under which numbers a clone has its objects and segments.
fn made_numbers(made: &CreatedObjects, high: i32) -> (Vec<Option<i32>>, Vec<i32>) {
    let number = |index: usize| high + plan::OWN_OBJECTS + index as i32;
    let objects = made.objects.iter().map(|place| place.map(number)).collect();
    let segments = made.segments.iter().map(|place| number(*place)).collect();
    (objects, segments)
}

/// Builds a template that holds an image's root memory.
pub fn park(
    store: &Store,
    host: &HostFeatures,
    image: &Image,
    from: &Template,
    root_dirs: &[OwnedFd],
) -> Result<Template> {
    let manifest = &*image.manifest;
    check_fit(host, manifest)?;
    let root = root_of(manifest)?;
    let live = root.live().ok_or(Error::Gone)?;
    let high = 1024.max(high_descriptor(manifest));
    let vmas = plan::parked(live);
    let target = Layout { vmas: &vmas, ..plan::layout_of(manifest, root.pid, live) };
    let root_plan = plan::plan_memory(from.layout(), target);
    let mapped = root_plan.mapped.iter().filter_map(|index| vmas[*index].file());
    let made = mapped_files(manifest, mapped.chain([live.exe]).collect(), root_dirs)?;
    let (files, _) = made_numbers(&made, high);
    let prepared = Prepared {
        manifest,
        root_plan: &root_plan,
        high,
        objects: &[],
        segments: &[],
        batches: &made.batches(),
        rlimits: &host.rlimits,
        purpose: ClonePurpose::Park { files: &files },
        lazy: &[],
        track: track(host, from),
        timer_ids: host.timer_ids,
        confine: CloneConfinement::default(),
    };
    let mut built = plan::build(&prepared)?;
    built.leave = stasis_spawner::resident::resident_loop(&[]).1;
    let own = File::open("/proc/self/ns/pid").doing(|| "open the pid namespace".into())?;
    let order = CloneOrder { helper_pid: None, clone_pid: None, into_cgroup: false };
    let mut clone = ProcessClone::fork(from, &order, own.as_fd(), &[])?;
    clone.begin(PageSource { store, unsaved: None }, manifest, &built, None, made)?;
    let inherited = clone.take_inherited();
    let uffd = clone.wait_parked(&built)?.or(inherited);
    fault::point("park.cloned")?;
    let (pid, pidfd, control) = clone.known()?;
    let held = TemplateMemory::Image { image: image.clone(), vmas, root: root.pid };
    Ok(Template::new(pid, pidfd, control, held, from.depth + 1).tracked_by(uffd))
}

/// An image may only come back where its processes' choices hold.
pub fn check_fit(host: &HostFeatures, manifest: &Manifest) -> Result<()> {
    for process in &manifest.processes {
        let hash = process.live().and_then(|live| live.mm.vdso_hash);
        if hash.is_some() && hash != host.vdso_hash {
            let pid = process.pid;
            let kernel = &manifest.meta.kernel;
            return Err(Error::Unfit(format!("process {pid} calls into the vdso of {kernel}")));
        }
    }
    let lacks = lacking(crate::capture::cpu_needs(), &manifest.meta.cpu);
    if lacks.is_empty() {
        return Ok(());
    }
    Err(Error::Unfit(format!("this processor lacks {}", lacks.join(", "))))
}

/// Required processor features that this host lacks, by name.
fn lacking(here: &CpuNeeds, need: &CpuNeeds) -> Vec<String> {
    let flags = need.flags.iter().filter(|flag| here.flags.binary_search(flag).is_err());
    let state = need.xfeatures & !here.xfeatures;
    let state = (0..u64::BITS).filter(|bit| state >> bit & 1 == 1);
    flags.cloned().chain(state.map(|bit| format!("extended state component {bit}"))).collect()
}

/// Asks for a time namespace whose clocks continue from the capture.
fn begin_time<'a>(init: &'a Init, clocks: &Clocks) -> Result<PendingReply<'a>> {
    /// The coarse clocks are behind by up to a tick, perhaps by more here than there: clocks
    /// continue a tick later, so that no reading goes back.
    const TICK_NS: i64 = 10_000_000;
    let ahead = |then: i64, clock: i32| then + TICK_NS - sysprocess::clock_ns(clock);
    let monotonic = ahead(clocks.monotonic_ns, libc::CLOCK_MONOTONIC);
    let boottime = ahead(clocks.boottime_ns, libc::CLOCK_BOOTTIME);
    init.begin(&InitRequest::Time { monotonic, boottime }, &[])
}

/// Above every descriptor of every process.
fn high_descriptor(manifest: &Manifest) -> i32 {
    let live = manifest.processes.iter().filter_map(Process::live);
    let highest = live.flat_map(|live| &live.fds).map(|fd| fd.number).max().unwrap_or(0);
    (highest + 1).max(layout::TEMPLATE_PIDNS_FD + 1).max(8)
}

/// Mappings worth filling on demand, when much is missing from the template.
fn lazy_mappings(lazy: Lazy, plan: &MemoryPlan, vmas: &[Vma]) -> Vec<usize> {
    let bytes = |runs: &[PageRun]| runs.iter().map(|run| u64::from(run.count) * PAGE).sum::<u64>();
    if bytes(&plan.fills) < lazy.total {
        return Vec::new();
    }
    let bytes_in = |vma: &Vma| -> u64 {
        let (first, last) = (vma.start / PAGE, vma.end / PAGE);
        let from = plan.fills.partition_point(|run| run.end() <= first);
        let until = plan.fills.partition_point(|run| run.page < last);
        bytes(&plan.fills[from..until])
    };
    // only mappings made anew: in an inherited one the template's pages would hide the faults
    let worth = plan.mapped.iter().copied().filter(|index| {
        let vma = &vmas[*index];
        vma.backing == Backing::Anonymous && bytes_in(vma) >= lazy.mapping.max(1)
    });
    worth.collect()
}

/// Starts to fill the root's memory, from the outside, while it runs.
fn start_filling(
    scene: &RestoreContext,
    image: &Image,
    init: &Init,
    pid: i32,
    uffd: OwnedFd,
    lazy: &[usize],
) -> Result<BackgroundFill> {
    let manifest = &*image.manifest;
    let root = root_of(manifest)?;
    let live = root.live().ok_or(Error::Gone)?;
    let release = init.hold(uffd.as_fd())?;
    let runs = lazy_runs(manifest, root.pid, live, lazy)?;
    let packs = manifest.meta.packs.iter().map(|pack| scene.pages.pack(pack.root));
    let packs = packs.collect::<Result<Vec<_>>>()?;
    let end = init.pidfd.try_clone().doing(|| "copy a descriptor".into())?;
    BackgroundFill::start(end, uffd, runs, packs, release, huge_page_ranges(pid, live, lazy)?)
}

/// Mappings filled on demand that the program wanted in huge pages.
fn huge_page_ranges(pid: i32, live: &LiveProcess, lazy: &[usize]) -> Result<HugePageRanges> {
    let process = sysprocess::pidfd_open(pid).doing(|| "open the tree's root".into())?;
    let wanted = lazy.iter().map(|index| &live.vmas[*index]).filter(|vma| vma.traits.huge);
    Ok(HugePageRanges { process, ranges: wanted.map(|vma| (vma.start, vma.end)).collect() })
}

/// Pages to fill in the mappings that are filled on demand.
fn lazy_runs(
    manifest: &Manifest,
    root: i32,
    live: &LiveProcess,
    lazy: &[usize],
) -> Result<Vec<PageRun>> {
    let memory = manifest.memory.iter().find(|memory| memory.pid == root).ok_or(Error::Gone)?;
    let mut runs = Vec::new();
    for vma in lazy.iter().map(|index| &live.vmas[*index]) {
        let (first, last) = (vma.start / PAGE, vma.end / PAGE);
        let from = memory.runs.partition_point(|run| run.end() <= first);
        for run in memory.runs[from..].iter().take_while(|run| run.page < last) {
            let (start, end) = (run.page.max(first), run.end().min(last));
            runs.push(run.slice(start, (end - start) as u32));
        }
    }
    Ok(runs)
}

/// The files that a template maps itself, opened below the roots of its image's files, and checked.
/// Inherited mappings were checked when they were made.
fn mapped_files(
    manifest: &Manifest,
    needed: HashSet<u32>,
    root_dirs: &[OwnedFd],
) -> Result<CreatedObjects> {
    let mut made = CreatedObjects::default();
    for (file, index) in manifest.meta.mapped_files.iter().zip(0..) {
        let place = needed.contains(&index).then_some(made.fds.len());
        if place.is_some() {
            made.fds.push(identity::open(root_dirs, file, libc::O_RDONLY)?);
        }
        made.objects.push(place);
    }
    Ok(made)
}
