//! Validates an image before anything acts on it: a valid checksum means that it was not damaged,
//! not that its author was honest.
//!
//! Refused here: dangling references, numbers that would overflow, families that never come
//! together, mappings over the engine's own pages (a template is outside every sandbox), and names
//! that lead out of their directory. Data that is wrong only for the program itself, such as a
//! register, is not checked.

use crate::error::{Error, Result};
use crate::plan::{HELPER_PID, INNER_HELPER_PID};
use bstr::{BString, ByteSlice};
use stasis_image::model::*;
use stasis_spawner::layout::{RESERVED, RESERVED_END};
use stasis_sys::seccomp::MAX_INSTRUCTIONS;
use stasis_sys::{PAGE, libc, trees};
use std::collections::{HashMap, HashSet};

const TOP: u64 = 0x7fff_ffff_f000;
const MAX_PROCESSES: usize = 4096;
const MAX_THREADS: usize = 16384;
const MAX_TIMERS: usize = 4096;
const MAX_DESCRIPTOR: i32 = 1 << 20;
/// The kernel's own limit for process numbers.
const MAX_PID: i32 = 1 << 22;
const MAX_PIPE: u32 = 16 << 20;
const MAX_AUXV: usize = 64;
const MAX_SEMAPHORES: usize = 32000;
const RLIMITS: usize = 16;
/// The kernel takes no more instructions than eight of the longest have.
const MAX_FILTERS: usize = 64;
const CAP_SYS_ADMIN: u32 = 21;
const SIGINFO_LEN: usize = 128;
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;
const STOP_SIGNALS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
/// Clocks are subtracted from one another; half of the range leaves room for that.
const MAX_CLOCK: u64 = 1 << 62;
/// The kernel's value for never.
const MAX_TIME: u64 = i64::MAX as u64;
const MAX_SIZE: u64 = 1 << 62;
/// The kernel's own limit for one name in a directory.
const LONGEST_NAME: usize = 255;
/// Room for the largest of the kernel's own mappings to move to.
const KERNEL_ROOM: u64 = 1 << 20;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Unfit(what())) }
}

/// The first of two equal items.
fn twice<T: std::hash::Hash + Eq>(items: impl IntoIterator<Item = T>) -> Option<T> {
    let mut seen = HashSet::new();
    items.into_iter().find_map(|item| seen.replace(item))
}

/// The fault of an image, for the store that reads it.
pub fn check(image: &Manifest) -> std::result::Result<(), String> {
    manifest(image).map_err(|error| match error {
        Error::Unfit(what) => what,
        other => other.to_string(),
    })
}

fn manifest(manifest: &Manifest) -> Result<()> {
    let processes = &manifest.processes;
    ensure(!processes.is_empty() && processes.len() <= MAX_PROCESSES, || {
        format!("{} processes", processes.len())
    })?;
    family(processes)?;
    for own in processes {
        process(manifest, own)?;
    }
    for own in &manifest.objects {
        object(manifest, own)?;
    }
    memory(manifest)?;
    let clocks = &manifest.meta.clocks;
    for ns in [clocks.monotonic_ns, clocks.boottime_ns, clocks.realtime_ns] {
        ensure(ns.unsigned_abs() <= MAX_CLOCK, || format!("a clock at {ns} ns"))?;
    }
    filters(manifest)?;
    files(manifest)
}

/// The kernel checks a filter's code; we check that it can be passed on.
fn filters(manifest: &Manifest) -> Result<()> {
    let all = &manifest.meta.filters;
    ensure(all.len() <= MAX_FILTERS, || format!("{} seccomp filters", all.len()))?;
    for filter in all {
        let len = filter.0.len();
        let fine = (1..=MAX_INSTRUCTIONS).contains(&len);
        ensure(fine, || format!("a seccomp filter of {len} instructions"))?;
    }
    for process in &manifest.processes {
        let Some(live) = process.live() else { continue };
        let (pid, own) = (process.pid, &live.filters);
        let fine = own.len() <= MAX_FILTERS && own.iter().all(|own| (*own as usize) < all.len());
        ensure(fine, || format!("process {pid} has {} seccomp filters", own.len()))?;
        let may = |thread: &Thread| {
            thread.no_new_privs || thread.creds.effective & (1 << CAP_SYS_ADMIN) != 0
        };
        ensure(own.is_empty() || live.threads.iter().all(may), || {
            format!("process {pid} has seccomp filters and no right to them")
        })?;
    }
    Ok(())
}

