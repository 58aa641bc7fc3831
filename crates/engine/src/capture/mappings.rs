//! Mappings, read from the twins after the source runs again, and shared memory, read before.

use super::fds::Objects;
use super::fds::names::Inode;
use super::sink::Sink;
use super::twin::Twin;
use crate::error::{Doing, Error, Result};
use crate::freeze::{Frozen, FrozenProcess};
use crate::proc::{self, Mapping};
use crate::tree::Tree;
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_spawner::layout;
use stasis_sys::{files as sysfiles, libc};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Contents of files without a name, by device and inode.
#[derive(Default)]
pub struct Segments {
    pub list: Vec<Segment>,
    pub index: HashMap<(u64, u64), u32>,
}

/// Shared memory, and what private mappings of a file without a name show through, are not
/// copied by a fork, so they are read while everything stands still.
pub fn shared_segments(
    frozen: &Frozen,
    tree: &Tree,
    objects: &mut Objects,
    sink: &mut Sink,
) -> Result<Segments> {
    let mut segments = std::mem::take(&mut objects.segments);
    let closer = tree.memo().look_closer;
    // reading a long list of mappings takes longer than the rest of the pause, so it is done only
    // where there is shared memory with something in it
    let shares = |process: &&FrozenProcess| {
        let resident = process.status.number("RssShmem").unwrap_or(0) > 0;
        process.live.is_some() && (closer || resident)
    };
    for process in frozen.processes.iter().filter(shares) {
        let maps = parse(process.pid, "maps")?;
        for map in maps.iter().filter(|map| map.path.ends_with(DELETED)) {
            let path = map_file(process.pid, map);
            let meta = std::fs::metadata(&path).doing(|| format!("look at {path}"))?;
            let key = segment_key(&meta);
            let mut named = || -> Result<bool> {
                let names = objects.names(tree)?;
                Ok(names.current(&map.path, Inode::of(&meta), meta.nlink()).is_some())
            };
            if segments.index.contains_key(&key) || named()? {
                continue;
            }
            if map.path == AIO {
                return Err(super::refuse(process, "an asynchronous I/O context (io_setup)"));
            }
            let file = File::open(&path).doing(|| format!("open {path}"))?;
            let segment = read_segment(&file, SegmentKind::Anonymous, sink)?;
            segments.add(key, segment);
        }
    }
    Ok(segments)
}

const DELETED: &str = " (deleted)";
/// What the kernel maps for io_setup(2).
const AIO: &str = "/[aio] (deleted)";

fn map_file(pid: i32, map: &Mapping) -> String {
    format!("/proc/{pid}/map_files/{:x}-{:x}", map.start, map.end)
}

