//! The restrictions of the service: of its process, and of the threads that strangers talk to.
//!
//!   stasis serve ── restrict_process ──► fewer capabilities, no new privileges, no dumps
//!      ├─ engine: captures, restores, files, templates     as above: it traces, mounts, signals
//!      ├─ service: HTTP, WebSockets, MCP ─ restrict_thread  no capability, filter, Landlock
//!      └─ egress: packets of machines ──── restrict_thread  the same, and files as `nobody`
//!
//! A thread is restricted before it reads its first byte, and hands that on to every thread it
//! starts. The engine's threads cannot have a filter: the kernel shows the filters of a machine,
//! and suspends them, only for a tracer that has none. Nor can Landlock confine them: it forbids
//! to trace and to mount. A kernel without Landlock leaves that part out.
//!
//! All threads share one address space. These restrictions hold against a thread that is tricked,
//! for example into another path or program; code that takes over a thread can reach another
//! thread's memory.
//!
//! SECURITY.md shows the lists; a test compares the two.

use crate::seccomp::{ALLOWED, AllowedSyscall, REFUSED, SyscallGroup, compile};
use stasis_sys::landlock::{
    self, ACCESS_EXECUTE, ACCESS_IOCTL_DEV, ACCESS_MAKE_BLOCK, ACCESS_MAKE_CHAR, ACCESS_READ_DIR,
    ACCESS_READ_FILE, Ruleset, SCOPE_ABSTRACT_SOCKET, SCOPE_SIGNAL,
};
use stasis_sys::{libc, process, seccomp};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Capabilities of the host's root that the whole process drops, with everything it starts.
#[derive(Debug, Clone, Copy)]
pub struct DroppedCapabilities {
    pub why: &'static str,
    pub capabilities: &'static [(&'static str, u32)],
}

#[rustfmt::skip]
pub const GIVEN_UP: &[DroppedCapabilities] = &[
    DroppedCapabilities { why: "kernel modules, raw memory and ports, restarts",
        capabilities: &[("SYS_MODULE", 16), ("SYS_RAWIO", 17), ("SYS_BOOT", 22)] },
    DroppedCapabilities { why: "the host's clock, consoles and sleep",
        capabilities: &[("SYS_TIME", 25), ("SYS_TTY_CONFIG", 26), ("WAKE_ALARM", 35),
            ("BLOCK_SUSPEND", 36)] },
    DroppedCapabilities { why: "security modules, audit rules, accounting and the kernel's log",
        capabilities: &[("MAC_OVERRIDE", 32), ("MAC_ADMIN", 33), ("AUDIT_CONTROL", 30),
            ("AUDIT_READ", 37), ("SYS_PACCT", 20), ("SYSLOG", 34)] },
    DroppedCapabilities { why: "the host's network; machines have namespaces of their own",
        capabilities: &[("NET_ADMIN", 12), ("NET_RAW", 13), ("NET_BROADCAST", 11)] },
    DroppedCapabilities { why: "flags that make files unremovable, and leases on them",
        capabilities: &[("LINUX_IMMUTABLE", 9), ("LEASE", 28)] },
];

/// Which threads a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    Service,
    ServiceAndEgress,
}

/// Calls that a machine may make and these threads may not: for them they do not exist.
#[derive(Debug, Clone, Copy)]
pub struct ExcludedSyscalls {
    pub why: &'static str,
    pub threads: Threads,
    pub calls: &'static [&'static str],
}

#[rustfmt::skip]
pub const LEFT_OUT: &[ExcludedSyscalls] = &[
    ExcludedSyscalls { why: "they start no programs", threads: Threads::ServiceAndEgress,
        calls: &["execve", "execveat", "fork", "vfork"] },
    ExcludedSyscalls { why: "they signal no process", threads: Threads::ServiceAndEgress,
        calls: &["kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open",
            "pidfd_send_signal"] },
    ExcludedSyscalls { why: "their ids and limits are fixed", threads: Threads::ServiceAndEgress,
        calls: &["setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid",
            "setfsgid", "setgroups", "capset", "setrlimit", "setsid", "setpgid"] },
    ExcludedSyscalls { why: "they make no nodes and watch no files",
        threads: Threads::ServiceAndEgress,
        calls: &["mknod", "mknodat", "inotify_init", "inotify_init1", "inotify_add_watch"] },
    ExcludedSyscalls { why: "they use no System V shared objects",
        threads: Threads::ServiceAndEgress,
        calls: &["shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget",
            "msgsnd", "msgrcv", "msgctl"] },
    ExcludedSyscalls { why: "they accept connections and open none", threads: Threads::Service,
        calls: &["socket", "socketpair", "bind", "listen", "connect"] },
];

