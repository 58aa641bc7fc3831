//! Messages between the engine and the processes the spawner makes.
//!
//! Sequenced-packet sockets carry one message each, with descriptors beside it. Both sides are the
//! same build, so there is no version here; only images outlive a build.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use stasis_sys::socket;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Bounded by the kernel's default socket buffer.
pub const MAX_MESSAGE: usize = 160 << 10;

/// Requests of the engine to the spawner.
#[derive(Debug, Serialize, Deserialize)]
pub enum SpawnRequest {
    /// A process that holds nothing but the interpreter. Brings its control socket.
    Blank,
    /// New namespaces with an init in them. Brings the init's control socket, and the entrances
    /// of its cgroup.
    Walls(WallsSpec),
}

/// The sandbox to build.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WallsSpec {
    pub hostname: String,
    pub root: RootSpec,
    /// (inside, outside, count)
    pub uid_map: Vec<(u32, u32, u32)>,
    pub gid_map: Vec<(u32, u32, u32)>,
    /// Files on disk have the ids inside, and are shown under the mapped ones.
    pub map_files: bool,
    pub mask_proc: bool,
    pub entrance: Entrance,
}

/// How a machine's processes enter its cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entrance {
    None,
    /// Version 1: each writes "0" to this many files.
    Tasks(u32),
    /// Version 2: made inside a directory.
    Directory,
}

/// An overlay: read-only layers, topmost first, and a private directory on top.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RootSpec {
    pub lower: Vec<String>,
    pub upper: String,
    pub work: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum SpawnReply {
    /// Brings a pidfd.
    Made {
        pid: i32,
    },
    Failed {
        what: String,
        errno: i32,
    },
}

/// Requests of the engine to a machine's init.
#[derive(Debug, Serialize, Deserialize)]
pub enum InitRequest {
    /// Starts the first program, stopped before exec. Brings its descriptors, to be placed at
    /// `fds`. Answers with a pidfd.
    Launch { program: Box<LaunchSpec>, fds: Vec<i32>, confine: Box<ProgramConfinement> },
    /// Creates the time namespace with these clock offsets (nanoseconds) and sends it.
    Time { monotonic: i64, boottime: i64 },
    /// Keeps descriptors open until released, even if the engine ends.
    Hold,
    /// Releases everything held.
    Release,
    /// Creates kernel objects inside the namespaces; answers with one descriptor each, in batches
    /// of at most `socket::MAX_FDS`.
    Objects(Vec<ObjectSpec>),
    /// Reports the properties of the sent sockets, and of all unix sockets, that show only inside.
    /// Answers with a packed `SocketLooks`.
    LookAtSockets,
    /// Follows the packed `SocketPlan` it brings; answers with the sockets to be kept.
    MakeSockets,
    /// Makes the interface that leads outside, and answers with where its packets come and go. May
    /// bring two files of certificates that programs are to trust: those of the host, and those of
    /// the machine.
    Network(NetworkLink),
}

/// The machine's side of the way outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkLink {
    /// The machine's own address.
    pub address: Ipv4Addr,
    /// Its name server.
    pub resolver: Ipv4Addr,
    /// The largest packet.
    pub mtu: u32,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LaunchSpec {
    pub path: String,
    pub argv: Vec<String>,
    pub env: Vec<String>,
    pub cwd: String,
    /// Its user, if the sandbox makes programs unprivileged.
    pub user: User,
}

/// A user in the machine's own ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Default for User {
    fn default() -> User {
        User { uid: 1000, gid: 1000, groups: vec![1000] }
    }
}

/// Privileges that a program loses before it starts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProgramConfinement {
    /// It runs as its user, without capabilities or a way to get any.
    pub unprivileged: bool,
    pub landlock: Option<LandlockRules>,
    /// A seccomp filter; empty for none.
    pub filter: Vec<u64>,
    /// A resource, and its lowered limit.
    pub limits: Vec<(u32, u64)>,
}

