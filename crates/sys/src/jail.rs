//! A jail for programs that a build runs in a root file system it does not trust.
//!
//!   Jail::new(root, uid).bind(..).enter(&mut command)
//!
//! The child is pid 1 of its own namespaces (pid, mount, ipc, host name and, unless requested
//! otherwise, network), with the root as `/`, a small `/dev`, empty `/run` and `/tmp`, and an
//! unprivileged user that cannot gain privileges. The process that `spawn` returns is outside,
//! waits for it and ends as it ends. Everything the child started dies with it, and it dies with
//! the thread that started it. If a step fails, `spawn` fails.

use crate::process::{Forked, exit_now, fork, wait};
use crate::{c_string, check};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

const OPEN_TREE_CLONE: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const QUIET: u64 = libc::MS_NOSUID | libc::MS_NODEV;

/// The contents of `/dev`; `shm` is a directory beside them.
const DEVICES: [(&CStr, &CStr); 5] = [
    (c"/dev/null", c"/dev/null"),
    (c"/dev/zero", c"/dev/zero"),
    (c"/dev/full", c"/dev/full"),
    (c"/dev/random", c"/dev/random"),
    (c"/dev/urandom", c"/dev/urandom"),
];

/// Name resolution files; the host's over the root's, for programs that use the host's network.
const RESOLVING: [&CStr; 2] = [c"/etc/resolv.conf", c"/etc/hosts"];

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// A file of the host, visible below `/run` in the jail.
#[derive(Debug, Clone)]
struct Bind {
    source: CString,
    target: CString,
    is_dir: bool,
    read_only: bool,
}

#[derive(Debug, Clone)]
pub struct Jail {
    root: CString,
    uid: u32,
    network: bool,
    binds: Vec<Bind>,
}

impl Jail {
    /// A jail in `root` for the user and group `uid`, without a network.
    pub fn new(root: &str, uid: u32) -> io::Result<Jail> {
        Ok(Jail { root: c_string(root)?, uid, network: false, binds: Vec::new() })
    }

    /// Lets the program use the host's network.
    pub fn with_network(mut self) -> Jail {
        self.network = true;
        self
    }

    /// Shows a file or directory of the host as `/run/<name>`, read-only.
    pub fn show(self, source: &str, name: &str) -> io::Result<Jail> {
        self.bind(source, name, true)
    }

    /// Shows a directory of the host as `/run/<name>`, writable as far as its modes allow.
    pub fn share(self, source: &str, name: &str) -> io::Result<Jail> {
        self.bind(source, name, false)
    }

    fn bind(mut self, source: &str, name: &str, read_only: bool) -> io::Result<Jail> {
        assert!(!name.is_empty() && !name.contains(['/', '.']), "one plain name below /run");
        let is_dir = std::fs::metadata(source)?.is_dir();
        let (source, target) = (c_string(source)?, c_string(format!("/run/{name}"))?);
        self.binds.push(Bind { source, target, is_dir, read_only });
        Ok(self)
    }

    /// Makes `command` start inside the jail.
    pub fn enter(self, command: &mut Command) {
        let mut mounts = vec![0; self.binds.len()];
        // SAFETY: between fork and exec only system calls may be made: another thread may have held
        // the allocator's lock. `go` makes nothing else; its lists were allocated above.
        unsafe { command.pre_exec(move || self.go(&mut mounts)) };
    }

    fn go(&self, mounts: &mut [i32]) -> io::Result<()> {
        let network = if self.network { 0 } else { libc::CLONE_NEWNET };
        let own = libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWPID;
        stand_outside((own | network) as u64)?;
        mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE, None)?;
        mount(&self.root, &self.root, c"", libc::MS_BIND, None)?;
        mount(&self.root, &self.root, c"", libc::MS_BIND | libc::MS_REMOUNT | QUIET, None)?;
        for (bind, slot) in self.binds.iter().zip(mounts.iter_mut()) {
            *slot = copy_mount(&bind.source, bind.read_only)?;
        }
        let mut devices = [0; DEVICES.len()];
        for ((source, _), slot) in DEVICES.iter().zip(&mut devices) {
            *slot = copy_mount(source, false)?;
        }
        let mut resolving = [-1; RESOLVING.len()];
        for (source, slot) in RESOLVING.iter().zip(&mut resolving).filter(|_| self.network) {
            *slot = copy_mount(source, true)?;
        }
        enter_root(&self.root)?;
        for (target, from) in RESOLVING.iter().zip(resolving).filter(|(_, from)| *from >= 0) {
            place(from, target)?;
        }
        fill_dev(&devices)?;
        self.fill_run(mounts)?;
        become_user(self.uid)
    }

    fn fill_run(&self, mounts: &[i32]) -> io::Result<()> {
        mount(c"tmpfs", c"/run", c"tmpfs", QUIET, Some(c"mode=0755,size=64m"))?;
        mount(c"tmpfs", c"/tmp", c"tmpfs", QUIET, Some(c"mode=1777,size=2g"))?;
        for (bind, from) in self.binds.iter().zip(mounts) {
            if bind.is_dir {
                make_dir(&bind.target, 0o755)?;
            } else {
                make_file(&bind.target)?;
            }
            place(*from, &bind.target)?;
        }
        Ok(())
    }
}

