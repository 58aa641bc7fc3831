//! A capture without a twin: if little changed, the changed pages and all the state that a twin
//! would supply are read in the pause itself.
//!
//! A fork of a process with many mappings takes longer than the rest of a pause, and afterwards
//! costs the source a fault for every page it writes. Only mapped files are checked after the
//! source runs again, by size and time; if a file is no longer mapped as it was, the capture starts
//! again with a twin.

use super::mappings::{self, UnnamedFile};
use super::pages::{AddressRange, OwnPages, split_changed};
use super::still::with_untracked;
use crate::error::{ErrorContext, Result};
use crate::freeze::FrozenProcess;
use crate::proc::{self, Mapping};
use crate::tree::Tree;
use parking_lot::Mutex;
use stasis_image::model::*;
use stasis_sys::PAGE;
use stasis_sys::memory::{MappingInfo, ProcessMemory, Vmas, read_ranges};
use stasis_sys::pagemap::Region;
use stasis_sys::vmas::{RawVma, VmaLister};
use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::sync::{Arc, OnceLock};

/// More than this is not copied in a pause: a twin is faster.
const MOST: u64 = 4 << 20;

pub struct Copied {
    /// The source's pid, in the host's numbering.
    pub pid: i32,
    /// In the machine's.
    pub own_pid: i32,
    pub changed: Vec<Region>,
    /// Pages of its own, copied or not, and guard regions.
    pub own: OwnPages,
    /// Whether pages of ours are left in it from a restore, and the interpreter is unchanged.
    pub restored: bool,
    pub interpreter: bool,
    pub exe: (String, Metadata),
    /// Mapped files without a name, by their addresses.
    pub nameless: HashMap<u64, UnnamedFile>,
    mappings: Vec<Listed>,
    contents: Contents,
}

/// Copied pages.
struct Contents {
    bytes: Vec<u8>,
    /// Addresses and where their bytes begin and end, in order.
    places: Vec<(u64, usize, usize)>,
}

/// Memory for the copies of a pause, allocated before it: the first use of a page takes as long as
/// copying it. For the same reason a few buffers are kept for later captures.
pub struct CopyBuffer(Vec<u8>);

/// The usual need of a capture.
const USUAL: usize = 3 << 20;
static SPARE_BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

impl CopyBuffer {
    pub fn make() -> CopyBuffer {
        if lister().is_none() {
            return CopyBuffer(Vec::new());
        }
        let spare = SPARE_BUFFERS.lock().pop();
        let used = u8::MAX;
        CopyBuffer(spare.unwrap_or_else(|| vec![used; USUAL]))
    }

    /// Leaves none for the next process, which then makes its own.
    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.0);
        bytes.resize(len, 0);
        bytes
    }
}

impl Drop for CopyBuffer {
    fn drop(&mut self) {
        keep_buffer(std::mem::take(&mut self.0));
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        keep_buffer(std::mem::take(&mut self.bytes));
    }
}

/// Every byte of it is written before it is read again: a range is copied whole, or not at all.
fn keep_buffer(bytes: Vec<u8>) {
    const MOST_SPARE: usize = 4;
    let mut spare = SPARE_BUFFERS.lock();
    if bytes.capacity() == USUAL && spare.len() < MOST_SPARE {
        spare.push(bytes);
    }
}

/// A mapping as the pause leaves it: strings are made when the source runs again.
struct Listed {
    raw: RawVma,
    /// Several mappings of one open file share it.
    backing: Arc<MappingInfo>,
}

/// The kernel's list of mappings, where it can be had.
fn lister() -> Option<&'static VmaLister> {
    static LISTER: OnceLock<Option<VmaLister>> = OnceLock::new();
    LISTER.get_or_init(|| VmaLister::load().ok()).as_ref()
}

/// Whether a closer look is worthwhile: the written pages are a lower bound for the pages to copy.
pub fn may_be_small(written: &[Region]) -> bool {
    let size: u64 = written.iter().map(|region| region.end - region.start).sum();
    size <= MOST && lister().is_some()
}

/// The state of a stopped process that can be read without calling into it.
pub struct ObservedProcess {
    mappings: Vec<Listed>,
    own: OwnPages,
}

/// The mappings of a process.
pub struct MappingList(Vec<Listed>);

impl MappingList {
    /// Looks at a process; `None` when something is not understood, and a twin is to be made.
    pub fn of(pid: i32) -> Option<MappingList> {
        lister().and_then(|lister| list(lister, pid).ok()).map(MappingList)
    }

    /// Ranges in which no page can be a file's.
    pub fn anonymous(&self) -> Vec<AddressRange> {
        let listed = self.0.iter().filter(|one| one.raw.file == 0 && !one.raw.special);
        large(listed.map(|one| (one.raw.start, one.raw.end)))
    }

