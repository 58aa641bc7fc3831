//! Shared mappings of our own, and the memory of other processes.

use crate::check;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// Gives the kernel all memory back that the allocator keeps for later, so that the size of this
/// process is what it uses.
pub fn release_free() {
    // SAFETY: the allocator gives back pages that nothing was allocated in.
    unsafe { libc::malloc_trim(0) };
}

/// A file mapped shared and writable into this process; unmapped on drop.
pub struct SharedMap {
    base: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to the value alone, and is read and written word by word.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    pub fn new(file: BorrowedFd, len: usize) -> io::Result<SharedMap> {
        // SAFETY: the kernel chooses a free address; a failed map is checked for.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(SharedMap { base: base.cast(), len })
    }

    /// A copy of the aligned 64-bit word at `offset`.
    pub fn read_u64(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: in bounds and aligned; volatile because another process may write it.
        unsafe { self.base.add(offset).cast::<u64>().read_volatile() }
    }

    /// Sets the 32-bit word at `offset` to one and wakes its waiters, in any process.
    pub fn raise(&self, offset: usize) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: in bounds and aligned, and shared memory is touched by atomics alone; waking is
        // by address and reads nothing.
        unsafe {
            let word = self.base.add(offset).cast::<u32>();
            std::sync::atomic::AtomicU32::from_ptr(word).store(1, Ordering::SeqCst);
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX);
        }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: exactly the range `new` mapped; no reference outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Memory of another process, through `/proc/PID/mem`. Works on pages without read permission.
pub struct ProcessMemory {
    file: File,
}

impl ProcessMemory {
    pub fn open(pid: i32) -> io::Result<ProcessMemory> {
        let file = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        Ok(ProcessMemory { file })
    }

    pub fn try_clone(&self) -> io::Result<ProcessMemory> {
        Ok(ProcessMemory { file: self.file.try_clone()? })
    }

    pub fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, address)
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }
}

/// Fills `buffer` with ranges of a process's memory, one after another, as far as the process
/// itself may read them; how many bytes that was. Faster than [`ProcessMemory`], which may
/// read all of it.
pub fn read_ranges(pid: i32, ranges: &[(u64, u64)], buffer: &mut [u8]) -> usize {
    /// The kernel's maximum at a time.
    const MOST: usize = 1024;
    let mut done = 0;
    for group in ranges.chunks(MOST) {
        let range = |(start, end): &(u64, u64)| libc::iovec {
            iov_base: *start as *mut libc::c_void,
            iov_len: (end - start) as usize,
        };
        let there: Vec<libc::iovec> = group.iter().map(range).collect();
        let wanted: usize = there.iter().map(|range| range.iov_len).sum();
        let Some(place) = buffer.get_mut(done..).and_then(|rest| rest.get_mut(..wanted)) else {
            return done;
        };
        let here = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: wanted };
        let count = there.len() as libc::c_ulong;
        // SAFETY: `here` is exactly `place`; the addresses of the other side are not ours.
        let read = unsafe { libc::process_vm_readv(pid, &here, 1, there.as_ptr(), count, 0) };
        done += read.max(0) as usize;
        if read < wanted as isize {
            return done;
        }
    }
    done
}

/// Single mappings of another process, queried one at a time (PROCMAP_QUERY), or from the whole
/// list if the kernel lacks that (before 6.11).
pub struct Vmas {
    maps: File,
}

/// The permissions of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingAccess {
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
}

/// The backing of a mapping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MappingInfo {
    pub start: u64,
    pub end: u64,
    pub inode: u64,
    pub device: (u32, u32),
    pub name: String,
}

#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

impl Vmas {
    pub fn open(pid: i32) -> io::Result<Vmas> {
        Ok(Vmas { maps: File::open(format!("/proc/{pid}/maps"))? })
    }

    /// The backing of the mapping at an address, as maps prints it (except for escapes).
    pub fn describe(&self, address: u64) -> io::Result<MappingInfo> {
        const LONGEST: usize = 4097;
        let mut name = [0u8; LONGEST];
        let mut query = ProcmapQuery {
            query_addr: address,
            vma_name_size: LONGEST as u32,
            vma_name_addr: name.as_mut_ptr() as u64,
            ..ProcmapQuery::default()
        };
        self.ask(&mut query)?;
        let length = (query.vma_name_size as usize).saturating_sub(1).min(LONGEST);
        Ok(MappingInfo {
            start: query.vma_start,
            end: query.vma_end,
            inode: query.inode,
            device: (query.dev_major, query.dev_minor),
            name: String::from_utf8_lossy(&name[..length]).into_owned(),
        })
    }

    fn ask(&self, query: &mut ProcmapQuery) -> io::Result<()> {
        const PROCMAP_QUERY: u64 = 0xc068_6611;
        const _: () = assert!(size_of::<ProcmapQuery>() == 0x68);
        query.size = size_of::<ProcmapQuery>() as u64;
        // SAFETY: the struct is of the size it states and outlives the call, and so does the buffer
        // for the name, of the length stated, where one is passed.
        let asked =
            unsafe { libc::ioctl(self.maps.as_raw_fd(), PROCMAP_QUERY, std::ptr::from_mut(query)) };
        check(asked.into()).map(drop)
    }

