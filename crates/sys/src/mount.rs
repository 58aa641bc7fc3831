//! The mount interface by descriptor: make a file system, attach it later.

use crate::{c_string, check};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_SET_FD: u32 = 5;
const FSCONFIG_CMD_CREATE: u32 = 6;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;
const OPEN_TREE_CLONE: u32 = 1;
const OPEN_TREE_CLOEXEC: u32 = libc::O_CLOEXEC as u32;
const AT_RECURSIVE: u32 = 0x8000;

pub const ATTR_RDONLY: u32 = 0x1;
pub const ATTR_NOSUID: u32 = 0x2;
pub const ATTR_NODEV: u32 = 0x4;
pub const ATTR_NOEXEC: u32 = 0x8;

/// An option's value: none, text, or a directory by descriptor (overlay accepts those from 6.13
/// on).
#[derive(Debug, Clone, Copy)]
pub enum MountValue<'a> {
    None,
    Text(&'a str),
    Dir(BorrowedFd<'a>),
}

fn open_kind(kind: &str) -> io::Result<OwnedFd> {
    let kind = c_string(kind)?;
    // SAFETY: the name is NUL-terminated and outlives the call; the descriptor is new and ours.
    unsafe {
        let fs = check(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(fs as i32))
    }
}

fn set(fs: &OwnedFd, key: &str, value: MountValue) -> io::Result<()> {
    let key = c_string(key)?;
    let (how, text, dir) = match value {
        MountValue::None => (FSCONFIG_SET_FLAG, None, 0),
        MountValue::Text(value) => (FSCONFIG_SET_STRING, Some(c_string(value)?), 0),
        MountValue::Dir(fd) => (FSCONFIG_SET_FD, None, fd.as_raw_fd()),
    };
    let text = text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
    let fs = fs.as_raw_fd();
    // SAFETY: key and value are NUL-terminated and outlive the call, as does the descriptor.
    check(unsafe { libc::syscall(libc::SYS_fsconfig, fs, how, key.as_ptr(), text, dir) }).map(drop)
}

/// Makes a detached mount of a new file system instance.
pub fn detached(kind: &str, options: &[(&str, &str)], attributes: u32) -> io::Result<OwnedFd> {
    let options: Vec<(&str, MountValue)> =
        options.iter().map(|(key, value)| (*key, MountValue::Text(value))).collect();
    detached_with(kind, &options, attributes)
}

/// The same, with options that may be descriptors.
pub fn detached_with(
    kind: &str,
    options: &[(&str, MountValue)],
    attributes: u32,
) -> io::Result<OwnedFd> {
    let fs = open_kind(kind)?;
    for (key, value) in options {
        set(&fs, key, *value)?;
    }
    let none = std::ptr::null::<libc::c_char>();
    let raw = fs.as_raw_fd();
    // SAFETY: a command takes no key and no value; the descriptor the kernel returns is new and
    // ours.
    unsafe {
        check(libc::syscall(libc::SYS_fsconfig, raw, FSCONFIG_CMD_CREATE, none, none, 0))?;
        let mount = check(libc::syscall(libc::SYS_fsmount, raw, FSMOUNT_CLOEXEC, attributes))?;
        Ok(OwnedFd::from_raw_fd(mount as i32))
    }
}

/// Whether the kernel knows a kind of file system, and this process may make one.
pub(crate) fn knows(kind: &str) -> bool {
    open_kind(kind).is_ok()
}

/// Whether a kind of file system takes an option.
pub(crate) fn takes(kind: &str, key: &str, value: MountValue) -> bool {
    open_kind(kind).and_then(|fs| set(&fs, key, value)).is_ok()
}

/// A detached copy of the mount (tree) at `path`.
pub fn clone_tree(path: &str, recursive: bool) -> io::Result<OwnedFd> {
    open_tree(libc::AT_FDCWD, path, if recursive { AT_RECURSIVE } else { 0 })
}

/// A detached mount of a descriptor's directory.
pub fn clone_dir(dir: BorrowedFd) -> io::Result<OwnedFd> {
    open_tree(dir.as_raw_fd(), "", libc::AT_EMPTY_PATH as u32)
}

fn open_tree(dir: i32, path: &str, flags: u32) -> io::Result<OwnedFd> {
    let path = c_string(path)?;
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags;
    // SAFETY: the path outlives the call; the descriptor is new and ours.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_open_tree, dir, path.as_ptr(), flags))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Attributes to set on a mount; others stay.
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

fn set_attributes(mount: BorrowedFd, attributes: &MountAttr) -> io::Result<()> {
    // SAFETY: the empty path and the struct outlive the call, and the size is the struct's.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(attributes),
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// Shows the files of a detached mount under the ids that `userns` maps them to.
pub fn map_ids(mount: BorrowedFd, userns: BorrowedFd) -> io::Result<()> {
    const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;
    let userns = userns.as_raw_fd() as u64;
    set_attributes(mount, &MountAttr { set: MOUNT_ATTR_IDMAP, userns, ..MountAttr::default() })
}

pub fn make_read_only(mount: BorrowedFd) -> io::Result<()> {
    set_attributes(mount, &MountAttr { set: ATTR_RDONLY.into(), ..MountAttr::default() })
}

/// Attaches a detached mount at `path`.
pub fn attach(mount: BorrowedFd, path: &str) -> io::Result<()> {
    move_mount(mount, libc::AT_FDCWD, path, 0)
}

/// Attaches a detached mount to a descriptor's directory.
pub fn attach_to(mount: BorrowedFd, dir: BorrowedFd) -> io::Result<()> {
    move_mount(mount, dir.as_raw_fd(), "", MOVE_MOUNT_T_EMPTY_PATH)
}

fn move_mount(mount: BorrowedFd, dir: i32, path: &str, flags: u32) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: both names are NUL-terminated and outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            dir,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH | flags,
        )
    })
    .map(drop)
}

/// mount(2) by name.
pub fn mount(
    source: &str,
    target: &str,
    kind: &str,
    flags: u64,
    options: Option<&str>,
) -> io::Result<()> {
    let (source, target, kind) = (c_string(source)?, c_string(target)?, c_string(kind)?);
    let options = options.map(c_string).transpose()?;
    let data = options.as_ref().map_or(std::ptr::null(), |o| o.as_ptr().cast());
    // SAFETY: all strings are NUL-terminated and outlive the call.
    check(
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data) }.into(),
    )
    .map(drop)
}

pub fn unmount_detached(path: &str) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: the path outlives the call.
    check(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }.into()).map(drop)
}
