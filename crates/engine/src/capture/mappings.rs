//! Mappings, read from the twins after the source runs again, and shared memory, read before.

use super::fds::Objects;
use super::sink::Sink;
use super::twin::Twin;
use crate::error::{Doing, Error, Result};
use crate::freeze::{Frozen, FrozenProcess};
use crate::proc::{self, Mapping};
use stasis_image::model::*;
use stasis_image::PAGE_SIZE;
use stasis_spawner::layout;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Shared memory by what the kernel calls it: device and inode.
#[derive(Default)]
pub struct Segments {
    pub list: Vec<Segment>,
    pub index: HashMap<(String, u64), u32>,
}

/// Shared memory is not copied by a fork, so it is read while everything stands still.
pub fn shared_segments(
    frozen: &Frozen,
    closer: bool,
    objects: &mut Objects,
    sink: &mut Sink,
) -> Result<Segments> {
    let mut segments = std::mem::take(&mut objects.segments);
    // reading a long list of mappings takes longer than the rest of the pause, so it is done only
    // where there is shared memory with something in it
    let shares = |process: &&FrozenProcess| {
        let resident = process.status.number("RssShmem").unwrap_or(0) > 0;
        process.live.is_some() && (closer || resident)
    };
    for process in frozen.processes.iter().filter(shares) {
        let maps = parse(process.pid, "maps")?;
        for map in maps.iter().filter(|map| is_segment(map)) {
            let key = (map.device.clone(), map.inode);
            if segments.index.contains_key(&key) {
                continue;
            }
            let path = format!("/proc/{}/map_files/{:x}-{:x}", process.pid, map.start, map.end);
            let file = File::open(&path).doing(|| format!("open {path}"))?;
            let segment = read_segment(&file, SegmentKind::Anonymous, sink)?;
            segments.add(key, segment);
        }
    }
    Ok(segments)
}

impl Segments {
    pub fn add(&mut self, key: (String, u64), segment: Segment) -> u32 {
        let index = self.list.len() as u32;
        self.list.push(segment);
        self.index.insert(key, index);
        index
    }
}

/// Shared memory whose contents belong to no file that has a name.
fn is_segment(map: &Mapping) -> bool {
    map.shared && map.path.ends_with(" (deleted)")
}

pub fn read_segment(file: &File, kind: SegmentKind, sink: &mut Sink) -> Result<Segment> {
    let size = file.metadata().doing(|| "look at shared memory".into())?.len();
    let runs = read_content(file, size, sink)?;
    Ok(Segment { kind, size, runs })
}

/// Pages of a file that are not all zero.
pub fn read_content(file: &File, size: u64, sink: &mut Sink) -> Result<Vec<Run>> {
    use std::os::fd::AsFd;
    let mut runs = Vec::new();
    let mut from = 0;
    let doing = || "read a file of the machine".to_owned();
    while let Some((start, end)) =
        stasis_sys::files::next_data(file.as_fd(), from).doing(doing)?.filter(|d| d.0 < size)
    {
        let start = start - start % PAGE_SIZE as u64;
        let mut at = start.max(from);
        while at < end {
            let mut chunk = vec![0u8; ((end - at).min(256 << 10) as usize).next_multiple_of(PAGE_SIZE)];
            let wanted = (size - at).min(chunk.len() as u64) as usize;
            file.read_exact_at(&mut chunk[..wanted], at).doing(doing)?;
            sink.keep(at / PAGE_SIZE as u64, &chunk, |_| None, &mut runs)?;
            at += chunk.len() as u64;
        }
        from = at;
    }
    Ok(runs)
}

fn parse(pid: i32, name: &str) -> Result<Vec<Mapping>> {
    proc::parse_maps(&proc::read_text(pid, name)?)
        .ok_or_else(|| Error::refused(pid, format!("its {name} file is unreadable")))
}

/// Whether the twins show everything the sources had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    Whole,
    /// Memory was emptied by the fork, or shared memory was not looked at in the pause.
    Lacking,
}

/// Fills in the mappings of every live process.
pub fn read_all(
    twins: &[Twin],
    processes: &mut [Process],
    files: &mut Vec<MappedFile>,
    segments: &HashMap<(String, u64), u32>,
) -> Result<Completeness> {
    let mut table = Table { files, by_path: HashMap::new() };
    for twin in twins {
        let process = processes.iter_mut().find(|process| process.pid == twin.own_pid);
        let Some(Process { state: ProcessState::Live(live), .. }) = process else { continue };
        let maps = parse(twin.pid, "smaps")?;
        for map in &maps {
            if lacks(twin, map, segments) {
                return Ok(Completeness::Lacking);
            }
            if let Some(vma) = convert(twin, map, &mut table, segments)? {
                live.vmas.push(vma);
            }
        }
        live.exe = table.add(twin.pid, &proc::read_link(twin.pid, "exe")?, "exe")?;
        kernel_shape(twin, live)?;
    }
    Ok(Completeness::Whole)
}

fn lacks(twin: &Twin, map: &Mapping, segments: &HashMap<(String, u64), u32>) -> bool {
    let wiped = map.has_flag("wf") && !within(&twin.marks.wipe_on_fork, map);
    wiped || is_segment(map) && !segments.contains_key(&(map.device.clone(), map.inode))
}

/// Mapped files, each recorded once.
struct Table<'a> {
    files: &'a mut Vec<MappedFile>,
    by_path: HashMap<String, u32>,
}

