//! Mappings, put together after the source runs again.

mod segments;

pub use segments::{DELETED, SharedSegments, read_segment, segment_key, shared_segments};

use super::copied::Copied;
use super::lasting::Lasting;
use super::still::PausedMemory;
use super::twin::{ForkAdvice, Twin};
use crate::error::{Error, ErrorContext, Result};
use crate::proc::{self, Mapping};
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_spawner::layout;
use stasis_sys::memory::Vmas;
use stasis_sys::{files as sysfiles, libc};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

fn map_file(pid: i32, map: &Mapping) -> String {
    format!("/proc/{pid}/map_files/{:x}-{:x}", map.start, map.end)
}

fn parse(pid: i32, name: &str) -> Result<Vec<Mapping>> {
    proc::parse_maps(&proc::read_text(pid, name)?)
        .ok_or_else(|| Error::refused(pid, format!("its {name} file is unreadable")))
}

/// Whether everything the sources had is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    Whole,
    /// The fork emptied memory, or shared memory was not read in the pause.
    Lacking,
    /// A source without a twin unmapped a file before it was checked.
    Moved,
}

/// Data known beside a process's own list of mappings.
pub struct MappingContext<'a> {
    pub segments: &'a SharedSegments,
    /// Whether shared memory was looked for wherever it may be.
    pub closer: bool,
    pub lasting: Lasting<'a>,
}

/// Fills in the mappings of every live process.
pub fn read_all(
    stills: &[PausedMemory],
    processes: &mut [Process],
    files: &mut Vec<MappedFile>,
    around: &MappingContext,
) -> Result<Completeness> {
    let MappingContext { segments, closer, lasting } = around;
    let mut table = Table { files, by_path: HashMap::new(), last: None, lasting, moved: false };
    for still in stills {
        let process = processes.iter_mut().find(|process| process.pid == still.own_pid());
        let Some(Process { state: ProcessState::Live(live), .. }) = process else { continue };
        let (maps, shown) = match still {
            PausedMemory::Twin(twin) => of_twin(twin)?,
            PausedMemory::Copied(copied) => of_copied(copied)?,
        };
        for map in &maps {
            if still.twin().is_some() && !*closer && lacks(&shown, map, segments) {
                return Ok(Completeness::Lacking);
            }
            if let Some(vma) = convert(&shown, map, &mut table, segments)? {
                live.vmas.push(vma);
            }
        }
        live.exe = match still {
            PausedMemory::Twin(twin) => {
                table.add(&shown, &proc::read_link(twin.pid, "exe")?, Seen::Exe)?
            }
            PausedMemory::Copied(copied) => table.insert(&copied.exe.0, &copied.exe.1),
        };
        if let Some(exe) = table.files.get(live.exe as usize) {
            check_text(still.own_pid(), &exe.path)?;
        }
        kernel_shape(still, live)?;
    }
    Ok(if table.moved { Completeness::Moved } else { Completeness::Whole })
}

/// The sources of mappings.
struct Shown<'a> {
    /// The process whose `/proc` shows the mapped files.
    pid: i32,
    own_pid: i32,
    restored: bool,
    interpreter: bool,
    marks: ForkAdvice,
    nameless: HashMap<u64, UnnamedFile>,
    /// A running source may have changed the shown data.
    running: Option<(&'a Copied, Vmas)>,
}

fn of_twin(twin: &Twin) -> Result<(Vec<Mapping>, Shown<'_>)> {
    let maps = parse(twin.pid, "smaps")?;
    let deleted = maps.iter().filter(|map| map.path.ends_with(DELETED));
    let nameless = deleted.map(|map| Ok((map.start, UnnamedFile::look(twin.pid, map)?)));
    let shown = Shown {
        pid: twin.pid,
        own_pid: twin.own_pid,
        restored: twin.restored,
        interpreter: crate::inject::holds_interpreter(&twin.memory),
        marks: twin.marks.clone(),
        nameless: nameless.collect::<Result<_>>()?,
        running: None,
    };
    Ok((maps, shown))
}

fn of_copied(copied: &Copied) -> Result<(Vec<Mapping>, Shown<'_>)> {
    let vmas = Vmas::open(copied.pid).doing(|| format!("open the mappings of {}", copied.pid))?;
    let maps = copied.mappings();
    let locked = maps.iter().filter(|map| map.has_flag("lo")).map(|map| (map.start, map.end));
    let shown = Shown {
        pid: copied.pid,
        own_pid: copied.own_pid,
        restored: copied.restored,
        interpreter: copied.interpreter,
        marks: ForkAdvice { locked: locked.collect(), ..ForkAdvice::default() },
        nameless: copied.nameless.clone(),
        running: Some((copied, vmas)),
    };
    Ok((maps, shown))
}

