//! What descriptors point at.

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
    /// A descriptor whose other side is outside: whoever restores supplies it by slot.
    External { slot: u32 },
    File { path: String, offset: u64, locks: Vec<FileLock> },
    /// Open, but with no name any more; the contents are in segment `segment`.
    Deleted { path: String, mode: u32, segment: u32, offset: u64 },
    Directory { path: String, offset: u64 },
    /// A character device from the list of harmless ones.
    Device { path: String },
    Pipe { pipe: u32, end: PipeEnd },
    Eventfd { count: u64, semaphore: bool },
    Epoll { watches: Vec<EpollWatch> },
    Signalfd { mask: u64 },
    Timerfd(Timerfd),
    Inotify { watches: Vec<InotifyWatch> },
    Memfd { segment: u32, offset: u64 },
    Pidfd { pid: i32 },
    /// A pipe's contents, kept once however many ends are open. Never referred to by a
    /// descriptor, only by `Pipe::pipe`. Several pieces where it is read packet by packet.
    PipeBuffer { path: Option<String>, capacity: u32, content: Vec<Vec<u8>> },
    Socket(Box<super::Socket>),
    Pty(Pty),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PipeEnd {
    Read,
    Write,
    Both,
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

/// One side of a pseudo terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pty {
    /// Number under /dev/pts; both sides of one terminal have the same.
    pub index: u32,
    pub master: bool,
    pub locked: bool,
    pub packet: bool,
    /// Raw `struct termios2` and `struct winsize`.
    pub termios: Vec<u8>,
    pub winsize: [u16; 4],
    /// Data waiting on this side.
    pub queue: Vec<u8>,
    /// Session this terminal controls, 0 for none, and its foreground group.
    pub session: i32,
    pub foreground: i32,
}
