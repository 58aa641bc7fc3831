//! What an image says is checked before anything acts on it: a valid checksum means it was not
//! damaged, not that whoever made it was honest.

use crate::error::{Error, Result};
use stasis_image::model::*;
use stasis_sys::PAGE;

const TOP: u64 = 0x7fff_ffff_f000;
const MAX_PROCESSES: usize = 4096;
const MAX_DESCRIPTOR: i32 = 1 << 20;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Unfit(what())) }
}

pub fn manifest(manifest: &Manifest) -> Result<()> {
    let processes = &manifest.processes;
    ensure(!processes.is_empty() && processes.len() <= MAX_PROCESSES, || {
        format!("{} processes", processes.len())
    })?;
    for own in processes {
        process(manifest, own)?;
    }
    for memory in &manifest.memory {
        runs(manifest, &memory.runs, TOP / PAGE)?;
        for (start, end) in &memory.guards {
            ensure(start < end && *end <= TOP, || format!("a guard at {start:x}-{end:x}"))?;
        }
    }
    for segment in &manifest.segments {
        runs(manifest, &segment.runs, segment.size.div_ceil(PAGE))?;
    }
    let mut directories = std::collections::HashSet::new();
    for entry in &manifest.files.entries {
        file(manifest, entry)?;
        // a parent that is a link would lead whoever lays the files out somewhere else
        let parent = entry.path.rsplit_once('/').map(|(parent, _)| parent);
        ensure(parent.is_none_or(|parent| directories.contains(parent)), || {
            format!("a file {:?} outside any directory", entry.path)
        })?;
        if matches!(entry.kind, FileKind::Directory) {
            directories.insert(entry.path.as_str());
        }
    }
    Ok(())
}

fn process(manifest: &Manifest, process: &Process) -> Result<()> {
    let pid = process.pid;
    ensure(pid > 1 && process.ppid > 0, || format!("process {pid} of parent {}", process.ppid))?;
    let Some(live) = process.live() else { return Ok(()) };
    ensure(!live.threads.is_empty(), || format!("process {pid} has no thread"))?;
    ensure((live.exe as usize) < manifest.meta.mapped_files.len(), || {
        format!("process {pid} has no program file")
    })?;
    let mut last = 0;
    for vma in &live.vmas {
        let fine = vma.start >= last
            && vma.end > vma.start
            && vma.end <= TOP
            && vma.start.is_multiple_of(PAGE)
            && vma.end.is_multiple_of(PAGE);
        ensure(fine, || format!("process {pid} maps {:x}-{:x}", vma.start, vma.end))?;
        last = vma.end;
        backing(manifest, pid, vma)?;
    }
    for fd in &live.fds {
        let fine = (0..MAX_DESCRIPTOR).contains(&fd.number)
            && (fd.object as usize) < manifest.objects.len();
        ensure(fine, || format!("process {pid} has descriptor {}", fd.number))?;
    }
    Ok(())
}

fn backing(manifest: &Manifest, pid: i32, vma: &Vma) -> Result<()> {
    let fine = match &vma.backing {
        Backing::PrivateFile { file, .. } => (*file as usize) < manifest.meta.mapped_files.len(),
        Backing::Segment { segment, .. } | Backing::PrivateSegment { segment, .. } => (*segment as usize) < manifest.segments.len(),
        _ => true,
    };
    ensure(fine, || format!("process {pid}: mapping {:x} refers to nothing", vma.start))
}

/// Sorted, apart, inside `limit` pages, and inside their packs.
fn runs(manifest: &Manifest, runs: &[Run], limit: u64) -> Result<()> {
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

fn file(manifest: &Manifest, entry: &FileEntry) -> Result<()> {
    let relative = |path: &str| {
        !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
    };
    ensure(relative(&entry.path), || format!("a file called {:?}", entry.path))?;
    match &entry.kind {
        FileKind::Hardlink { target } => {
            ensure(relative(target), || format!("a link to {target:?}"))
        }
        FileKind::Regular { size, runs: own } => runs(manifest, own, size.div_ceil(PAGE)),
        _ => Ok(()),
    }
}
