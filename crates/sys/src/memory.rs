//! Shared mappings of our own, and the memory of other processes.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;

/// A file mapped shared and writable into this process; unmapped on drop.
pub struct SharedMap {
    base: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to the value alone, and its words are read and written through
// atomics or through `&mut self`.
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

    /// The aligned 32-bit word at `offset`, shared with another process.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: in bounds and aligned (asserted), alive as long as `self`.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast()) }
    }

    /// A copy of the aligned 64-bit word at `offset`.
    pub fn read_u64(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: in bounds and aligned; volatile because another process may write it.
        unsafe { self.base.add(offset).cast::<u64>().read_volatile() }
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

    pub fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, address)
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }
}

/// Whether madvise hints are worth giving: asks the kernel to drop a file's cached pages.
pub fn drop_cache(file: BorrowedFd) -> io::Result<()> {
    // SAFETY: numbers only.
    let result =
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// Places bytes at a fixed, so far unmapped address of this process.
///
/// # Safety
/// The range must be unused, and whoever runs code from it must know what it is.
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
