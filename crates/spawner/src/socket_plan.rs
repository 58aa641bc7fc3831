//! Messages between the engine and a machine's init about sockets.
//!
//! Sockets belong to the machine's network namespace, and their records of processes to its pid
//! namespace, so both inspecting and creating them need a process inside. The engine decides; the
//! init follows a list of small steps and knows nothing of images:
//!
//!   capture   engine ── copies of sockets ──► init      who is connected to whom, who made it
//!   restore   engine ── steps ──► init ──► descriptors
//!
//! Lists are longer than a message may be, so they travel in memory files.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use stasis_sys::{fds, libc};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

/// More than any list a capture accepts.
const MAX_LIST: u64 = 1 << 30;

/// A process's identity inside the machine, as sockets remember it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

/// Steps to follow in order, and the slots whose descriptors are wanted.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketPlan {
    pub steps: Vec<PlanStep>,
    pub keep: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// The process to be while doing it; the kernel keeps note of who pairs, listens, connects
    /// and sends.
    pub who: Option<ProcessIdentity>,
    /// Whether everything fails when this does.
    pub must: bool,
    pub what: SocketStep,
}

/// Sockets are named by slots, numbers the engine chooses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketStep {
    New {
        slot: u32,
        family: i32,
        kind: i32,
        protocol: i32,
    },
    /// A pair of connected unix sockets.
    Pair {
        slots: [u32; 2],
        kind: i32,
    },
    Option {
        slot: u32,
        level: i32,
        name: i32,
        value: Vec<u8>,
    },
    Bind {
        slot: u32,
        address: Vec<u8>,
        place: SocketPath,
    },
    Listen {
        slot: u32,
        backlog: u32,
    },
    /// Connects to where another slot is bound.
    ConnectTo {
        slot: u32,
        to: u32,
    },
    Connect {
        slot: u32,
        address: Vec<u8>,
    },
    Accept {
        slot: u32,
        listener: u32,
    },
    /// Sends over a connection.
    Send {
        slot: u32,
        data: Vec<u8>,
    },
    /// Sends to where another slot is bound.
    SendTo {
        slot: u32,
        data: Vec<u8>,
        to: u32,
    },
    Shutdown {
        slot: u32,
        how: i32,
    },
    /// Clears a pending error.
    ClearError {
        slot: u32,
    },
    Owner {
        slot: u32,
        uid: u32,
        gid: u32,
    },
    Close {
        slot: u32,
    },
}

/// Properties of a name besides the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketPath {
    /// An address, or a unix name without a file.
    Nowhere,
    /// A file: the directory the name is relative to, and the file's path, `None` for a removed
    /// one.
    File { directory: String, path: Option<String> },
}

/// Properties of sockets that show only inside.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SocketLooks {
    /// One for each sent socket.
    pub looks: Vec<SocketLook>,
    /// Every unix socket of the namespace.
    pub unix: Vec<UnixRow>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct SocketLook {
    /// Whether it belongs to the machine's own network namespace.
    pub own_network: bool,
    pub uid: u32,
    pub gid: u32,
    /// SO_PEERCRED.
    pub peer: ProcessIdentity,
}

/// A unix socket as the kernel's socket monitoring shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixRow {
    pub inode: u32,
    /// TCP_ESTABLISHED, TCP_CLOSE or TCP_LISTEN.
    pub state: u8,
    /// The peer's inode, 0 for a peer without one (not accepted, or closed).
    pub peer: Option<u32>,
    /// Clients waiting to be accepted, 0 for closed ones.
    pub waiting: Vec<u32>,
    pub shutdown: u8,
    /// Maximum backlog of a listening socket.
    pub backlog: u32,
}

/// Writes a list to a memory file.
pub fn pack<T: Serialize>(list: &T) -> io::Result<OwnedFd> {
    let bytes = postcard::to_stdvec(list).map_err(io::Error::other)?;
    let mut file = File::from(fds::memfd("stasis-sockets", libc::MFD_CLOEXEC)?);
    file.write_all(&bytes)?;
    fds::seek(&file, 0, libc::SEEK_SET)?;
    Ok(file.into())
}

/// Reads the output of `pack`.
pub fn unpack<T: DeserializeOwned>(file: OwnedFd) -> io::Result<T> {
    let mut bytes = Vec::new();
    let file = File::from(file);
    if file.metadata()?.len() > MAX_LIST {
        return Err(io::Error::other("the list is too long"));
    }
    file.take(MAX_LIST).read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let step = SocketStep::Send { slot: 3, data: vec![7; 300_000] };
        let plan = SocketPlan {
            steps: vec![PlanStep { who: None, must: true, what: step }],
            keep: vec![3],
        };
        assert_eq!(unpack::<SocketPlan>(pack(&plan).unwrap()).unwrap(), plan);
    }

    #[test]
    fn garbage_is_refused() {
        let mut file = File::from(fds::memfd("garbage", libc::MFD_CLOEXEC).unwrap());
        file.write_all(&[0xff; 64]).unwrap();
        fds::seek(&file, 0, libc::SEEK_SET).unwrap();
        assert!(unpack::<SocketPlan>(file.into()).is_err());
    }
}