/// Numbers are unique, and every process has a live parent and a path up to init.
fn family(processes: &[Process]) -> Result<()> {
    let threads = processes.iter().filter_map(Process::live).flat_map(|live| &live.threads);
    let zombies = processes.iter().filter(|process| process.live().is_none());
    let numbers = threads.map(|thread| thread.tid).chain(zombies.map(|zombie| zombie.pid));
    let numbers: Vec<i32> = numbers.collect();
    ensure(numbers.len() <= MAX_THREADS, || format!("{} threads", numbers.len()))?;
    for number in &numbers {
        let fine =
            (2..MAX_PID).contains(number) && ![HELPER_PID, INNER_HELPER_PID].contains(number);
        ensure(fine, || format!("a process or thread {number}"))?;
    }
    if let Some(number) = twice(numbers) {
        return Err(Error::Unfit(format!("two processes or threads {number}")));
    }
    let live = processes.iter().filter(|process| process.live().is_some());
    let parents: HashMap<i32, i32> = live.map(|process| (process.pid, process.ppid)).collect();
    for process in processes {
        let mut ancestor = Some(process.ppid);
        let mut steps = 0;
        while let Some(pid) = ancestor.filter(|pid| *pid != 1 && steps <= processes.len()) {
            ancestor = parents.get(&pid).copied();
            steps += 1;
        }
        ensure(ancestor == Some(1), || {
            format!("process {} of parent {}, who leads nowhere", process.pid, process.ppid)
        })?;
    }
    Ok(())
}

fn process(manifest: &Manifest, process: &Process) -> Result<()> {
    let pid = process.pid;
    let within = |what: &'static str, len: usize, limit: usize| {
        ensure(len <= limit, || format!("process {pid} has {len} {what}"))
    };
    let Some(live) = process.live() else { return Ok(()) };
    ensure(live.threads.first().is_some_and(|leader| leader.tid == pid), || {
        format!("process {pid} has no first thread")
    })?;
    ensure((live.exe as usize) < manifest.meta.mapped_files.len(), || {
        format!("process {pid} has no program file")
    })?;
    mappings(manifest, pid, &live.vmas)?;
    let objects = &manifest.objects;
    for fd in &live.fds {
        let object = objects.get(fd.object as usize);
        let open = object.is_some_and(|object| is_open(&object.kind));
        let fine = open && (0..MAX_DESCRIPTOR).contains(&fd.number);
        ensure(fine, || format!("process {pid} has descriptor {}", fd.number))?;
    }
    if let Some(number) = twice(live.fds.iter().map(|fd| fd.number)) {
        return Err(Error::Unfit(format!("process {pid} has descriptor {number} twice")));
    }
    for area in live.threads.iter().filter_map(|thread| thread.rseq) {
        // the kernel and the engine both write there
        let end = area.address.saturating_add(area.length.into());
        let fine = end <= TOP && is_apart_from_ours(area.address, end);
        ensure(fine, || format!("process {pid} has an rseq area at {:x}", area.address))?;
    }
    within("limits", live.rlimits.len(), RLIMITS)?;
    within("auxiliary words", live.mm.auxv.len(), MAX_AUXV)?;
    within("timers", live.timers.len(), MAX_TIMERS)?;
    signals(pid, live)?;
    timers(pid, live)
}

fn signals(pid: i32, live: &LiveProcess) -> Result<()> {
    if let Some(stop) = live.stopped {
        let fine = STOP_SIGNALS.contains(&stop.signal);
        ensure(fine, || format!("process {pid} is stopped by signal {}", stop.signal))?;
    }
    for action in &live.actions {
        let fine = SIGNALS.contains(&action.signal);
        ensure(fine, || format!("process {pid} handles signal {}", action.signal))?;
    }
    let pending = live.threads.iter().flat_map(|thread| &thread.pending).chain(&live.pending);
    for info in pending {
        let fine = info.0.len() == SIGINFO_LEN && SIGNALS.contains(&info.signal());
        ensure(fine, || format!("process {pid} has a signal of {} bytes", info.0.len()))?;
    }
    Ok(())
}

fn timers(pid: i32, live: &LiveProcess) -> Result<()> {
    let what = || format!("process {pid} has a timer that no clock can keep");
    for timer in &live.timers {
        ensure(timer.id >= 0 && timer.left_ns.max(timer.interval_ns) <= MAX_TIME, what)?;
    }
    for timer in &live.itimers {
        ensure(timer.left_us.max(timer.interval_us) <= MAX_TIME, what)?;
    }
    match twice(live.timers.iter().map(|timer| timer.id)) {
        Some(id) => Err(Error::Unfit(format!("process {pid} has timer {id} twice"))),
        None => Ok(()),
    }
}

fn is_aligned(start: u64, end: u64) -> bool {
    start < end && end <= TOP && start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE)
}

fn is_apart_from_ours(start: u64, end: u64) -> bool {
    end <= RESERVED || start >= RESERVED_END
}