    /// Ranges that are not registered for tracking and may hold pages of the process's own. All
    /// tracking is the engine's: machines cannot make a userfaultfd.
    pub fn untracked(&self) -> Vec<AddressRange> {
        let mut ranges: Vec<AddressRange> = Vec::new();
        for raw in self.0.iter().map(|one| &one.raw).filter(|raw| raw.may_own && !raw.is_tracked())
        {
            match ranges.last_mut() {
                Some(last) if last.1 == raw.start => last.1 = raw.end,
                _ => ranges.push((raw.start, raw.end)),
            }
        }
        ranges
    }

    pub fn with(self, own: OwnPages) -> ObservedProcess {
        ObservedProcess { mappings: self.0, own }
    }
}

/// Copies the necessary pages; `None` if they are too many, or something is not understood, and a
/// twin is needed.
pub fn copy(
    source: &FrozenProcess,
    tree: &Tree,
    written: &[Region],
    ObservedProcess { mappings, own }: ObservedProcess,
    room: &mut CopyBuffer,
) -> Result<Option<Copied>> {
    let Some(frozen) = &source.live else { return Ok(None) };
    let changed = with_untracked(written, &own.untracked);
    let wanted = wanted(&own.pages, &changed);
    if wanted.iter().map(|(start, end)| end - start).sum::<u64>() > MOST {
        return Ok(None);
    }
    let vdso = mappings.iter().find(|listed| listed.backing.name == "[vdso]");
    let vdso = vdso.map(|listed| (listed.raw.start, listed.raw.end));
    let Ok(contents) =
        contents(source.pid, &frozen.memory, wanted.into_iter().chain(vdso).collect(), room)
    else {
        return Ok(None);
    };
    Ok(Some(Copied {
        pid: source.pid,
        own_pid: source.own_pid,
        changed,
        own,
        restored: tree.base.is_some(),
        interpreter: crate::inject::holds_interpreter(&frozen.memory),
        exe: exe(source.pid)?,
        nameless: nameless(source.pid, &mappings)?,
        mappings,
        contents,
    }))
}

/// All mappings with their backing. The file is identified once for each open file. The iterator is
/// a recent feature of the kernel, so its output must account for the whole address space.
fn list(lister: &VmaLister, pid: i32) -> io::Result<Vec<Listed>> {
    let vmas = Vmas::open(pid)?;
    let all = lister.list(pid)?;
    let mut listed: Vec<Listed> = Vec::with_capacity(all.len());
    let mut files: HashMap<u64, Arc<MappingInfo>> = HashMap::new();
    let nothing = Arc::new(MappingInfo::default());
    let pages: u64 = all.iter().map(|raw| (raw.end - raw.start) / PAGE).sum();
    if pages != proc::size(pid)? {
        return Err(io::ErrorKind::InvalidData.into());
    }
    for raw in all {
        // the mappings of a file are mostly side by side
        let last = listed.last().filter(|last| last.raw.file == raw.file && raw.file != 0);
        let known = last.map(|last| &last.backing).or_else(|| files.get(&raw.file));
        let backing = match known {
            Some(backing) => backing.clone(),
            None if raw.file == 0 && !raw.special => nothing.clone(),
            None => Arc::new(vmas.describe(raw.start)?),
        };
        // what smaps would show as an escape, and flags we do not know, are for the other way
        if backing.name.contains('\n') || !raw.is_understood() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if raw.file != 0 && last.is_none() {
            files.entry(raw.file).or_insert_with(|| backing.clone());
        }
        listed.push(Listed { raw, backing });
    }
    Ok(listed)
}

impl Listed {
    fn to_mapping(&self) -> Mapping {
        let mut flags: Vec<[u8; 2]> = Vec::with_capacity(self.raw.flags.count_ones() as usize);
        let letters = self.raw.letters().filter_map(|own| own.as_bytes().first_chunk());
        flags.extend(letters);
        let bit = |name: &[u8; 2], value: u8| if flags.contains(name) { value } else { 0 };
        Mapping {
            start: self.raw.start,
            end: self.raw.end,
            prot: bit(b"rd", 1) | bit(b"wr", 2) | bit(b"ex", 4),
            shared: flags.contains(b"ms"),
            offset: if self.raw.file == 0 { 0 } else { self.raw.offset * PAGE },
            inode: self.backing.inode,
            path: self.backing.name.clone(),
            flags,
        }
    }
}

/// Ranges of a process in which no page is a file's.
pub fn anonymous(vmas: &[Vma]) -> Vec<AddressRange> {
    let anonymous = vmas.iter().filter(|vma| vma.backing == Backing::Anonymous);
    large(anonymous.map(|vma| (vma.start, vma.end)))
}

/// Ranges of anonymous memory that are worth a look of their own.
fn large(anonymous: impl Iterator<Item = AddressRange>) -> Vec<AddressRange> {
    const LARGE: u64 = 256 << 10;
    let mut ranges: Vec<AddressRange> = Vec::new();
    for (start, end) in anonymous {
        match ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => ranges.push((start, end)),
        }
    }
    ranges.retain(|(start, end)| end - start >= LARGE);
    ranges
}

