//! Capturing a live tree.
//!
//!   freeze ─► kernel state ─► descriptors ─► shared memory, files ─► changed pages ─► thaw
//!   (every     (threads,       (files,        (read now: no task      (copied if few, else a
//!    thread)    signals,        sockets)       writes meanwhile)       copy-on-write fork, the
//!               timers)                                                twin, of the process)
//!                        ... the source runs on ...
//!   mappings, pages ─► pack ─► sync ─► image ─► sync
//!
//! Everything up to the thaw is one instant; a source that must end is not resumed before its end.
//! If any step fails, the twins are killed, every thread is resumed as it was, and nothing has been
//! named in the store.

mod apart;
mod call_batch;
mod copied;
mod fds;
mod files;
mod filters;
mod held;
mod inherited;
mod jobs;
mod lasting;
mod mappings;
mod pages;
mod pieces;
mod process;
mod still;
mod sysv;
mod threads;
mod twin;
mod write;

pub use pages::{TrackedPages, take_tracked, untracked};
pub use process::mm_fields;

use crate::error::{Error, ErrorContext, Result};
use crate::fair_queue::QueueTurn;
use crate::freeze::{Frozen, FrozenProcess, is_missing};
use crate::tree::Tree;
use crate::unsaved::UnsavedState;
use copied::CopyBuffer;
use lasting::Lasting;
use mappings::{Completeness, MappingContext};
use stasis_fault as fault;
use stasis_image::model::*;
use stasis_sandbox::cgroup;
use stasis_store::{Image, PageCounts, Sink, Store};
use stasis_sys::{arch, libc, process as sysprocess};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use still::{CopyResources, PausedMemory, RootScan};

/// The statistics of a capture.
#[derive(Debug, Clone)]
pub struct Captured {
    pub image: Image,
    /// From the first thread stopped to the last one resumed, as measured by the engine.
    pub pause: Duration,
    pub total: Duration,
    pub pages: PageCounts,
}

/// The fate of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFate {
    /// It continues after the pause, while pages are written.
    RunsOn,
    /// It stays stopped until the image exists, and is then killed. Without an image it continues.
    Ends,
}

/// Is given the state of a capture that has much to write, as soon as nothing can change it.
pub type ShareState<'a> = Box<dyn FnOnce(UnsavedState) + Send + 'a>;

/// Captures a tree on top of the image it was restored from or captured as last.
pub fn capture(
    tree: &Tree,
    store: &Store,
    source: SourceFate,
    share: Option<ShareState>,
    turn: QueueTurn,
) -> Result<Captured> {
    take(tree, store, source, share, turn).map_err(|error| match error {
        // the kernel may end a process that stands still: for want of memory, or because a filter
        // had condemned it
        Error::Io { doing, source } if is_of_process(&doing, &source) => {
            Error::refused(0, format!("a process ended during the capture ({doing})"))
        }
        other => other,
    })
}

/// Whether a process that has ended is the cause. No file gives `ESRCH`.
fn is_of_process(doing: &str, source: &std::io::Error) -> bool {
    source.raw_os_error() == Some(libc::ESRCH) || doing.contains("/proc/") && is_missing(source)
}

fn take(
    tree: &Tree,
    store: &Store,
    source: SourceFate,
    share: Option<ShareState>,
    turn: QueueTurn,
) -> Result<Captured> {
    let start = Instant::now();
    tree.wait_filled()?;
    // twins count as the machine's own processes until the last of them has ended
    let twins = tree.walls.group.room();
    let parent = tree.last_image();
    let mut sink = Sink::new(store, parent.as_ref())?;
    let terms = PauseTerms { twins: &twins, source, alone: turn.is_alone() };
    let (mut paused, pause) = match pause(tree, store, &mut sink, &terms)? {
        (Some(paused), pause) => (paused, pause),
        // something was missing: now it is known what to read
        (None, _) => {
            sink = Sink::new(store, parent.as_ref())?;
            pause_again(tree, store, &mut sink, &terms)?
        }
    };
    let seen = std::mem::take(&mut paused.held);
    let origins = held::keep(tree, store, seen, &mut paused.files)?;
    fault::point("capture.held")?;
    let (standing, stills) = (paused.standing.take(), std::mem::take(&mut paused.stills));
    let manifest = assemble(paused, parent.as_ref(), &tree.root_name)?;
    let (image, pages) = write::write(store, sink, manifest, stills, share, turn)?;
    drop(origins);
    tree.captured(&image, &pages);
    if let Some(standing) = standing {
        standing.end();
    }
    Ok(Captured { image, pause, total: start.elapsed(), pages })
}