fn mappings(manifest: &Manifest, pid: i32, vmas: &[Vma]) -> Result<()> {
    let mut last = 0;
    for vma in vmas {
        let (start, end) = (vma.start, vma.end);
        let fine = start >= last
            && is_aligned(start, end)
            && is_apart_from_ours(start, end)
            && vma.prot <= 7;
        ensure(fine, || format!("process {pid} maps {start:x}-{end:x}"))?;
        last = end;
        backing(manifest, pid, vma)?;
    }
    let kernel = vmas.iter().filter_map(|vma| match vma.backing {
        Backing::Kernel(kind) => Some(kind as u8),
        _ => None,
    });
    ensure(twice(kernel).is_none(), || format!("process {pid} has one of the kernel's pages twice"))
}

fn backing(manifest: &Manifest, pid: i32, vma: &Vma) -> Result<()> {
    let reaches = |offset: u64| {
        offset.is_multiple_of(PAGE)
            && offset.checked_add(vma.len()).is_some_and(|end| end < MAX_SIZE)
    };
    let fine = match &vma.backing {
        Backing::PrivateFile { file, offset } => {
            (*file as usize) < manifest.meta.mapped_files.len() && reaches(*offset)
        }
        Backing::Segment { segment, offset } | Backing::PrivateSegment { segment, offset } => {
            (*segment as usize) < manifest.segments.len() && reaches(*offset)
        }
        Backing::SharedFile { offset, .. } => reaches(*offset),
        // it is moved as long as it is here, which may be longer
        Backing::Kernel(_) => is_apart_from_ours(vma.start, vma.end + KERNEL_ROOM),
        Backing::Sysv { id, .. } => *id >= 0 && is_whole(manifest, *id, vma),
        Backing::Anonymous | Backing::Droppable => true,
    };
    ensure(fine, || format!("process {pid}: mapping {:x} refers to nothing", vma.start))
}

/// System V memory is attached as a whole, however long the mapping says it is.
fn is_whole(manifest: &Manifest, id: i32, vma: &Vma) -> bool {
    manifest.objects.iter().any(|object| match &object.kind {
        ObjectKind::SysvMemory(memory) if memory.name.id == id => {
            let segment = manifest.segments.get(memory.segment as usize);
            segment.is_some_and(|own| own.size.div_ceil(PAGE) == vma.len() / PAGE)
        }
        _ => false,
    })
}

/// Kinds that are never open: others refer to them.
fn is_open(kind: &ObjectKind) -> bool {
    !matches!(
        kind,
        ObjectKind::PipeBuffer { .. }
            | ObjectKind::Terminal(_)
            | ObjectKind::SysvMemory(_)
            | ObjectKind::SysvSemaphores(_)
            | ObjectKind::SysvQueue(_)
    )
}

fn object(manifest: &Manifest, object: &Object) -> Result<()> {
    let of = |index: u32| manifest.objects.get(index as usize).map(|object| &object.kind);
    let fine = match &object.kind {
        ObjectKind::Memfd { segment, .. } | ObjectKind::Deleted { segment, .. } => {
            (*segment as usize) < manifest.segments.len()
        }
        ObjectKind::SysvMemory(memory) => {
            memory.name.id >= 0 && (memory.segment as usize) < manifest.segments.len()
        }
        ObjectKind::SysvSemaphores(semaphores) => {
            semaphores.name.id >= 0 && semaphores.values.len() <= MAX_SEMAPHORES
        }
        ObjectKind::SysvQueue(queue) => {
            let bytes = queue.messages.iter().map(|(_, message)| message.len() as u64).sum::<u64>();
            queue.name.id >= 0 && bytes <= queue.limit
        }
        ObjectKind::Pipe { pipe, .. } => matches!(of(*pipe), Some(ObjectKind::PipeBuffer { .. })),
        ObjectKind::Pty(pty) => matches!(of(pty.terminal), Some(ObjectKind::Terminal(_))),
        ObjectKind::PipeBuffer { capacity, content, .. } => {
            *capacity <= MAX_PIPE && content.bytes.len() <= *capacity as usize
        }
        ObjectKind::Timerfd(timer) => timer.left_ns.max(timer.interval_ns) <= MAX_TIME,
        _ => true,
    };
    ensure(fine, || format!("an open {} that cannot be", kind_name(&object.kind)))
}

