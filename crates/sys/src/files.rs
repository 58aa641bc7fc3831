//! Files: opening below a root, attributes, device nodes, links.

use crate::{c_string, check};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Never leave the root, whatever links point at.
const RESOLVE_IN_ROOT: u64 = 0x10;
/// Neither leave the directory or its mount nor follow any link.
const RESOLVE_STRAIGHT: u64 = 0x08 | 0x04 | 0x02 | 0x01;
const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
/// The directory is the top of a hierarchy.
const FS_TOPDIR_FL: u64 = 0x0002_0000;

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Opens `path` as if `root` were `/`.
pub fn open_in_root(root: BorrowedFd, path: impl AsRef<OsStr>, flags: i32) -> io::Result<OwnedFd> {
    open_how(root, path, flags, RESOLVE_IN_ROOT)
}

/// Opens `path` below `dir`, or fails if a link is anywhere on the way.
pub fn open_straight(dir: BorrowedFd, path: impl AsRef<OsStr>, flags: i32) -> io::Result<OwnedFd> {
    open_how(dir, path, flags, RESOLVE_STRAIGHT)
}

fn open_how(
    dir: BorrowedFd,
    path: impl AsRef<OsStr>,
    flags: i32,
    resolve: u64,
) -> io::Result<OwnedFd> {
    let path = c_string(path)?;
    let how = OpenHow { flags: (flags | libc::O_CLOEXEC) as u64, mode: 0, resolve };
    // SAFETY: the path and the struct outlive the call and the size is the struct's; the
    // descriptor is new and ours.
    unsafe {
        let fd = check(libc::syscall(
            libc::SYS_openat2,
            dir.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<OpenHow>(),
        ))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Reopens the file of an `O_PATH` descriptor.
pub fn reopen(fd: BorrowedFd, flags: i32) -> io::Result<OwnedFd> {
    let path = c_string(crate::below::own_name(fd))?;
    let flags = flags & !libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the path outlives the call; the descriptor is new and ours.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::open(path.as_ptr(), flags).into())? as i32)) }
}

pub fn make_node(path: impl AsRef<OsStr>, mode: u32, major: u32, minor: u32) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: the path outlives the call.
    check(unsafe { libc::mknod(path.as_ptr(), mode, libc::makedev(major, minor)) }.into()).map(drop)
}

/// Asks the file system to place the directories made in `dir` far from each other.
///
/// ext4 makes a directory in the block group of its parent, and does not reuse an inode for minutes
/// after it was freed. Where many directories are made and removed, each new inode therefore costs
/// a search through up to 8,192 freed ones: about a millisecond. With this mark every directory
/// made in `dir` gets a group of its own. File systems without such a mark return an error.
pub fn scatter_directories(dir: BorrowedFd) -> io::Result<()> {
    let mut flags = inode_flags(dir)? | FS_TOPDIR_FL;
    // SAFETY: the kernel reads an int, a file system in user space the eight bytes that the request
    // names; `flags` has eight and outlives the call.
    check(unsafe { libc::ioctl(dir.as_raw_fd(), FS_IOC_SETFLAGS, &raw mut flags) }.into()).map(drop)
}

fn inode_flags(file: BorrowedFd) -> io::Result<u64> {
    let mut flags = 0;
    // SAFETY: the kernel writes an int, a file system in user space the eight bytes that the
    // request names; `flags` has eight and outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETFLAGS, &raw mut flags) }.into())?;
    Ok(flags)
}

/// Used bytes of the file system of a path.
pub fn bytes_taken(path: &Path) -> io::Result<u64> {
    let path = c_string(path)?;
    // SAFETY: the path outlives the call; the struct is plain integers, which statvfs fills.
    let stat = unsafe {
        let mut stat: libc::statvfs64 = std::mem::zeroed();
        check(libc::statvfs64(path.as_ptr(), &raw mut stat).into())?;
        stat
    };
    Ok(stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize))
}

/// Names of the attributes of an open file.
pub fn own_xattr_names(file: BorrowedFd, buffer: &mut [u8]) -> io::Result<Vec<OsString>> {
    // SAFETY: pointer and length describe the buffer.
    let len = check(unsafe {
        libc::flistxattr(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len())
    } as i64)?;
    let names = buffer[..len as usize].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
}

/// The value of an attribute of an open file.
pub fn own_xattr(file: BorrowedFd, name: &OsStr, buffer: &mut [u8]) -> io::Result<Vec<u8>> {
    let name = c_string(name)?;
    // SAFETY: the name outlives the call; pointer and length describe the buffer.
    let len = check(unsafe {
        let value = buffer.as_mut_ptr().cast();
        libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value, buffer.len())
    } as i64)?;
    Ok(buffer[..len as usize].to_vec())
}

/// The value of an attribute of a file inspected with `O_PATH`, a link itself included.
pub fn looked_at_xattr(fd: BorrowedFd, name: impl AsRef<OsStr>) -> io::Result<Vec<u8>> {
    let (path, name) = (c_string(crate::below::own_name(fd))?, c_string(name)?);
    let mut buffer = vec![0u8; 64 * 1024];
    // SAFETY: both names outlive the call; pointer and length describe the buffer.
    let len = check(unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
    } as i64)?;
    buffer.truncate(len as usize);
    Ok(buffer)
}

pub fn set_xattr(path: impl AsRef<OsStr>, name: impl AsRef<OsStr>, value: &[u8]) -> io::Result<()> {
    let (path, name) = (c_string(path)?, c_string(name)?);
    // SAFETY: pointer and length describe the value.
    check(
        unsafe {
            libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
        }
        .into(),
    )
    .map(drop)
}