/// The result of the pause.
pub struct Paused {
    /// The source, if it must not continue.
    standing: Option<Frozen>,
    pub processes: Vec<Process>,
    pub stills: Vec<PausedMemory>,
    pub objects: Vec<Object>,
    pub segments: Vec<Segment>,
    pub files: FileTree,
    pub held: Vec<held::KnownFile>,
    pub clocks: Clocks,
    pub mapped_files: Vec<MappedFile>,
    pub filters: Vec<SeccompFilter>,
}

/// How a pause is carried out.
struct PauseTerms<'a> {
    twins: &'a cgroup::CopyHeadroom<'a>,
    source: SourceFate,
    /// No other tree is captured: this one may use two processors.
    alone: bool,
}

fn pause_again(
    tree: &Tree,
    store: &Store,
    sink: &mut Sink,
    terms: &PauseTerms,
) -> Result<(Paused, Duration)> {
    let (paused, pause) = pause(tree, store, sink, terms)?;
    let unsteady = || Error::refused(0, "its memory marks change from capture to capture");
    Ok((paused.ok_or_else(unsteady)?, pause))
}

/// The pause itself; `None` if its result turned out to be incomplete.
fn pause(
    tree: &Tree,
    store: &Store,
    sink: &mut Sink,
    terms: &PauseTerms,
) -> Result<(Option<Paused>, Duration)> {
    let PauseTerms { twins, source, alone } = *terms;
    let mut means = CopyResources { copies: CopyBuffer::make(), twins, room: false };
    let mut reader = files::Reader::prepare(tree.walls.files.upper.as_ref())?;
    let start = Instant::now();
    let frozen = Frozen::stop(&tree.walls, &mut tree.memo().restarts)?;
    reader.begin();
    let first = ask_first(tree, &frozen)?;
    let read = || State::read(tree, &frozen, sink, first, reader);
    let (state, look, pinned) = with_a_look(tree, &frozen, alone, read)?;
    let State { clocks, mut processes, filters, mut objects, files } = state;
    let held = held::look(tree, store, &objects.written);
    fault::point("capture.files")?;
    let stills = still::make_all(&frozen, tree, look, &mut means)?;
    fault::point("capture.twins")?;
    let closer = tree.memo().look_closer;
    let segments = mappings::shared_segments(&frozen, &stills, tree, &mut objects, sink)?;
    let copies: Vec<i32> =
        stills.iter().filter_map(PausedMemory::twin).map(|twin| twin.pid).collect();
    frozen.check_whole(&tree.walls, &copies)?;
    let standing = (source == SourceFate::Ends).then_some(frozen);
    // from here on the source should have its processor for itself
    drop(pinned);
    let pause = start.elapsed();
    fault::point("capture.thawed")?;
    let mut mapped_files = Vec::new();
    let parent = tree.last_image();
    let around = MappingContext {
        segments: &segments,
        closer,
        lasting: Lasting::of(parent.as_ref(), &files),
    };
    let read = mappings::read_all(&stills, &mut processes, &mut mapped_files, &around)?;
    match read {
        Completeness::Whole => {}
        Completeness::Lacking => tree.memo().look_closer = true,
        Completeness::Moved => tree.memo().twins_only = true,
    }
    if read != Completeness::Whole {
        return Ok((None, pause));
    }
    let paused = Paused {
        standing,
        processes,
        stills,
        objects: objects.list,
        segments: segments.list,
        files,
        held,
        clocks,
        mapped_files,
        filters,
    };
    Ok((Some(paused), pause))
}