/// Pages that the image cannot take from its parent.
fn wanted(own: &[Region], changed: &[Region]) -> Vec<(u64, u64)> {
    let parts = own.iter().flat_map(|own| split_changed(own.start, own.end, Some(changed)));
    parts.filter(|(.., changed)| *changed).map(|(start, end, _)| (start, end)).collect()
}

fn contents(
    pid: i32,
    memory: &ProcessMemory,
    mut ranges: Vec<(u64, u64)>,
    room: &mut CopyBuffer,
) -> io::Result<Contents> {
    ranges.sort_unstable();
    let mut bytes = room.take(ranges.iter().map(|(start, end)| (end - start) as usize).sum());
    let mut places = Vec::with_capacity(ranges.len());
    let there = read_ranges(pid, &ranges, &mut bytes);
    let mut at = 0;
    for (start, end) in ranges {
        let next = at + (end - start) as usize;
        if next > there {
            memory.read(start, &mut bytes[at..next])?;
        }
        places.push((start, at, next));
        at = next;
    }
    Ok(Contents { bytes, places })
}

impl Contents {
    fn get(&self, address: u64, len: usize) -> Option<&[u8]> {
        let next = self.places.partition_point(|(start, ..)| *start <= address);
        let (start, first, last) = self.places.get(next.checked_sub(1)?)?;
        let from = (address - start) as usize;
        self.bytes[*first..*last].get(from..from + len)
    }
}

fn exe(pid: i32) -> Result<(String, Metadata)> {
    let link = format!("/proc/{pid}/exe");
    let meta = std::fs::metadata(&link).doing(|| format!("look at {link}"))?;
    Ok((proc::read_link(pid, "exe")?, meta))
}

fn nameless(pid: i32, mappings: &[Listed]) -> Result<HashMap<u64, UnnamedFile>> {
    let deleted = |listed: &&Listed| listed.backing.name.ends_with(mappings::DELETED);
    let look = |listed: &Listed| {
        let map = listed.to_mapping();
        Ok((map.start, UnnamedFile::look(pid, &map)?))
    };
    mappings.iter().filter(deleted).map(look).collect()
}

impl Copied {
    pub fn mappings(&self) -> Vec<Mapping> {
        self.mappings.iter().map(Listed::to_mapping).collect()
    }

    /// Descriptions of files without a name.
    pub fn nameless_mappings(&self) -> Vec<Mapping> {
        let nameless = |listed: &&Listed| self.nameless.contains_key(&listed.raw.start);
        self.mappings.iter().filter(nameless).map(Listed::to_mapping).collect()
    }

    /// The mapping that began at an address.
    fn listed(&self, start: u64) -> Option<&Listed> {
        let index = self.mappings.partition_point(|listed| listed.raw.start < start);
        self.mappings.get(index).filter(|listed| listed.raw.start == start)
    }

    /// The file system of the file mapped at an address.
    pub fn device_at(&self, start: u64) -> Option<(u32, u32)> {
        self.listed(start).map(|listed| listed.backing.device)
    }

    /// Which file system a mapped file is on.
    pub fn device_of(&self, path: &str) -> Option<(u32, u32)> {
        let found = self.mappings.iter().find(|listed| listed.backing.name == path);
        found.map(|listed| listed.backing.device)
    }

    /// Whether a file is mapped at an address as it was in the pause.
    pub fn still_maps(&self, vmas: &Vmas, start: u64) -> bool {
        let listed = self.listed(start);
        let told = vmas.describe(start).ok();
        listed.zip(told).is_some_and(|(listed, told)| {
            let backing = &listed.backing;
            (told.start, told.end) == (listed.raw.start, listed.raw.end)
                && (told.inode, told.device) == (backing.inode, backing.device)
                && told.name == backing.name
        })
    }

    /// Copied bytes, where they lie.
    pub fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        self.contents.get(address, len)
    }

    pub fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        let found = self.bytes(address, bytes.len()).ok_or_else(missing)?;
        bytes.copy_from_slice(found);
        Ok(())
    }
}

/// A page that was not copied is requested only if the wanted pages were computed wrongly.
fn missing() -> io::Error {
    io::Error::other("the page was not copied in the pause")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64) -> Region {
        Region { start, end, categories: 0 }
    }

    #[test]
    fn only_pages_that_are_there_and_were_written_are_wanted() {
        let own = [region(0x1000, 0x4000), region(0x8000, 0xc000)];
        let changed = [region(0x2000, 0x3000), region(0x5000, 0x9000)];
        assert_eq!(wanted(&own, &changed), [(0x2000, 0x3000), (0x8000, 0x9000)]);
    }
}
