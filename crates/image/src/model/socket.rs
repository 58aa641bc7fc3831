//! Sockets: unix, TCP and UDP.
//!
//! A socket is described by what can be seen of it from inside its process: names, options, whom it
//! is connected to, and what has arrived and was not read. Other sockets are referred to by their
//! index among the objects, so nothing here is recursive.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    pub family: i32,
    pub kind: i32,
    pub protocol: i32,
    /// Who the socket belongs to: it decides whose sockets may share its port.
    pub uid: u32,
    pub gid: u32,
    /// Raw sockaddr bytes of the bound name, empty when unnamed.
    pub local: Vec<u8>,
    /// The file of a unix socket bound at a path.
    pub node: Option<SocketNode>,
    /// What SO_PEERCRED says, in the machine's numbering.
    pub peer_credentials: PeerId,
    pub options: Vec<SocketOption>,
    pub state: SocketState,
    /// Directions shut down: 1 receiving, 2 sending.
    pub shutdown: u8,
    /// Data received and not yet read: one entry per message, any number for streams.
    pub queue: Vec<SocketMessage>,
}

/// Where a path name led when the socket was bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketNode {
    /// What the name was relative to; `/` for an absolute one.
    pub directory: String,
    /// Where the file is now; `None` when it has no name any more.
    pub path: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PeerId {
    /// 0 when it was nobody of the machine.
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
    /// Who sent it, where the receiver asked to be told (SO_PASSCRED).
    pub sender: Option<PeerId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketState {
    Unconnected,
    /// Listening, with connections nobody has accepted yet, oldest first.
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
    /// Was connected to something that is gone or cannot come back.
    Ended(Ending),
}

/// A connection in a unix listener's backlog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingConnection {
    /// The client's end; `None` when it has been closed.
    pub client: Option<u32>,
    /// Who connected.
    pub connector: PeerId,
    /// What the client has sent.
    pub sent: Vec<SocketMessage>,
}

/// What happens on a connection once what is queued has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// An error, ECONNRESET.
    Reset,
    /// The end of the stream; the peer has finished.
    Finished,
    /// The end of the stream, and nothing can be sent either: both sides have finished.
    Closed,
}
