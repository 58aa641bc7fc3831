//! Landlock: what a process takes away from itself and its children, for good.

use crate::{c_string, check};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub const ACCESS_MAKE_CHAR: u64 = 1 << 6;
pub const ACCESS_MAKE_BLOCK: u64 = 1 << 11;
pub const ACCESS_REFER: u64 = 1 << 13;
pub const ACCESS_IOCTL_DEV: u64 = 1 << 15;
pub const SCOPE_SIGNAL: u64 = 1 << 1;

pub const RULE_PATH_BENEATH: u64 = 1;
/// Bytes of `struct landlock_ruleset_attr` as of its sixth version.
pub const ATTR_SIZE: u64 = 24;

/// What is taken away everywhere, and given back below some paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    pub handled_files: u64,
    pub scoped: u64,
    /// Accesses that stay, by directory.
    pub below: Vec<(String, u64)>,
}

impl Ruleset {
    /// The ruleset's own part, as the kernel lays it out: files, network, scopes.
    pub fn attributes(&self) -> [u64; 3] {
        [self.handled_files, 0, self.scoped]
    }
}

/// `struct landlock_path_beneath_attr`, which is packed: accesses, then the directory.
pub fn path_beneath(access: u64, dir: i32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&access.to_ne_bytes());
    bytes[8..].copy_from_slice(&dir.to_ne_bytes());
    bytes
}

/// The version this kernel knows; 0 where there is none.
pub fn version() -> u32 {
    const ASK_VERSION: u32 = 1;
    let none = std::ptr::null::<u64>();
    // SAFETY: with this flag the kernel takes no memory.
    let version =
        check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, ASK_VERSION) });
    version.unwrap_or(0) as u32
}

/// Puts this process under the rules. It must have given up new privileges.
pub fn restrict(rules: &Ruleset) -> io::Result<()> {
    let attributes = rules.attributes();
    // SAFETY: the attributes outlive the call and are as long as it says; the descriptor is new.
    let ruleset = unsafe {
        let fd = check(libc::syscall(
            libc::SYS_landlock_create_ruleset,
            attributes.as_ptr(),
            ATTR_SIZE,
            0,
        ))?;
        OwnedFd::from_raw_fd(fd as i32)
    };
    for (path, access) in &rules.below {
        allow_below(&ruleset, path, *access)?;
    }
    // SAFETY: numbers only.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(drop)
}

fn allow_below(ruleset: &OwnedFd, path: &str, access: u64) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: the path and the rule outlive their calls; the directory's descriptor is ours.
    unsafe {
        let dir = check(libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC).into())?;
        let dir = OwnedFd::from_raw_fd(dir as i32);
        let rule = path_beneath(access, dir.as_raw_fd());
        check(libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            rule.as_ptr(),
            0,
        ))
        .map(drop)
    }
}