/// A thread that strangers talk to.
#[derive(Debug, Clone)]
pub enum ServiceThread {
    /// It changes files in the data directory and opens no others.
    Service { data: PathBuf },
    /// It reads the names of resolvers and opens nothing else.
    Egress { resolv_conf: PathBuf },
}

/// Devices that both kinds of threads use for randomness and for discarding.
const DEVICES: [&str; 2] = ["/dev/urandom", "/dev/null"];
/// The user and group that own no file.
const NOBODY: u32 = 65534;

/// Restricts this process and all it starts. To be called before it has another thread.
pub fn restrict_process() -> io::Result<()> {
    let given_up = GIVEN_UP.iter().flat_map(|group| group.capabilities);
    let numbers: Vec<u32> = given_up.map(|(_, number)| *number).collect();
    process::give_up_capabilities(&numbers)?;
    process::no_new_privileges()?;
    // its memory holds tokens: no core file, and only the host's root may trace it
    process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0).map(drop)
}

/// Restricts this thread and those it starts. A thread started by a restricted one is restricted.
pub fn restrict_thread(kind: &ServiceThread) -> io::Result<()> {
    if process::has_no_capabilities()? {
        return Ok(());
    }
    process::no_new_privileges()?;
    if let Some(rules) = rules(kind, landlock::version()) {
        landlock::restrict(&rules)?;
    }
    process::drop_bounding_set()?;
    if matches!(kind, ServiceThread::Egress { .. }) {
        process::set_groups(&[])?;
        process::set_fs_ids(NOBODY, NOBODY);
    }
    process::drop_capabilities()?;
    seccomp::install(filter(kind))
}

/// Landlock's remaining access to the file system; `None` if the kernel has no Landlock.
fn rules(kind: &ServiceThread, version: u32) -> Option<Ruleset> {
    let handled_files = landlock::all_files(version);
    let mut below: Vec<(String, u64)> =
        DEVICES.map(|device| (device.to_owned(), ACCESS_READ_FILE)).into();
    match kind {
        ServiceThread::Service { data } => {
            let no = ACCESS_EXECUTE | ACCESS_MAKE_CHAR | ACCESS_MAKE_BLOCK | ACCESS_IOCTL_DEV;
            below.push((data.to_string_lossy().into_owned(), handled_files & !no));
        }
        ServiceThread::Egress { resolv_conf } => {
            // Directories: the file is replaced when the host's network changes.
            let real = resolv_conf.canonicalize().ok();
            let dirs = [Some(resolv_conf.as_path()), real.as_deref()];
            let dirs = dirs.into_iter().flatten().filter_map(Path::parent);
            let read = ACCESS_READ_FILE | ACCESS_READ_DIR;
            below.extend(dirs.map(|dir| (dir.to_string_lossy().into_owned(), read)));
        }
    }
    below.retain(|(path, _)| Path::new(path).exists());
    let scoped = if version >= 6 { SCOPE_SIGNAL | SCOPE_ABSTRACT_SOCKET } else { 0 };
    (handled_files != 0).then_some(Ruleset { handled_files, scoped, below })
}

/// The machine's filter without the removed calls.
fn filter(kind: &ServiceThread) -> &'static [u64] {
    static SERVICE: OnceLock<Vec<u64>> = OnceLock::new();
    static EGRESS: OnceLock<Vec<u64>> = OnceLock::new();
    match kind {
        ServiceThread::Service { .. } => SERVICE.get_or_init(|| without(LEFT_OUT.iter())),
        ServiceThread::Egress { .. } => {
            let both = |line: &&ExcludedSyscalls| line.threads == Threads::ServiceAndEgress;
            EGRESS.get_or_init(|| without(LEFT_OUT.iter().filter(both)))
        }
    }
}

