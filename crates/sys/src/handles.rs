//! Files by identity and not by name: handles, and moves that no link can redirect.
//!
//! A handle names an inode for as long as it exists, through renames; a number that is used again
//! belongs to another handle. File systems without handles fail with EOPNOTSUPP.

use crate::{c_string, check};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The longest the kernel hands out.
const MAX_HANDLE: usize = 128;

/// `FS_IOC_GETFSUUID`, for a `struct fsuuid2`.
const GET_UUID: libc::c_ulong = 0x8011_1500;

/// A file system's name for an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHandle {
    pub kind: u8,
    pub bytes: Vec<u8>,
}

#[repr(C)]
struct RawHandle {
    len: u32,
    kind: i32,
    bytes: [u8; MAX_HANDLE],
}

/// The handle of `name` in `dir`, or of `dir` itself for an empty name. A link is not followed.
pub fn handle_at(dir: BorrowedFd, name: impl AsRef<OsStr>) -> io::Result<FileHandle> {
    let name = c_string(name)?;
    let mut raw = RawHandle { len: MAX_HANDLE as u32, kind: 0, bytes: [0; MAX_HANDLE] };
    let mut mount = 0;
    // SAFETY: the kernel writes at most `len` bytes after the head, which `bytes` has room for;
    // the name and both results outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut raw,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    })?;
    let kind = u8::try_from(raw.kind).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
    let bytes = raw.bytes.get(..raw.len as usize).unwrap_or_default().to_vec();
    Ok(FileHandle { kind, bytes })
}

/// Which file system `fd` is on, as it names itself.
pub fn file_system_uuid(fd: BorrowedFd) -> io::Result<[u8; 16]> {
    // the length, then the id
    let mut answer = [0u8; 17];
    // SAFETY: the kernel writes the 17 bytes that the number of the call tells.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), GET_UUID, answer.as_mut_ptr()) }.into())?;
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&answer[1..]);
    Ok(uuid)
}

/// Moves a file of any kind from one directory to another.
pub fn move_at(from: (BorrowedFd, &OsStr), to: (BorrowedFd, &OsStr)) -> io::Result<()> {
    let (old, new) = (c_string(from.1)?, c_string(to.1)?);
    // SAFETY: both names outlive the call.
    check(
        unsafe { libc::renameat(from.0.as_raw_fd(), old.as_ptr(), to.0.as_raw_fd(), new.as_ptr()) }
            .into(),
    )
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_handle_stays_through_a_move() {
        let dir = std::env::temp_dir().join(format!("stasis-handles-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let top = File::open(&dir).unwrap();
        for name in ["a", "b"] {
            std::fs::write(dir.join(name), name).unwrap();
        }
        let before = handle_at(top.as_fd(), "a").unwrap();
        assert_ne!(before, handle_at(top.as_fd(), "b").unwrap());
        move_at((top.as_fd(), "a".as_ref()), (top.as_fd(), "c".as_ref())).unwrap();
        assert_eq!(handle_at(top.as_fd(), "c").unwrap(), before);
        let file = File::open(dir.join("c")).unwrap();
        assert_eq!(handle_at(file.as_fd(), "").unwrap(), before);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