/// `stasis_sys::landlock::Ruleset` on its way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LandlockRules {
    pub handled_files: u64,
    pub scoped: u64,
    pub below: Vec<(String, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum InitReply {
    /// With as many descriptors as `fds`; `more` messages follow for the same request.
    Done {
        fds: u32,
        more: bool,
    },
    Failed {
        what: String,
        errno: i32,
    },
}

/// One kernel object that belongs to the machine's namespaces. The engine itself creates other
/// objects (pipes, event counters, memory files).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ObjectSpec {
    /// Opened by path below the machine's root.
    Open { path: String, flags: i32, offset: Option<u64> },
    /// A directory, read up to the entry `next` (`None`: to its end). An empty path means a removed
    /// one.
    Directory { path: String, flags: i32, offset: u64, next: Option<String> },
    /// A pseudo-terminal's master, under this number. `node` is the slave's owner, group and
    /// mode.
    PtyMaster { index: u32, flags: i32, node: (u32, u32, u32), slave_gone: bool },
    /// The slave of some pseudo-terminal whose master is closed.
    HungUpPty { flags: i32 },
    /// An inotify without watches.
    Inotify { flags: i32 },
    /// A pidfd of a process that has ended and was waited for.
    EndedProcess,
}

pub fn send<T: Serialize>(socket: BorrowedFd, message: &T, fds: &[BorrowedFd]) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if bytes.len() > MAX_MESSAGE {
        return Err(io::Error::other(format!("a message of {} bytes is too long", bytes.len())));
    }
    socket::send(socket, &bytes, fds).map(drop)
}

/// The next message, or `None` when the other side has closed.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    // fresh zero pages: only the part that the message fills uses memory of an init
    let mut buffer = vec![0u8; MAX_MESSAGE];
    let received = socket::receive(socket, &mut buffer)?;
    if received.len == 0 {
        return Ok(None);
    }
    let message = postcard::from_bytes(&buffer[..received.len]).map_err(io::Error::other)?;
    Ok(Some((message, received.fds)))
}

/// Bytes of an order to a template: two pids and two sets of clone arguments, each padded to 16.
pub const ORDER_SIZE: usize = 16 + 2 * 96;

/// An order to a template: which pids, and how to make its helper and the clone.
pub struct CloneOrder {
    /// Pid of the short-lived helper, free in the namespace; `None` lets the kernel choose.
    pub helper_pid: Option<i32>,
    pub clone_pid: Option<i32>,
    /// The clone starts in the cgroup whose directory is the first entrance.
    pub into_cgroup: bool,
}

impl CloneOrder {
    /// The bytes the resident loop receives in place. `base` is where it keeps them.
    pub fn to_bytes(&self, base: u64) -> Vec<u8> {
        use crate::layout;
        use stasis_sys::libc;
        use stasis_sys::process::{CLONE_INTO_CGROUP, CloneArgs};
        let pid = |pid: Option<i32>| pid.unwrap_or(0) as u32 as u64;
        let mut bytes = Vec::with_capacity(ORDER_SIZE);
        // two 32-bit pids, each in a 64-bit cell of its own
        bytes.extend(pid(self.helper_pid).to_ne_bytes());
        bytes.extend(pid(self.clone_pid).to_ne_bytes());
        let helper = CloneArgs {
            flags: (libc::CLONE_VM | libc::CLONE_VFORK) as u64,
            set_tid: if self.helper_pid.is_some() { base } else { 0 },
            set_tid_size: self.helper_pid.is_some().into(),
            ..CloneArgs::default()
        };
        let cgroup = if self.into_cgroup { layout::CLONE_ENTRANCE_FD as u64 } else { 0 };
        let clone = CloneArgs {
            flags: if self.into_cgroup { CLONE_INTO_CGROUP } else { 0 },
            cgroup,
            exit_signal: libc::SIGCHLD as u64,
            set_tid: if self.clone_pid.is_some() { base + 8 } else { 0 },
            set_tid_size: self.clone_pid.is_some().into(),
            ..CloneArgs::default()
        };
        for args in [helper, clone] {
            bytes.extend(args.to_bytes());
            bytes.resize(bytes.len().next_multiple_of(16), 0);
        }
        debug_assert_eq!(bytes.len(), ORDER_SIZE);
        bytes
    }
}