/// Goes on in a child that is pid 1 of new namespaces; this process waits and ends as it does.
fn stand_outside(namespaces: u64) -> io::Result<()> {
    die_with_parent()?;
    let Forked::Parent { pid, .. } = fork(namespaces, libc::SIGCHLD)? else {
        return die_with_parent();
    };
    // `spawn` returns when every copy of its pipe is closed; the child's copy closes at exec
    // SAFETY: closes descriptors that values in this copy of the process still own. None of those
    // values is used or dropped again: the copy waits for its child and ends by `exit_now`.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    let status = wait(pid, 0).ok().flatten().map_or(1, |waited| waited.status);
    exit_now(if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    })
}

fn die_with_parent() -> io::Result<()> {
    crate::process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0, 0).map(drop)
}

fn fill_dev(devices: &[i32]) -> io::Result<()> {
    mount(c"tmpfs", c"/dev", c"tmpfs", libc::MS_NOSUID, Some(c"mode=0755,size=1m"))?;
    for ((_, target), from) in DEVICES.iter().zip(devices) {
        make_file(target)?;
        place(*from, target)?;
    }
    make_dir(c"/dev/shm", 0o755)?;
    mount(c"tmpfs", c"/dev/shm", c"tmpfs", QUIET, Some(c"mode=1777,size=256m"))?;
    let options = Some(c"subset=pid");
    mount(c"proc", c"/proc", c"proc", QUIET | libc::MS_NOEXEC, options)
}

/// The root becomes `/`, and the old one is unmounted: names can no longer lead there.
fn enter_root(root: &CStr) -> io::Result<()> {
    // SAFETY: all names are NUL-terminated and outlive the calls.
    unsafe {
        check(libc::chdir(root.as_ptr()).into())?;
        crate::namespace::pivot_to_cwd()?;
        check(libc::umount2(c".".as_ptr(), libc::MNT_DETACH).into())?;
        check(libc::chdir(c"/".as_ptr()).into())?;
        libc::umask(0o022);
    }
    Ok(())
}

fn become_user(uid: u32) -> io::Result<()> {
    // SAFETY: the only pointer is the list of no groups, which the kernel does not read. glibc's
    // wrappers would wait for other threads, which a forked child has not got; the raw calls change
    // this thread, the only one. The death signal comes last: changing the user clears it.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()))?;
        check(libc::syscall(libc::SYS_setresgid, uid, uid, uid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
    }
    die_with_parent()
}

fn mount(
    source: &CStr,
    target: &CStr,
    kind: &CStr,
    flags: u64,
    options: Option<&CStr>,
) -> io::Result<()> {
    let data = options.map_or(std::ptr::null(), |text| text.as_ptr().cast());
    // SAFETY: all strings are NUL-terminated and outlive the call.
    check(
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data) }.into(),
    )
    .map(drop)
}

/// A detached copy of the mount at `source`, as a descriptor that exec closes.
fn copy_mount(source: &CStr, read_only: bool) -> io::Result<i32> {
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as u32;
    let set = MOUNT_ATTR_NOSUID | if read_only { MOUNT_ATTR_RDONLY } else { 0 };
    let attributes = MountAttr { set, clear: 0, propagation: 0, userns: 0 };
    // SAFETY: the names and the struct outlive the calls, the size is the struct's.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), flags))?;
        check(libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<MountAttr>(),
        ))?;
        Ok(fd as i32)
    }
}

fn place(from: i32, target: &CStr) -> io::Result<()> {
    // SAFETY: both names are NUL-terminated and outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            from,
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
    .map(drop)
}

fn make_dir(path: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: the path outlives the call.
    check(unsafe { libc::mkdir(path.as_ptr(), mode) }.into()).map(drop)
}

fn make_file(path: &CStr) -> io::Result<()> {
    // SAFETY: the path outlives the calls; the descriptor is closed at once.
    unsafe {
        let fd = check(libc::open(path.as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o644).into())?;
        libc::close(fd as i32);
    }
    Ok(())
}