/// The state of a stopped tree, apart from memory.
struct State {
    clocks: Clocks,
    processes: Vec<Process>,
    filters: Vec<SeccompFilter>,
    objects: fds::Objects,
    files: FileTree,
}

/// The state of a tree's processes, each read on its own processor.
struct Told {
    clocks: Clocks,
    processes: Vec<Process>,
}

impl Told {
    fn of(tree: &Tree, frozen: &Frozen) -> Result<Told> {
        fault::point("capture.frozen")?;
        apart::check(frozen, tree)?;
        let clocks = clocks_of(tree)?;
        let processes = frozen.processes.iter().map(|process| process::read(process, tree));
        let processes = processes.collect::<Result<Vec<Process>>>()?;
        if processes.iter().all(|process| process.ppid != 1 || process.live().is_none()) {
            return Err(Error::Gone); // nothing is left that could come back
        }
        Ok(Told { clocks, processes })
    }
}

impl State {
    fn read(
        tree: &Tree,
        frozen: &Frozen,
        sink: &mut Sink,
        first: Option<Told>,
        reader: files::Reader,
    ) -> Result<State> {
        let told = first.map_or_else(|| Told::of(tree, frozen), Ok)?;
        let Told { clocks, mut processes } = told;
        check_families(&processes)?;
        let filters = filters::read_all(frozen, &mut processes)?;
        jobs::ask_parents(frozen, &mut processes)?;
        fault::point("capture.state")?;
        let mut objects = fds::read_all(frozen, tree, sink, &mut processes)?;
        sysv::read(tree, &mut objects, sink)?;
        fault::point("capture.descriptors")?;
        let files = reader.finish(tree, sink)?;
        Ok(State { clocks, processes, filters, objects, files })
    }
}

/// Reads thread-local state, where there are several threads: a thread that was on another
/// processor would have to wait there for the thread that scans memory.
fn ask_first(tree: &Tree, frozen: &Frozen) -> Result<Option<Told>> {
    let threads = frozen.processes.iter().filter_map(|process| process.live.as_ref());
    if threads.map(|live| live.threads.len()).sum::<usize>() < 2 {
        return Ok(None);
    }
    let _pinned = last_processor(frozen).and_then(|near| sysprocess::Pinned::to(near).ok());
    Told::of(tree, frozen).map(Some)
}

/// Reads state, and the root's mappings and pages, with a second thread if no other tree is
/// captured.
fn with_a_look(
    tree: &Tree,
    frozen: &Frozen,
    alone: bool,
    read: impl FnOnce() -> Result<State>,
) -> Result<(State, RootScan, Option<sysprocess::Pinned>)> {
    if alone { beside_a_look(tree, frozen, read) } else { before_a_look(tree, frozen, read) }
}

/// Reads state, then the root's mappings and pages. Where several trees are captured, a second
/// thread for each would only make them take turns.
fn before_a_look(
    tree: &Tree,
    frozen: &Frozen,
    read: impl FnOnce() -> Result<State>,
) -> Result<(State, RootScan, Option<sysprocess::Pinned>)> {
    let pinned = last_processor(frozen).and_then(|near| sysprocess::Pinned::to(near).ok());
    let state = read()?;
    Ok((state, RootScan::at(tree)?, pinned))
}

/// Reads state, while another thread reads the root's mappings and pages. The first one stays near
/// the root from then on, until the last returned value is dropped.
fn beside_a_look(
    tree: &Tree,
    frozen: &Frozen,
    read: impl FnOnce() -> Result<State>,
) -> Result<(State, RootScan, Option<sysprocess::Pinned>)> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("stasis-look".into());
        let near = last_processor(frozen);
        let scan = move || {
            let _elsewhere = near.map(sysprocess::Pinned::away_from);
            RootScan::at(tree)
        };
        let scanning = thread.spawn_scoped(scope, scan).doing(|| "start a thread".into())?;
        // Every call made in the root is a switch there and back, which between processors costs
        // several times as much. Not before the other thread is there, which would inherit it.
        let pinned = near.and_then(|near| sysprocess::Pinned::to(near).ok());
        let state = read()?;
        let scan = scanning.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((state, scan?, pinned))
    })
}