/// What tells one nameless file from another. Not what maps prints: an overlay's files have
/// other numbers there than for stat.
pub fn segment_key(meta: &std::fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

impl Segments {
    pub fn add(&mut self, key: (u64, u64), segment: Segment) -> u32 {
        let index = self.list.len() as u32;
        self.list.push(segment);
        self.index.insert(key, index);
        index
    }
}

pub fn read_segment(file: &File, kind: SegmentKind, sink: &mut Sink) -> Result<Segment> {
    let size = file.metadata().doing(|| "look at shared memory".into())?.len();
    let runs = read_content(file, size, sink)?;
    Ok(Segment { kind, size, runs })
}

/// Pages of a file that are not all zero.
pub fn read_content(file: &File, size: u64, sink: &mut Sink) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut from = 0;
    let doing = || "read a file of the machine".to_owned();
    while let Some((start, end)) =
        stasis_sys::files::next_data(file.as_fd(), from).doing(doing)?.filter(|d| d.0 < size)
    {
        let start = start - start % PAGE_SIZE as u64;
        let mut at = start.max(from);
        while at < end {
            let mut chunk =
                vec![0u8; ((end - at).min(256 << 10) as usize).next_multiple_of(PAGE_SIZE)];
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
    segments: &Segments,
    closer: bool,
) -> Result<Completeness> {
    let mut table = Table { files, by_path: HashMap::new() };
    for twin in twins {
        let process = processes.iter_mut().find(|process| process.pid == twin.own_pid);
        let Some(Process { state: ProcessState::Live(live), .. }) = process else { continue };
        let maps = parse(twin.pid, "smaps")?;
        for map in &maps {
            if !closer && lacks(twin, map, segments)? {
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

fn lacks(twin: &Twin, map: &Mapping, segments: &Segments) -> Result<bool> {
    let wiped = map.has_flag("wf") && !within(&twin.marks.wipe_on_fork, map);
    let nameless = map.path.ends_with(DELETED);
    Ok(wiped || nameless && segment_of(twin, map, segments)?.is_none())
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
    segments: &Segments,
) -> Result<Option<Vma>> {
    if map.path == "[vsyscall]" {
        return Ok(None);
    }
    if map.start < layout::RESERVED_END && map.end > layout::RESERVED {
        return if is_ours(twin, map) {
            Ok(None)
        } else {
            Err(Error::refused(twin.own_pid, "it mapped memory where the engine keeps its own"))
        };
    }
    for (flag, what) in
        [("ht", "huge page files"), ("io", "device memory"), ("pf", "device memory")]
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

/// Our own pages: the interpreter, which every program of a tree has, and what a restored process
/// keeps beside it.
fn is_ours(twin: &Twin, map: &Mapping) -> bool {
    let code = map.start == layout::CODE && map.end <= layout::CODE + stasis_sys::PAGE;
    let leave = map.start >= layout::LEAVE && map.end <= layout::LEAVE + layout::LEAVE_MAX;
    twin.restored && leave || code && crate::inject::holds_interpreter(&twin.memory)
}

fn backing(twin: &Twin, map: &Mapping, table: &mut Table, segments: &Segments) -> Result<Backing> {
    let kernel = match map.path.as_str() {
        "[vdso]" => Some(KernelMapping::Vdso),
        "[vvar]" => Some(KernelMapping::Vvar),
        "[vvar_vclock]" => Some(KernelMapping::VvarVclock),
        _ => None,
    };
    if let Some(kernel) = kernel {
        return Ok(Backing::Kernel(kernel));
    }
    // System V shared memory 0 is a file with the number 0
    if map.inode == 0 && !map.path.starts_with('/') {
        return Ok(Backing::Anonymous);
    }
    let range = format!("{:x}-{:x}", map.start, map.end);
    if map.path.contains("\\012") {
        let what = format!("mapping {range}: a newline in the name {}", map.path);
        return Err(Error::refused(twin.own_pid, what));
    }
    let offset = map.offset;
    if let Some(segment) = segment_of(twin, map, segments)? {
        if let SegmentKind::Sysv { id } = segments.list[segment as usize].kind {
            let size = segments.list[segment as usize].size;
            return attachment(twin, map, id, size);
        }
        return Ok(match map.shared {
            true => Backing::Segment { segment, offset },
            false => Backing::PrivateSegment { segment, offset },
        });
    }
    // a name lost since the pause was still there at the instant of the capture
    let path = match map.path.strip_suffix(DELETED) {
        Some(_) if is_called_so(twin, map) => &map.path,
        Some(path) => path,
        None => &map.path,
    };
    if !path.starts_with('/') {
        return Err(Error::refused(twin.own_pid, format!("mapping {range}: {path}")));
    }
    if map.shared {
        let writable = map.has_flag("mw");
        return Ok(Backing::SharedFile { path: path.to_owned(), offset, writable });
    }
    let file = table.add(twin.pid, path, &format!("map_files/{range}"))?;
    Ok(Backing::PrivateFile { file, offset })
}

/// System V shared memory is attached again by its id, which gives all of it.
fn attachment(twin: &Twin, map: &Mapping, id: i32, size: u64) -> Result<Backing> {
    let whole = map.offset == 0 && map.end - map.start == size.next_multiple_of(PAGE_SIZE as u64);
    if !whole {
        let range = format!("{:x}-{:x}", map.start, map.end);
        let what = format!("mapping {range}: a part of System V shared memory {id}");
        return Err(Error::refused(twin.own_pid, what));
    }
    Ok(Backing::Sysv { id, writable: map.has_flag("mw") })
}

/// Whether the name that looks like a deleted file's is the file's own.
fn is_called_so(twin: &Twin, map: &Mapping) -> bool {
    let look = || -> std::io::Result<bool> {
        let root = File::open(format!("/proc/{}/root", twin.pid))?;
        let named = sysfiles::open_in_root(root.as_fd(), &map.path, libc::O_PATH)?;
        let (named, mapped) =
            (File::from(named).metadata()?, std::fs::metadata(map_file(twin.pid, map))?);
        Ok(segment_key(&named) == segment_key(&mapped))
    };
    look().unwrap_or(false)
}

/// The contents behind a mapping whose file had no name in the pause.
fn segment_of(twin: &Twin, map: &Mapping, segments: &Segments) -> Result<Option<u32>> {
    if !map.path.ends_with(DELETED) {
        return Ok(None);
    }
    let path = map_file(twin.pid, map);
    let meta = std::fs::metadata(&path).doing(|| format!("look at {path}"))?;
    Ok(segments.index.get(&segment_key(&meta)).copied())
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
