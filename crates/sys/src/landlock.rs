//! Landlock: restrictions that a process applies to itself and its children permanently.

use crate::{c_string, check};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub const ACCESS_EXECUTE: u64 = 1 << 0;
pub const ACCESS_READ_FILE: u64 = 1 << 2;
pub const ACCESS_READ_DIR: u64 = 1 << 3;
pub const ACCESS_MAKE_CHAR: u64 = 1 << 6;
pub const ACCESS_MAKE_BLOCK: u64 = 1 << 11;
pub const ACCESS_REFER: u64 = 1 << 13;
pub const ACCESS_IOCTL_DEV: u64 = 1 << 15;
pub const SCOPE_ABSTRACT_SOCKET: u64 = 1 << 0;
pub const SCOPE_SIGNAL: u64 = 1 << 1;

pub const RULE_PATH_BENEATH: u64 = 1;
/// Bytes of `struct landlock_ruleset_attr` as of its sixth version.
pub const ATTR_SIZE: u64 = 24;

/// Access that is removed everywhere, and granted below some paths.
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

/// This kernel's version; 0 if there is none.
pub fn version() -> u32 {
    const ASK_VERSION: u32 = 1;
    let none = std::ptr::null::<u64>();
    // SAFETY: with this flag the kernel takes no memory.
    let version =
        check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, ASK_VERSION) });
    version.unwrap_or(0) as u32
}

/// Every access to files that a version of Landlock can take away.
pub fn all_files(version: u32) -> u64 {
    let since = [(1, (1 << 13) - 1), (2, 1 << 13), (3, 1 << 14), (5, 1 << 15)];
    since.into_iter().filter(|(first, _)| version >= *first).fold(0, |all, (_, bits)| all | bits)
}

/// Puts this thread under rules that let it open files and directories below `dir` for reading, and
/// nothing else anywhere. Without Landlock in the kernel nothing changes.
pub fn only_read_below(dir: BorrowedFd) -> io::Result<()> {
    let handled_files = all_files(version());
    if handled_files == 0 {
        return Ok(());
    }
    let rules = Ruleset { handled_files, scoped: 0, below: Vec::new() };
    let ruleset = make_ruleset(&rules)?;
    add_rule(&ruleset, dir, ACCESS_READ_FILE | ACCESS_READ_DIR)?;
    crate::process::no_new_privileges()?;
    restrict_self(&ruleset)
}

/// Puts this thread under the rules. `no_new_privs` must be set.
pub fn restrict(rules: &Ruleset) -> io::Result<()> {
    let ruleset = make_ruleset(rules)?;
    for (path, access) in &rules.below {
        allow_below(&ruleset, path, *access)?;
    }
    restrict_self(&ruleset)
}

fn make_ruleset(rules: &Ruleset) -> io::Result<OwnedFd> {
    let attributes = rules.attributes();
    // SAFETY: the attributes outlive the call and are as long as it says; the descriptor is new.
    unsafe {
        let fd = check(libc::syscall(
            libc::SYS_landlock_create_ruleset,
            attributes.as_ptr(),
            ATTR_SIZE,
            0,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

fn restrict_self(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: the borrow keeps the ruleset open; the kernel takes rights from this thread, which
    // can make later calls fail but touches no memory.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(drop)
}

fn allow_below(ruleset: &OwnedFd, path: &str, access: u64) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: the path outlives the call; the directory's descriptor is new and ours.
    let dir = unsafe {
        let dir = check(libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC).into())?;
        OwnedFd::from_raw_fd(dir as i32)
    };
    add_rule(ruleset, dir.as_fd(), access)
}

fn add_rule(ruleset: &OwnedFd, dir: BorrowedFd, access: u64) -> io::Result<()> {
    let rule = path_beneath(access, dir.as_raw_fd());
    // SAFETY: the rule outlives the call and has the layout its kind asks for.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            rule.as_ptr(),
            0,
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::Path;

    #[test]
    fn a_restricted_thread_reads_below_its_directory_and_nowhere_else() {
        let tmp = tempfile::tempdir().expect("a directory");
        let own = tmp.path().join("own");
        std::fs::create_dir(&own).expect("made");
        std::fs::write(own.join("file"), "own").expect("written");
        std::fs::write(tmp.path().join("secret"), "secret").expect("written");
        std::os::unix::fs::symlink("../secret", own.join("link")).expect("linked");
        let reads = |path: &Path| std::fs::read(path).is_ok();
        std::thread::scope(|scope| {
            let restricted = scope.spawn(|| {
                only_read_below(File::open(&own).expect("open").as_fd()).expect("restricted");
                let writes = std::fs::write(own.join("file"), "other").is_ok();
                (reads(&own.join("file")), reads(&own.join("link")), writes)
            });
            assert_eq!(restricted.join().expect("a thread"), (true, false, false));
        });
        assert!(reads(&own.join("link")), "the other threads are as they were");
    }
}