fn without<'a>(lines: impl Iterator<Item = &'a ExcludedSyscalls>) -> Vec<u64> {
    let left_out: Vec<&str> = lines.flat_map(|line| line.calls).copied().collect();
    let kept = |call: &&AllowedSyscall| !left_out.contains(&call.name);
    let purposes = ALLOWED.iter().map(|purpose| {
        // made once for each kind of thread, and used as long as the process lives
        let calls: Vec<AllowedSyscall> = purpose.calls.iter().filter(kept).copied().collect();
        SyscallGroup { calls: calls.leak(), ..*purpose }
    });
    compile(&purposes.collect::<Vec<_>>(), REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::{TcpListener, UdpSocket};
    use std::process::Command;

    fn restricted<T: Send + 'static>(
        kind: ServiceThread,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let thread = std::thread::spawn(move || {
            restrict_thread(&kind).expect("restricted");
            restrict_thread(&kind).expect("it is already");
            job()
        });
        thread.join().expect("a thread")
    }

    fn errno<T>(result: io::Result<T>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn every_call_left_out_is_one_that_machines_have() {
        let known: Vec<&str> =
            ALLOWED.iter().flat_map(|purpose| purpose.calls).map(|call| call.name).collect();
        for call in LEFT_OUT.iter().flat_map(|line| line.calls) {
            assert!(known.contains(call), "{call}");
        }
    }

    #[test]
    fn a_thread_of_the_service_has_its_data_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        fs::create_dir(&data).expect("made");
        fs::write(dir.path().join("secret"), "of the host").expect("written");
        std::os::unix::fs::symlink("../secret", data.join("link")).expect("linked");
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep runs");
        let pid = child.id() as i32;
        let own = data.clone();
        restricted(ServiceThread::Service { data }, move || {
            fs::write(own.join("file"), "data").expect("its own file");
            fs::rename(own.join("file"), own.join("other")).expect("renamed");
            assert_eq!(fs::read(own.join("other")).expect("read"), b"data");
            assert_eq!(errno(fs::read(own.join("link"))), Some(libc::EACCES));
            assert_eq!(errno(fs::read("/etc/passwd")), Some(libc::EACCES));
            assert_eq!(errno(fs::read(format!("/proc/{pid}/environ"))), Some(libc::EACCES));
            assert_eq!(errno(fs::write("/tmp/stasis-escaped", "")), Some(libc::EACCES));
            let seized = stasis_sys::ptrace::seize(pid, 0);
            assert_eq!(errno(seized), Some(libc::EPERM));
            assert_eq!(errno(process::kill(pid, libc::SIGKILL)), Some(libc::ENOSYS));
            let mounted = stasis_sys::mount::clone_tree("/", false);
            assert_eq!(errno(mounted), Some(libc::EPERM));
            assert_eq!(errno(TcpListener::bind("127.0.0.1:0")), Some(libc::ENOSYS));
            Command::new("true").status().expect_err("no program starts");
            // every thread it starts inherits the restrictions
            std::thread::spawn(|| fs::read("/etc/passwd").expect_err("refused"))
                .join()
                .expect("it");
        });
        assert!(child.try_wait().expect("a child").is_none(), "it was signalled");
        child.kill().expect("the other threads are as they were");
        child.wait().expect("an end");
        fs::read("/etc/passwd").expect("the other threads are as they were");
    }

    #[test]
    fn a_thread_of_the_egress_has_sockets_and_no_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let resolv_conf = dir.path().join("resolv.conf");
        let replaced = resolv_conf.clone();
        fs::write(&resolv_conf, "nameserver 127.0.0.53").expect("written");
        // mode and owner allow only root to read it
        let secret = dir.path().join("secret");
        fs::write(&secret, "of the host").expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&secret, mode).expect("closed");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir.path(), open).expect("open");
        restricted(ServiceThread::Egress { resolv_conf }, move || {
            fs::read(&replaced).expect("resolvers are read");
            assert_eq!(errno(fs::read(&secret)), Some(libc::EACCES));
            assert_eq!(errno(fs::write(&replaced, "")), Some(libc::EACCES));
            assert_eq!(errno(fs::read("/usr/bin/env")), Some(libc::EACCES));
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.set_nonblocking(true).expect("set");
            Command::new("true").status().expect_err("no program starts");
        });
    }
}
