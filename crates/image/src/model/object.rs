//! Objects that descriptors refer to.

use super::{SysvMemory, SysvQueue, SysvSemaphores};
use serde::{Deserialize, Serialize};

/// One open file description. Descriptors, in any process, that share one share its offset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// O_* status flags (F_GETFL).
    pub flags: u32,
    /// F_SETOWN / F_SETSIG, where set.
    pub owner: Option<FdOwner>,
    pub kind: ObjectKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdOwner {
    pub kind: i32,
    pub pid: i32,
    pub signal: i32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ObjectKind {
    /// A descriptor whose other side is outside: the restoring program supplies it by slot.
    External {
        slot: u32,
    },
    File {
        path: String,
        offset: u64,
        locks: Vec<FileLock>,
    },
    /// Open, but with no name any more; the contents are in segment `segment`.
    Deleted {
        path: String,
        mode: u32,
        segment: u32,
        offset: u64,
        locks: Vec<FileLock>,
    },
    /// A directory; `path` is empty for one that was removed.
    Directory {
        path: String,
        position: DirPosition,
        locks: Vec<FileLock>,
    },
    /// Opened with O_PATH: only a location in the file tree, of any kind.
    Place {
        path: String,
    },
    /// A character device from the list of harmless ones.
    Device {
        path: String,
    },
    Pipe {
        pipe: u32,
        end: PipeEnd,
    },
    Eventfd {
        count: u64,
        semaphore: bool,
    },
    Epoll {
        watches: Vec<EpollWatch>,
    },
    Signalfd {
        mask: u64,
    },
    Timerfd(Timerfd),
    Inotify {
        watches: Vec<InotifyWatch>,
    },
    Memfd {
        segment: u32,
        offset: u64,
        locks: Vec<FileLock>,
    },
    Pidfd {
        pid: i32,
    },
    /// A pipe's contents, kept once however many ends are open. Never referred to by a
    /// descriptor, only by `Pipe::pipe`. `path` is a FIFO's name.
    PipeBuffer {
        path: Option<String>,
        capacity: u32,
        content: PipeContent,
    },
    Socket(Box<super::Socket>),
    Pty(Pty),
    /// Never referred to by a descriptor, only by `Pty::terminal`.
    Terminal(Box<Terminal>),
    /// System V IPC, which belongs to the machine and to no descriptor.
    SysvMemory(SysvMemory),
    SysvSemaphores(SysvSemaphores),
    SysvQueue(SysvQueue),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PipeEnd {
    Read,
    Write,
    Both,
}

impl ObjectKind {
    /// Locks held through this open file or, for POSIX locks, by processes that hold it.
    pub fn locks(&self) -> &[FileLock] {
        match self {
            ObjectKind::File { locks, .. }
            | ObjectKind::Deleted { locks, .. }
            | ObjectKind::Directory { locks, .. }
            | ObjectKind::Memfd { locks, .. } => locks,
            _ => &[],
        }
    }
}

/// How far a directory was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirPosition {
    pub offset: u64,
    /// The name that comes next, where `offset` is not the start; `None` at the end. Offsets
    /// are the file system's own affair, so a restore checks that the name still comes there.
    pub next: Option<String>,
}

/// Bytes in a pipe.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeContent {
    pub bytes: Vec<u8>,
    /// Lengths of the packets the bytes came in (O_DIRECT); empty for a stream.
    pub packets: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLock {
    /// flock(2) belongs to the open file; fcntl(2) locks to a process.
    pub kind: LockKind,
    pub write: bool,
    pub start: u64,
    /// None: to the end of the file.
    pub end: Option<u64>,
    pub pid: i32,
}

impl FileLock {
    /// Length in fcntl's form: 0 reaches to the end.
    pub fn len(&self) -> u64 {
        self.end.map_or(0, |end| end.saturating_sub(self.start) + 1)
    }

    /// Never: a lock covers something.
    pub fn is_empty(&self) -> bool {
        false
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    Flock,
    Posix,
    OpenFile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpollWatch {
    pub fd: i32,
    pub events: u32,
    pub data: u64,
    /// An event was pending. Matters where it is reported only once.
    pub due: bool,
}

impl EpollWatch {
    /// Told at changes only (EPOLLET), or once (EPOLLONESHOT).
    pub fn is_told_once(&self) -> bool {
        const ONESHOT_OR_EDGE: u32 = 3 << 30;
        self.events & ONESHOT_OR_EDGE != 0
    }

    /// EPOLLONESHOT, and not reported yet.
    pub fn is_armed_shot(&self) -> bool {
        const ONESHOT: u32 = 1 << 30;
        const KINDS: u32 = (1 << 28) - 1;
        self.events & ONESHOT != 0 && self.events & KINDS != 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timerfd {
    pub clock: i32,
    pub ticks: u64,
    pub settime_flags: i32,
    pub left_ns: u64,
    pub interval_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InotifyWatch {
    pub wd: i32,
    pub path: String,
    pub mask: u32,
}

/// One side of a pseudo-terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pty {
    /// Index of the `Terminal` among the objects.
    pub terminal: u32,
    pub master: bool,
}

/// A pseudo-terminal with its queued data, stored once however often it is open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Number under /dev/pts.
    pub index: u32,
    /// Owner, group and mode of the name under /dev/pts.
    pub node: (u32, u32, u32),
    /// The master is closed: processes with the slave open have been hung up.
    pub master_gone: bool,
    /// The slave was open and is not any more.
    pub slave_gone: bool,
    pub locked: bool,
    pub packet: bool,
    /// Raw `struct termios2` and `struct winsize`.
    pub termios: Vec<u8>,
    pub winsize: [u16; 4],
    /// Whole lines typed and not read, without the ^D that may have ended them.
    pub lines: Vec<Vec<u8>>,
    /// The line being typed or, in raw mode, all that was typed.
    pub rest: Vec<u8>,
    /// Printed and not read.
    pub output: Vec<u8>,
    /// The session this terminal controls and its foreground group, 0 for none.
    pub session: i32,
    pub foreground: i32,
    /// Processes of that session that have given the terminal up.
    pub without: Vec<i32>,
}
