//! Sockets: unix, TCP and UDP.
//!
//! A socket is described by its properties as seen from inside its process: names, options, peer,
//! and unread data. Other sockets are referred to by their index among the objects, so nothing here
//! is recursive.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    pub family: i32,
    pub kind: i32,
    pub protocol: i32,
    /// The owner of the socket, which decides whose sockets may share its port.
    pub uid: u32,
    pub gid: u32,
    /// Raw sockaddr bytes of the bound name, empty when unnamed.
    pub local: Vec<u8>,
    /// The file of a unix socket bound at a path.
    pub node: Option<SocketNode>,
    /// The value of SO_PEERCRED, in the machine's numbering.
    pub peer_credentials: PeerId,
    pub options: Vec<SocketOption>,
    pub state: SocketState,
    /// Directions shut down: 1 receiving, 2 sending.
    pub shutdown: u8,
    /// Data received and not yet read: one entry per message, any number for streams.
    pub queue: Vec<SocketMessage>,
}

/// The target of a path name when the socket was bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketNode {
    /// The directory the name was relative to; `/` for an absolute one.
    pub directory: String,
    /// The file's current path; `None` if it has no name any more.
    pub path: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PeerId {
    /// 0 for a process outside the machine.
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOption {
    pub level: i32,
    pub name: i32,
    pub value: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketMessage {
    pub data: Vec<u8>,
    /// Raw sockaddr bytes of the sender, empty when it has no name or in a stream.
    pub from: Vec<u8>,
    /// The sender, if the receiver requested it (SO_PASSCRED).
    pub sender: Option<PeerId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketState {
    Unconnected,
    /// Listening, with connections not accepted yet, oldest first.
    Listening {
        backlog: u32,
        waiting: Vec<PendingConnection>,
    },
    /// Connected to another socket of the tree. A datagram socket may be connected to one that is
    /// not connected to it in turn.
    Connected {
        peer: u32,
    },
    /// The client's end of a connection in the `waiting` list of a listening socket.
    Waiting {
        listener: u32,
    },
    /// Connected to a datagram address (UDP).
    Addressed {
        remote: Vec<u8>,
    },
    /// Was connected to a peer that has closed or cannot be restored.
    Ended(Ending),
}

/// A connection in a unix listener's backlog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingConnection {
    /// The client's end; `None` when it has been closed.
    pub client: Option<u32>,
    /// The connecting process.
    pub connector: PeerId,
    /// The client's sent data.
    pub sent: Vec<SocketMessage>,
}

/// The event on a connection once the queued data has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// An error, ECONNRESET.
    Reset,
    /// The end of the stream; the peer has finished.
    Finished,
    /// The end of the stream, and nothing can be sent either: both sides have finished.
    Closed,
}