/// The variant's name alone: contents may be long, and are not to be trusted in a message.
fn kind_name(kind: &ObjectKind) -> String {
    let text = format!("{kind:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("").to_owned()
}

fn memory(manifest: &Manifest) -> Result<()> {
    for memory in &manifest.memory {
        runs(manifest, &memory.runs, TOP / PAGE)?;
        for (start, end) in &memory.guards {
            let fine = is_aligned(*start, *end) && is_apart_from_ours(*start, *end);
            ensure(fine, || format!("a guard at {start:x}-{end:x}"))?;
        }
    }
    if let Some(pid) = twice(manifest.memory.iter().map(|memory| memory.pid)) {
        return Err(Error::Unfit(format!("the memory of process {pid} twice")));
    }
    for segment in &manifest.segments {
        ensure(segment.size <= TOP, || format!("shared memory of {} bytes", segment.size))?;
        runs(manifest, &segment.runs, segment.size.div_ceil(PAGE))?;
    }
    Ok(())
}

/// Sorted, apart, inside `limit` pages, and inside their packs.
fn runs(manifest: &Manifest, runs: &[PageRun], limit: u64) -> Result<()> {
    let mut last = 0;
    for run in runs {
        let pages = manifest.meta.packs.get(run.pack as usize).map_or(0, |pack| pack.pages);
        let fine = run.page >= last
            && run.count > 0
            && run.page.checked_add(run.count.into()).is_some_and(|end| end <= limit)
            && run.slot.checked_add(run.count.into()).is_some_and(|end| end <= pages);
        ensure(fine, || format!("a run of {} pages at page {:x}", run.count, run.page))?;
        last = run.end();
    }
    Ok(())
}

fn files(manifest: &Manifest) -> Result<()> {
    let entries = &manifest.files.entries;
    if let Some(path) = twice(entries.iter().map(|entry| &entry.path)) {
        return Err(Error::Unfit(format!("two files {path:?}")));
    }
    // targets of a further name: not a link, which would lead elsewhere
    let linkable = |entry: &&FileEntry| {
        matches!(
            entry.kind,
            FileEntryKind::Regular { .. } | FileEntryKind::Fifo | FileEntryKind::Socket
        )
    };
    let targets: HashSet<&BString> =
        entries.iter().filter(linkable).map(|entry| &entry.path).collect();
    held(&manifest.files)?;
    let mut directories = HashSet::new();
    for entry in entries {
        file(manifest, entry, &targets)?;
        // a parent that is a link would lead the writer of the files elsewhere
        let (parent, _) = trees::split(&entry.path);
        ensure(parent.is_empty() || directories.contains(parent), || {
            format!("a file {:?} outside any directory", entry.path)
        })?;
        if matches!(entry.kind, FileEntryKind::Directory) {
            directories.insert(entry.path.as_slice());
        }
    }
    Ok(())
}

/// Each a file that is there, and each of an inode of its own: overlayfs would take two of one for
/// the same file.
fn held(files: &FileTree) -> Result<()> {
    let regular = |entry: &&FileEntry| matches!(entry.kind, FileEntryKind::Regular { .. });
    let regular: HashSet<&BString> =
        files.entries.iter().filter(regular).map(|entry| &entry.path).collect();
    for held in &files.held {
        let path = &held.path;
        ensure(regular.contains(path), || format!("an open file {path:?} that is not there"))?;
    }
    let paths = twice(files.held.iter().map(|held| &held.path));
    let origins = twice(files.held.iter().map(|held| held.origin));
    ensure(paths.is_none() && origins.is_none(), || "an open file twice".into())
}

/// Whether a directory can have something of this name.
fn is_name(part: &[u8]) -> bool {
    !matches!(part, b"" | b"." | b"..") && !part.contains(&0) && part.len() <= LONGEST_NAME
}

fn file(manifest: &Manifest, entry: &FileEntry, targets: &HashSet<&BString>) -> Result<()> {
    let path = &entry.path;
    let plain = path.split_str("/").all(is_name);
    ensure(plain, || format!("a file called {path:?}"))?;
    ensure(entry.mode <= 0o7777, || format!("a file {path:?} of mode {:o}", entry.mode))?;
    // overlay would act on its own notes; only the one that hides is ever written
    let foreign = entry.xattrs.iter().map(|(name, _)| name).find(|name| {
        name.starts_with(b"trusted.overlay.")
            && !stasis_store::layers::KEPT_OVERLAY_NOTES.iter().any(|kept| *name == kept)
    });
    ensure(foreign.is_none(), || format!("a file {path:?} with an overlay's own notes"))?;
    match &entry.kind {
        FileEntryKind::Hardlink { target } => {
            ensure(targets.contains(target), || format!("a link to {target:?}"))
        }
        FileEntryKind::Regular { size, runs: own } => {
            ensure(*size <= MAX_SIZE, || format!("a file {path:?} of {size} bytes"))?;
            runs(manifest, own, size.div_ceil(PAGE))
        }
        _ => Ok(()),
    }
}