fn lacks(shown: &Shown, map: &Mapping, segments: &SharedSegments) -> bool {
    let wiped = map.has_flag("wf") && !is_droppable(map) && !within(&shown.marks.wipe_on_fork, map);
    let nameless = map.path.ends_with(DELETED);
    wiped || nameless && segment_of(shown, map, segments).is_none()
}

/// Whether the kernel may empty it at any time, as every fork does.
pub fn is_droppable(map: &Mapping) -> bool {
    map.has_flag("dp")
}

/// The kind of a mapped file without a name.
#[derive(Debug, Clone, Copy)]
pub struct UnnamedFile {
    key: (u64, u64),
    /// The name that looks like a deleted file's is the file's own.
    called_so: bool,
}

impl UnnamedFile {
    pub fn look(pid: i32, map: &Mapping) -> Result<UnnamedFile> {
        let path = map_file(pid, map);
        let meta = std::fs::metadata(&path).doing(|| format!("look at {path}"))?;
        let key = segment_key(&meta);
        let named = || -> std::io::Result<bool> {
            let root = File::open(format!("/proc/{pid}/root"))?;
            let named = sysfiles::open_in_root(root.as_fd(), &map.path, libc::O_PATH)?;
            Ok(segment_key(&File::from(named).metadata()?) == key)
        };
        Ok(UnnamedFile { key, called_so: named().unwrap_or(false) })
    }
}

/// Mapped files, each recorded once.
struct Table<'a> {
    files: &'a mut Vec<MappedFile>,
    by_path: HashMap<String, u32>,
    /// The file that was asked for last: its mappings are mostly side by side.
    last: Option<u32>,
    lasting: &'a Lasting<'a>,
    moved: bool,
}

/// Where a file is seen below `/proc/PID`.
enum Seen<'a> {
    Exe,
    Mapped(&'a Mapping),
}

impl Table<'_> {
    fn add(&mut self, shown: &Shown, path: &str, seen: Seen) -> Result<u32> {
        let is_path = |index: &u32| self.files.get(*index as usize).is_some_and(|f| f.path == path);
        let known = self.last.filter(is_path).or_else(|| self.by_path.get(path).copied());
        if let Some(index) = known {
            self.last = Some(index);
            return Ok(index);
        }
        if let (Some((copied, _)), Seen::Mapped(map)) = (&shown.running, &seen)
            && map.path == path
            && let Some(file) = self.lasting.find(copied, path, map.start)
        {
            return Ok(self.record(file.clone()));
        }
        let link = match &seen {
            Seen::Exe => format!("/proc/{}/exe", shown.pid),
            Seen::Mapped(map) => map_file(shown.pid, map),
        };
        let meta = std::fs::metadata(&link);
        let gone = match (&shown.running, seen) {
            (Some((copied, vmas)), Seen::Mapped(map)) => {
                meta.is_err() || !copied.still_maps(vmas, map.start)
            }
            _ => false,
        };
        if gone {
            // whatever is returned, the capture starts again
            self.moved = true;
            return Ok(0);
        }
        Ok(self.insert(path, &meta.doing(|| format!("look at {link}"))?))
    }

    fn insert(&mut self, path: &str, meta: &Metadata) -> u32 {
        self.record(MappedFile {
            path: path.to_owned(),
            size: meta.len(),
            mtime_s: meta.mtime(),
            mtime_ns: meta.mtime_nsec(),
        })
    }

    fn record(&mut self, file: MappedFile) -> u32 {
        let next = self.files.len() as u32;
        let index = *self.by_path.entry(file.path.clone()).or_insert(next);
        if index == next {
            self.files.push(file);
        }
        index
    }
}