/// Owner and modification time, of the entry itself.
pub fn set_owner(path: impl AsRef<OsStr>, uid: u32, gid: u32) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: the path outlives the call.
    check(unsafe { libc::lchown(path.as_ptr(), uid, gid) }.into()).map(drop)
}

pub fn set_mtime(path: impl AsRef<OsStr>, seconds: i64, nanoseconds: i64) -> io::Result<()> {
    let path = c_string(path)?;
    let time = libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = [time, time];
    // SAFETY: the path and both times outlive the call.
    check(
        unsafe {
            libc::utimensat(
                libc::AT_FDCWD,
                path.as_ptr(),
                times.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
            )
        }
        .into(),
    )
    .map(drop)
}

pub fn flock(fd: BorrowedFd, operation: i32) -> io::Result<()> {
    // SAFETY: the borrow keeps the file open; the lock is advisory and guards no memory.
    check(unsafe { libc::flock(fd.as_raw_fd(), operation) }.into()).map(drop)
}

/// Waits until everything written to the file system that `fd` is on is on disk.
pub fn sync_file_system(fd: BorrowedFd) -> io::Result<()> {
    // SAFETY: the borrow keeps the file open; the kernel writes its own cache out, not our memory.
    check(unsafe { libc::syncfs(fd.as_raw_fd()) }.into()).map(drop)
}

/// Starts to write what the page cache holds of a file to the disk, and does not wait for it. It is
/// not durable by this, only sooner: on file systems that choose blocks late, a later sync of
/// another file covers the blocks chosen here.
pub fn start_writing(fd: BorrowedFd) -> io::Result<()> {
    write_range(fd, libc::SYNC_FILE_RANGE_WRITE)
}

/// Writes what the page cache holds of a file to the disk, and waits for it. It is not durable by
/// this: a sync then has less to wait for. Such a sync does not report again an error that is
/// reported here.
pub fn finish_writing(fd: BorrowedFd) -> io::Result<()> {
    let (begun, finished) = (libc::SYNC_FILE_RANGE_WAIT_BEFORE, libc::SYNC_FILE_RANGE_WAIT_AFTER);
    write_range(fd, begun | libc::SYNC_FILE_RANGE_WRITE | finished)
}

fn write_range(fd: BorrowedFd, how: u32) -> io::Result<()> {
    let (from, to_end) = (0, 0);
    // SAFETY: the borrow keeps the file open; the kernel writes its own cache out, not our memory.
    check(unsafe { libc::sync_file_range(fd.as_raw_fd(), from, to_end, how) }.into()).map(drop)
}

/// Sets this process's file mode mask; the old one.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: swaps one integer in the kernel, atomically, and cannot fail. Other threads see the
    // new mask in the modes of files they make, never in memory.
    unsafe { libc::umask(mask) }
}

/// The next data of a file at or after `from`: (start, end), `None` at the end.
pub fn next_data(fd: BorrowedFd, from: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |offset: u64, whence| crate::fds::seek(fd, offset as i64, whence);
    match seek(from, libc::SEEK_DATA) {
        Ok(start) => Ok(Some((start, seek(start, libc::SEEK_HOLE)?))),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// One entry of a directory and the position after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub after: u64,
    /// Whether it is a directory, if the file system reports it.
    pub is_dir: bool,
}

/// The next few entries of a directory, from its position on; none at its end. Names that are not
/// UTF-8 are lossy: [`crate::trees`] has them unchanged.
pub fn next_entries(dir: BorrowedFd) -> io::Result<Vec<DirEntry>> {
    let shown = |raw: RawEntry| DirEntry {
        name: raw.name.to_string_lossy().into_owned(),
        after: raw.after,
        is_dir: raw.kind == libc::DT_DIR,
    };
    Ok(raw_entries(dir, &mut [0; 4096])?.into_iter().map(shown).collect())
}

/// One entry of a directory as the kernel lists it.
pub(crate) struct RawEntry {
    pub name: OsString,
    pub after: u64,
    /// `DT_REG` and the like, `DT_UNKNOWN` where the file system does not tell.
    pub kind: u8,
}

/// The next entries that fit into a buffer.
pub(crate) fn raw_entries(dir: BorrowedFd, buffer: &mut [u8]) -> io::Result<Vec<RawEntry>> {
    const HEAD: usize = 19;
    // SAFETY: pointer and length describe the buffer.
    let len = check(unsafe {
        libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
    })? as usize;
    let mut entries = Vec::new();
    let mut rest = &buffer[..len];
    // inode (8 bytes), position after (8), length (2), type (1), name with NULs behind it
    while rest.len() > HEAD {
        let size = usize::from(u16::from_ne_bytes([rest[16], rest[17]])).clamp(HEAD, rest.len());
        let (entry, more) = rest.split_at(size);
        let name = entry[HEAD..].split(|byte| *byte == 0).next().unwrap_or_default();
        let after = entry[8..16].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        entries.push(RawEntry { name: OsString::from_vec(name.to_vec()), after, kind: entry[18] });
        rest = more;
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn directories_are_scattered_where_the_file_system_can() {
        let program = std::env::current_exe().expect("a test has a program");
        let dir = tempfile::tempdir_in(program.parent().expect("in a directory")).expect("a dir");
        let dir = std::fs::File::open(dir.path()).expect("open");
        match scatter_directories(dir.as_fd()) {
            Ok(()) => {
                let flags = inode_flags(dir.as_fd()).expect("flags");
                assert_eq!(flags & FS_TOPDIR_FL, FS_TOPDIR_FL);
            }
            Err(error) => {
                let unknown = [libc::ENOTTY, libc::EOPNOTSUPP, libc::EINVAL];
                assert!(unknown.contains(&error.raw_os_error().unwrap_or_default()), "{error}");
            }
        }
    }
}