/// A session or group without a leader cannot always be entered again: refusing is better than an
/// image that cannot be restored.
fn check_families(processes: &[Process]) -> Result<()> {
    for process in processes.iter().filter(|process| process.live().is_some()) {
        let parent = processes.iter().find(|other| other.pid == process.ppid);
        let led = |number: i32| processes.iter().any(|other| other.pid == number);
        let (pid, sid, group) = (process.pid, process.sid, process.pgid);
        let in_session = led(sid)
            || parent.is_some_and(|parent| parent.sid == sid)
            || crate::plan::is_leaderless(process, processes);
        if !in_session {
            return Err(Error::refused(pid, format!("its session {sid} has no leader")));
        }
        let in_group =
            led(group) || group == sid || parent.is_some_and(|parent| parent.pgid == group);
        if !in_group {
            return Err(Error::refused(pid, format!("its process group {group} has no leader")));
        }
    }
    Ok(())
}

/// The processor the root ran on.
fn last_processor(frozen: &Frozen) -> Option<usize> {
    const FIELD: usize = 39;
    frozen.processes.first()?.stat.field(FIELD).map(|processor| processor as usize)
}

/// The tree's clocks: the host's plus the offsets of the tree's time namespace.
fn clocks_of(tree: &Tree) -> Result<Clocks> {
    let text = crate::proc::read_text(tree.root, "timens_offsets").unwrap_or_default();
    let offset = |name: &str| -> i64 {
        let line = text.lines().find(|line| line.starts_with(name));
        let mut words = line.unwrap_or("").split_whitespace().skip(1);
        let mut next = || words.next().and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
        let seconds = next();
        seconds * 1_000_000_000 + next()
    };
    Ok(Clocks {
        monotonic_ns: sysprocess::clock_ns(libc::CLOCK_MONOTONIC) + offset("monotonic"),
        boottime_ns: sysprocess::clock_ns(libc::CLOCK_BOOTTIME) + offset("boottime"),
        realtime_ns: sysprocess::clock_ns(libc::CLOCK_REALTIME),
    })
}

/// Everything but memory.
fn assemble(paused: Paused, parent: Option<&Image>, root: &str) -> Result<Manifest> {
    let realtime = paused.clocks.realtime_ns;
    let meta = Meta {
        parent: parent.map(|image| image.id),
        origin: parent.map(|image| image.manifest.meta.origin.unwrap_or(image.id)),
        root: root.to_owned(),
        created_unix_ms: (realtime / 1_000_000) as u64,
        kernel: kernel_release()?,
        cpu: cpu_needs().clone(),
        clocks: paused.clocks,
        hostname: crate::walls::HOSTNAME.into(),
        packs: Vec::new(),
        mapped_files: paused.mapped_files,
        filters: paused.filters,
    };
    Ok(Manifest {
        meta,
        processes: paused.processes,
        objects: paused.objects,
        segments: paused.segments,
        memory: Vec::new(),
        files: paused.files,
    })
}

/// The features of this processor; programs may have selected their code by them.
pub fn cpu_needs() -> &'static CpuNeeds {
    static NEEDS: OnceLock<CpuNeeds> = OnceLock::new();
    NEEDS.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or("");
        let mut flags: Vec<String> =
            line.trim_start_matches([' ', '\t', ':']).split(' ').map(str::to_owned).collect();
        flags.sort_unstable();
        CpuNeeds { vendor: arch::vendor(), xfeatures: arch::enabled_components(), flags }
    })
}

/// The version of the running kernel.
fn kernel_release() -> Result<String> {
    static RELEASE: OnceLock<String> = OnceLock::new();
    if let Some(release) = RELEASE.get() {
        return Ok(release.clone());
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .doing(|| "read the kernel's version".into())?;
    Ok(RELEASE.get_or_init(|| text.trim().to_owned()).clone())
}

/// The refusal for something found on a process.
fn refuse(process: &FrozenProcess, what: impl Into<String>) -> Error {
    Error::refused(process.own_pid, what)
}