fn convert(
    shown: &Shown,
    map: &Mapping,
    table: &mut Table,
    segments: &SharedSegments,
) -> Result<Option<Vma>> {
    if map.path == "[vsyscall]" {
        return Ok(None);
    }
    if map.start < layout::RESERVED_END && map.end > layout::RESERVED {
        return if is_ours(shown, map) {
            Ok(None)
        } else {
            Err(Error::refused(shown.own_pid, "it mapped memory where the engine keeps its own"))
        };
    }
    for (flag, what) in
        [("ht", "huge page files"), ("io", "device memory"), ("pf", "device memory")]
    {
        if map.has_flag(flag) && !map.path.starts_with("[v") {
            let range = format!("{:x}-{:x}", map.start, map.end);
            return Err(Error::refused(shown.own_pid, format!("mapping {range}: {what}")));
        }
    }
    if is_droppable(map) {
        let (start, end, prot) = (map.start, map.end, map.prot);
        let (backing, traits) = (Backing::Droppable, VmaTraits::default());
        return Ok(Some(Vma { start, end, prot, backing, traits, name: None }));
    }
    let backing = backing(shown, map, table, segments)?;
    let name = map.path.strip_prefix("[anon:").and_then(|name| name.strip_suffix(']'));
    Ok(Some(Vma {
        start: map.start,
        end: map.end,
        prot: map.prot,
        backing,
        traits: VmaTraits {
            grows_down: map.has_flag("gd"),
            dont_fork: map.has_flag("dc") || within(&shown.marks.dont_fork, map),
            wipe_on_fork: map.has_flag("wf") || within(&shown.marks.wipe_on_fork, map),
            locked: within(&shown.marks.locked, map),
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

/// Our own pages: the interpreter, which every program of a tree has, and the pages a restored
/// process keeps beside it.
fn is_ours(shown: &Shown, map: &Mapping) -> bool {
    let code = map.start == layout::CODE && map.end <= layout::CODE + stasis_sys::PAGE;
    let leave = map.start >= layout::LEAVE && map.end <= layout::LEAVE + layout::LEAVE_MAX;
    shown.restored && leave || code && shown.interpreter
}

fn backing(
    shown: &Shown,
    map: &Mapping,
    table: &mut Table,
    segments: &SharedSegments,
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
    // System V shared memory 0 is a file with the number 0
    if map.inode == 0 && !map.path.starts_with('/') {
        return Ok(Backing::Anonymous);
    }
    let range = format!("{:x}-{:x}", map.start, map.end);
    if map.path.contains("\\012") {
        let what = format!("mapping {range}: a newline in the name {}", map.path);
        return Err(Error::refused(shown.own_pid, what));
    }
    let offset = map.offset;
    if let Some(segment) = segment_of(shown, map, segments) {
        if let SegmentKind::Sysv { id } = segments.list[segment as usize].kind {
            let size = segments.list[segment as usize].size;
            return attachment(shown, map, id, size);
        }
        return Ok(match map.shared {
            true => Backing::Segment { segment, offset },
            false => Backing::PrivateSegment { segment, offset },
        });
    }
    // a name lost since the pause was still there at the instant of the capture
    let path = match map.path.strip_suffix(DELETED) {
        Some(_) if is_called_so(shown, map) => &map.path,
        Some(path) => path,
        None => &map.path,
    };
    if !path.starts_with('/') {
        return Err(Error::refused(shown.own_pid, format!("mapping {range}: {path}")));
    }
    check_text(shown.own_pid, path)?;
    if map.shared {
        let writable = map.has_flag("mw");
        return Ok(Backing::SharedFile { path: path.to_owned(), offset, writable });
    }
    let file = table.add(shown, path, Seen::Mapped(map))?;
    Ok(Backing::PrivateFile { file, offset })
}

/// A mapped file is opened again by its name, which `/proc` printed as text.
fn check_text(pid: i32, path: &str) -> Result<()> {
    match path.contains(char::REPLACEMENT_CHARACTER) {
        true => Err(Error::refused(pid, format!("it maps {path}, whose name is not UTF-8"))),
        false => Ok(()),
    }
}

/// System V shared memory is attached again by its id, which gives all of it.
fn attachment(shown: &Shown, map: &Mapping, id: i32, size: u64) -> Result<Backing> {
    let whole = map.offset == 0 && map.end - map.start == size.next_multiple_of(PAGE_SIZE as u64);
    if !whole {
        let range = format!("{:x}-{:x}", map.start, map.end);
        let what = format!("mapping {range}: a part of System V shared memory {id}");
        return Err(Error::refused(shown.own_pid, what));
    }
    Ok(Backing::Sysv { id, writable: map.has_flag("mw") })
}

fn is_called_so(shown: &Shown, map: &Mapping) -> bool {
    shown.nameless.get(&map.start).is_some_and(|nameless| nameless.called_so)
}

/// The contents behind a mapping whose file had no name in the pause.
fn segment_of(shown: &Shown, map: &Mapping, segments: &SharedSegments) -> Option<u32> {
    let nameless = shown.nameless.get(&map.start)?;
    segments.index.get(&nameless.key).copied()
}

/// Records the vdso where the program knows of it, so that another kernel's is refused.
fn kernel_shape(still: &PausedMemory, live: &mut LiveProcess) -> Result<()> {
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
        still.read(*start, &mut bytes)?;
        live.mm.vdso_hash = Some(*blake3::hash(&bytes).as_bytes());
    }
    Ok(())
}