    /// The mapping that holds an address.
    pub fn at(&self, address: u64) -> Option<MappingAccess> {
        let mut query = ProcmapQuery { query_addr: address, ..ProcmapQuery::default() };
        match self.ask(&mut query) {
            Ok(()) => {
                let has = |bit: u64| query.vma_flags & bit != 0;
                Some(MappingAccess { writable: has(2), executable: has(4), shared: has(8) })
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => self.search(address),
            Err(_) => None,
        }
    }

    fn search(&self, address: u64) -> Option<MappingAccess> {
        let mut text = String::new();
        (&self.maps).seek(SeekFrom::Start(0)).ok()?;
        (&self.maps).read_to_string(&mut text).ok()?;
        text.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let bounds = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
            let flag = |index: usize, letter: u8| rest.as_bytes().get(index) == Some(&letter);
            bounds.contains(&address).then(|| MappingAccess {
                writable: flag(1, b'w'),
                executable: flag(2, b'x'),
                shared: flag(3, b's'),
            })
        })
    }
}

/// Asks the kernel to drop a file's pages from its cache. Pages that are dirty or mapped stay.
pub fn drop_cache(file: BorrowedFd) -> io::Result<()> {
    // SAFETY: the borrow keeps the file open. The kernel drops only clean pages without a mapping,
    // so no memory that a reference leads to changes.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// Gives the whole pages of a buffer back to the system: they cost no memory until they are written
/// again. Their bytes become zero, in a buffer of the heap; those at the edges stay.
pub fn give_back(buffer: &mut [u8]) -> io::Result<()> {
    let page = crate::PAGE as usize;
    let skipped = buffer.as_ptr().align_offset(page).min(buffer.len());
    let pages = &mut buffer[skipped..];
    let len = pages.len() / page * page;
    if len == 0 {
        return Ok(());
    }
    // SAFETY: other memory of the process would lose its contents; these pages lie within the
    // buffer, which the exclusive borrow keeps from all other code. Every byte stays a valid one.
    check(unsafe { libc::madvise(pages.as_mut_ptr().cast(), len, libc::MADV_DONTNEED) }.into())
        .map(drop)
}

/// Turns a range of another process into huge pages, where its pages allow it.
pub fn collapse(process: BorrowedFd, start: u64, len: usize) -> io::Result<()> {
    const MADV_COLLAPSE: i32 = 25;
    let range = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: len };
    // SAFETY: the range belongs to the other process, whose contents the advice does not change.
    check(unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            &raw const range,
            1,
            MADV_COLLAPSE,
            0,
        )
    })
    .map(drop)
}

/// Places bytes at a fixed, so far unmapped address of this process.
///
/// # Safety
/// The range must be unused, and the caller must know the code in it.
pub unsafe fn map_fixed(address: u64, bytes: &[u8], executable: bool) -> io::Result<()> {
    let len = bytes.len().next_multiple_of(crate::PAGE as usize);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: FIXED_NOREPLACE refuses a range in use; the copy stays inside the new mapping.
    unsafe {
        let wanted = address as *mut libc::c_void;
        let base = libc::mmap(wanted, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.cast(), bytes.len());
        if executable {
            check(libc::mprotect(base, len, libc::PROT_READ | libc::PROT_EXEC).into())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_page_by_page() {
        const PAGE: usize = crate::PAGE as usize;
        let mut all = vec![7u8; 10 * PAGE];
        let first = all.as_ptr().align_offset(PAGE);
        let (from, to) = (first + 100, first + 5 * PAGE + 50);
        give_back(&mut all[from..to]).unwrap();
        let (from, to) = (first + PAGE, first + 5 * PAGE);
        assert!(all[from..to].iter().all(|byte| *byte == 0));
        assert!(all[..from].iter().chain(&all[to..]).all(|byte| *byte == 7));
        for at in [0..0, 1..2, first..first + PAGE - 1, first + 1..first + PAGE + 1] {
            all.fill(7);
            give_back(&mut all[at]).unwrap();
            assert!(all.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn ranges_are_read_one_after_another_until_one_may_not_be_read() {
        let (first, second) = ([1u8; 3000], [2u8; 5000]);
        let range = |bytes: &[u8]| {
            let start = bytes.as_ptr() as u64;
            (start, start + bytes.len() as u64)
        };
        let pid = std::process::id() as i32;
        let mut buffer = vec![0; 8001];
        let ranges = [range(&first), range(&second), (16, 17)];
        assert_eq!(read_ranges(pid, &ranges, &mut buffer), 8000);
        assert_eq!(buffer, [&first[..], &second[..], &[0]].concat());
        assert_eq!(read_ranges(pid, &ranges, &mut [0; 10]), 0, "no room, nothing read");
    }

    #[test]
    fn more_ranges_than_the_kernel_takes_at_once() {
        let bytes: Vec<u8> = (0..5000).map(|index| index as u8).collect();
        let start = bytes.as_ptr() as u64;
        let each: Vec<(u64, u64)> = (0..5000).map(|at| (start + at, start + at + 1)).collect();
        let mut buffer = vec![0; 5000];
        assert_eq!(read_ranges(std::process::id() as i32, &each, &mut buffer), 5000);
        assert_eq!(buffer, bytes);
    }
}