impl Table<'_> {
    /// `link` is a name below /proc/PID through which the file can be looked at.
    fn add(&mut self, pid: i32, path: &str, link: &str) -> Result<u32> {
        if let Some(index) = self.by_path.get(path) {
            return Ok(*index);
        }
        let link = format!("/proc/{pid}/{link}");
        let meta = std::fs::metadata(&link).doing(|| format!("look at {link}"))?;
        let index = self.files.len() as u32;
        self.files.push(MappedFile {
            path: path.to_owned(),
            size: meta.len(),
            mtime_s: meta.mtime(),
            mtime_ns: meta.mtime_nsec(),
        });
        self.by_path.insert(path.to_owned(), index);
        Ok(index)
    }
}

fn convert(
    twin: &Twin,
    map: &Mapping,
    table: &mut Table,
    segments: &HashMap<(String, u64), u32>,
) -> Result<Option<Vma>> {
    if map.path == "[vsyscall]" {
        return Ok(None);
    }
    if map.start < layout::RESERVED_END && map.end > layout::RESERVED {
        return if twin.restored && is_ours(twin, map) {
            Ok(None)
        } else {
            Err(Error::refused(twin.own_pid, "it mapped memory where the engine keeps its own"))
        };
    }
    for (flag, what) in [("ht", "huge page files"), ("io", "device memory"), ("pf", "device memory")]
    {
        if map.has_flag(flag) && !map.path.starts_with("[v") {
            let range = format!("{:x}-{:x}", map.start, map.end);
            return Err(Error::refused(twin.own_pid, format!("mapping {range}: {what}")));
        }
    }
    let backing = backing(twin, map, table, segments)?;
    let name = map.path.strip_prefix("[anon:").and_then(|name| name.strip_suffix(']'));
    Ok(Some(Vma {
        start: map.start,
        end: map.end,
        prot: map.prot,
        backing,
        traits: VmaTraits {
            grows_down: map.has_flag("gd"),
            dont_fork: map.has_flag("dc") || within(&twin.marks.dont_fork, map),
            wipe_on_fork: map.has_flag("wf") || within(&twin.marks.wipe_on_fork, map),
            locked: within(&twin.marks.locked, map),
            huge: map.has_flag("hg"),
            no_huge: map.has_flag("nh"),
            mergeable: map.has_flag("mg"),
            dont_dump: map.has_flag("dd"),
            no_reserve: map.has_flag("nr"),
        },
        name: name.map(str::to_owned),
    }))
}

/// Whether a mapping lies in ranges whose mark was lifted for the twin.
fn within(ranges: &[(u64, u64)], map: &Mapping) -> bool {
    ranges.iter().any(|(start, end)| *start <= map.start && map.end <= *end)
}

/// What is left of our own pages in a restored process.
fn is_ours(twin: &Twin, map: &Mapping) -> bool {
    let code = map.start == layout::CODE && map.end <= layout::CODE + stasis_sys::PAGE;
    let leave = map.start >= layout::LEAVE && map.end <= layout::LEAVE + layout::LEAVE_MAX;
    leave || code && holds_interpreter(twin)
}

fn holds_interpreter(twin: &Twin) -> bool {
    let code = stasis_sys::arch::interpreter_code();
    let mut found = vec![0; code.len()];
    twin.memory.read(layout::CODE, &mut found).is_ok() && found == code
}

fn backing(
    twin: &Twin,
    map: &Mapping,
    table: &mut Table,
    segments: &HashMap<(String, u64), u32>,
) -> Result<Backing> {
    let kernel = match map.path.as_str() {
        "[vdso]" => Some(KernelMapping::Vdso),
        "[vvar]" => Some(KernelMapping::Vvar),
        "[vvar_vclock]" => Some(KernelMapping::VvarVclock),
        _ => None,
    };
    if let Some(kernel) = kernel {
        return Ok(Backing::Kernel(kernel));
    }
    if let Some(segment) = segments.get(&(map.device.clone(), map.inode)).filter(|_| map.shared) {
        return Ok(Backing::Segment { segment: *segment, offset: map.offset });
    }
    if map.inode == 0 {
        return Ok(Backing::Anonymous);
    }
    let range = format!("{:x}-{:x}", map.start, map.end);
    if map.path.contains("\\012") {
        let what = format!("mapping {range}: a newline in the name {}", map.path);
        return Err(Error::refused(twin.own_pid, what));
    }
    if map.path.ends_with(" (deleted)") {
        let what = format!("mapping {range}: a deleted file ({})", map.path);
        return Err(Error::refused(twin.own_pid, what));
    }
    if map.shared {
        let writable = map.has_flag("mw");
        return Ok(Backing::SharedFile { path: map.path.clone(), offset: map.offset, writable });
    }
    let file = table.add(twin.pid, &map.path, &format!("map_files/{range}"))?;
    Ok(Backing::PrivateFile { file, offset: map.offset })
}

/// Records the vdso where the program knows of it, so that another kernel's is refused.
fn kernel_shape(twin: &Twin, live: &mut Live) -> Result<()> {
    let known = live.mm.auxv.chunks_exact(2).any(|pair| pair[0] == crate::vdso::AT_SYSINFO_EHDR);
    let kernel = live.vmas.iter().filter_map(|vma| match vma.backing {
        Backing::Kernel(kind) => Some((kind, vma.start, vma.len())),
        _ => None,
    });
    let kernel: Vec<_> = kernel.collect();
    live.mm.vdso = kernel.iter().map(|(kind, _, len)| (*kind, *len)).collect();
    let code = kernel.iter().find(|(kind, ..)| *kind == KernelMapping::Vdso);
    if let Some((_, start, len)) = code.filter(|_| known) {
        let mut bytes = vec![0; *len as usize];
        twin.memory.read(*start, &mut bytes).doing(|| "read the vdso".into())?;
        live.mm.vdso_hash = Some(*blake3::hash(&bytes).as_bytes());
    }
    Ok(())
}
