//! Files below a directory that a hostile program can change at any time.
//!
//! Every name is resolved as if the directory were `/`, and resolution never follows the links of
//! /proc nor enters another mount. A path ends below the directory or nowhere, however the program
//! changes its files. Nothing is opened that could block: callers first inspect a file with
//! `O_PATH`, and then open exactly that file by its descriptor.

use crate::{c_string, check};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

const NO_XDEV: u64 = 0x01;
const NO_MAGICLINKS: u64 = 0x02;
const IN_ROOT: u64 = 0x10;
/// Renames elsewhere can disturb a resolution; then it is tried again this often.
const TRIES: usize = 64;

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Opens `path` as if `root` were `/`.
pub fn open(root: BorrowedFd, path: &str, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let path = c_string(path)?;
    let how = OpenHow {
        flags: (flags | libc::O_CLOEXEC) as u64,
        mode: mode.into(),
        resolve: NO_XDEV | NO_MAGICLINKS | IN_ROOT,
    };
    let once = || {
        // SAFETY: the path and the struct outlive the call and the size is the struct's.
        check(unsafe {
            libc::syscall(
                libc::SYS_openat2,
                root.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<OpenHow>(),
            )
        })
    };
    let mut tries = 1;
    loop {
        match once() {
            // SAFETY: the descriptor is new and ours.
            Ok(fd) => return Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// The path under which this process reaches a descriptor's file.
pub fn own_name(fd: BorrowedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The path of a descriptor's file in its own mount namespace, which need not be this process's. A
/// file that was removed has its last path.
pub fn path_of(fd: BorrowedFd) -> io::Result<String> {
    let path = std::fs::read_link(own_name(fd))?;
    let path = path.to_string_lossy();
    Ok(path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned())
}

/// Opens an inspected regular file for reading.
pub fn reopen(fd: BorrowedFd) -> io::Result<File> {
    File::open(own_name(fd))
}

/// A new file without a name in a directory.
pub fn nameless(dir: BorrowedFd, mode: u32) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.read(true).write(true).mode(mode).custom_flags(libc::O_TMPFILE);
    options.open(own_name(dir))
}

/// Gives an unnamed file a name, which must be free.
pub fn give_name(file: BorrowedFd, dir: BorrowedFd, name: &str) -> io::Result<()> {
    let (own, name) = (c_string(own_name(file))?, c_string(name)?);
    // SAFETY: both names outlive the call.
    check(
        unsafe {
            libc::linkat(
                libc::AT_FDCWD,
                own.as_ptr(),
                dir.as_raw_fd(),
                name.as_ptr(),
                libc::AT_SYMLINK_FOLLOW,
            )
        }
        .into(),
    )
    .map(drop)
}

/// Renames within a directory, replacing an existing file.
pub fn rename(dir: BorrowedFd, old: &str, new: &str) -> io::Result<()> {
    let (old, new) = (c_string(old)?, c_string(new)?);
    let fd = dir.as_raw_fd();
    // SAFETY: both names outlive the call.
    check(unsafe { libc::renameat(fd, old.as_ptr(), fd, new.as_ptr()) }.into()).map(drop)
}

/// Creates a symbolic link, whose target is only text for the kernel.
pub fn link_to(target: &str, dir: BorrowedFd, name: &str) -> io::Result<()> {
    let (target, name) = (c_string(target)?, c_string(name)?);
    let fd = dir.as_raw_fd();
    // SAFETY: both names outlive the call, which writes to no memory of ours.
    check(unsafe { libc::symlinkat(target.as_ptr(), fd, name.as_ptr()) }.into()).map(drop)
}

/// Makes a directory.
pub fn make_dir(dir: BorrowedFd, name: &str, mode: u32) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: the name outlives the call.
    check(unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), mode) }.into()).map(drop)
}

/// Removes a name; with `AT_REMOVEDIR` that of an empty directory.
pub fn remove(dir: BorrowedFd, name: impl AsRef<OsStr>, flags: i32) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: the name outlives the call.
    check(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), flags) }.into()).map(drop)
}

/// The target of an inspected symbolic link.
pub fn read_link(fd: BorrowedFd) -> io::Result<OsString> {
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let empty = c"";
    // SAFETY: pointer and length describe the buffer; the name outlives the call.
    let len = check(unsafe {
        libc::readlinkat(fd.as_raw_fd(), empty.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
    } as libc::c_long)?;
    Ok(OsString::from_vec(buffer[..len as usize].to_vec()))
}

/// This thread accesses files as another user until this is dropped: without the rights of root,
/// and files it creates belong to that user.
pub struct ActingAs(());

impl ActingAs {
    pub fn user(uid: u32, gid: u32) -> ActingAs {
        crate::process::set_fs_ids(uid, gid);
        ActingAs(())
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        crate::process::set_fs_ids(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn opened(dir: &std::path::Path) -> OwnedFd {
        File::open(dir).expect("a directory").into()
    }

    #[test]
    fn no_path_leads_out() {
        let tmp = tempfile::tempdir().expect("a directory");
        let root = tmp.path().join("root");
        std::fs::create_dir(&root).expect("made");
        std::fs::write(tmp.path().join("secret"), "x").expect("written");
        std::os::unix::fs::symlink("../secret", root.join("up")).expect("linked");
        std::os::unix::fs::symlink(tmp.path().join("secret"), root.join("far")).expect("linked");
        std::os::unix::fs::symlink("/proc/self/root", root.join("magic")).expect("linked");
        let fd = opened(&root);
        for path in ["../secret", "up", "far", "magic/etc", "/../../secret", "a\0b"] {
            assert!(open(fd.as_fd(), path, libc::O_PATH, 0).is_err(), "{path}");
        }
    }

    #[test]
    fn a_nameless_file_gets_a_name_and_replaces() {
        let tmp = tempfile::tempdir().expect("a directory");
        let dir = opened(tmp.path());
        for text in ["one", "two"] {
            let mut file = nameless(dir.as_fd(), 0o644).expect("a file");
            io::Write::write_all(&mut file, text.as_bytes()).expect("written");
            give_name(file.as_fd(), dir.as_fd(), "new").expect("named");
            assert!(give_name(file.as_fd(), dir.as_fd(), "new").is_err());
            rename(dir.as_fd(), "new", "final").expect("renamed");
            let read = std::fs::read_to_string(tmp.path().join("final")).expect("read");
            assert_eq!(read, text);
        }
    }
}
