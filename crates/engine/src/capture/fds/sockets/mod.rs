//! Sockets: their kinds, peers and queues.
//!
//!   every descriptor ─► note (a copy of the socket, what kind it is)
//!   once all are known ─► ask the machine's init ─► read each ─► match the ends of connections
//!
//! A socket is read through a copy of its descriptor, in the pause. Reading leaves no trace: data
//! is peeked at, and a pending error is never read, because reading clears it. Relations between
//! sockets show only once all of them are known, hence the two steps.
//!
//! Carried: unix sockets of all three kinds, TCP, UDP. Connections that lead out of the tree come
//! back as reset ones. Everything else is refused with process, descriptor and kind, and so are
//! descriptors on their way inside a queue. Not seen: a datagram of no bytes that an earlier
//! capture of the same running tree has already peeked at, and multicast memberships.

mod backlog;
mod handover;
mod inet;
mod options;
mod queue;
mod unix;

use super::{Objects, OpenDescriptor};
use crate::error::{Error, ErrorContext, Result};
use crate::freeze::Frozen;
use crate::tree::Tree;
use stasis_image::model::*;
use stasis_sandbox::Ids;
use stasis_spawner::protocol::InitRequest;
use stasis_spawner::socket_plan::{self, SocketLook, SocketLooks, UnixRow};
use stasis_sys::socket::MAX_FDS;
use stasis_sys::{libc, process as sysprocess, socket};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Sockets found so far.
#[derive(Default)]
pub struct Sockets {
    found: Vec<FoundSocket>,
    /// Processes they were found in, by the host's pid.
    pidfds: HashMap<i32, OwnedFd>,
}

/// A socket, and where it was first seen.
pub struct FoundSocket {
    /// Its index among the objects.
    object: u32,
    inode: u32,
    fd: OwnedFd,
    own_pid: i32,
    number: i32,
    family: i32,
    kind: i32,
    protocol: i32,
    nonblocking: bool,
}

impl FoundSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn refuse(&self, what: impl std::fmt::Display) -> Error {
        Error::refused(self.own_pid, format!("fd {}: {what}", self.number))
    }

    fn doing(&self) -> String {
        format!("look at the socket at fd {} of process {}", self.number, self.own_pid)
    }
}

/// Data of all sockets together.
struct Scene {
    /// Unix sockets of the machine by inode, and the objects of those in the tree.
    rows: HashMap<u32, UnixRow>,
    objects: HashMap<u32, u32>,
    /// Pids in the machine by pids on the host.
    pids: HashMap<i32, i32>,
    ids: Ids,
}

impl Scene {
    /// A process id in the machine's numbering; an ended process has none.
    fn inside(&self, (pid, uid, gid): (i32, u32, u32)) -> PeerId {
        let id = |id: u32| self.ids.inside(id).unwrap_or(u32::MAX);
        let pid = self.pids.get(&pid).copied().unwrap_or(0);
        PeerId { pid, uid: id(uid), gid: id(gid) }
    }
}

/// Keeps a copy of a socket for later; `resolve` fills in the returned value.
pub fn note(objects: &mut Objects, descriptor: &OpenDescriptor) -> Result<ObjectKind> {
    let object = objects.list.len() as u32;
    let pid = descriptor.process.pid;
    let doing = || format!("copy the socket at fd {} of process {pid}", descriptor.number);
    let pidfd = match objects.sockets.pidfds.entry(pid) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(sysprocess::pidfd_open(pid).doing(doing)?),
    };
    let fd = sysprocess::pidfd_getfd(pidfd.as_fd(), descriptor.number).doing(doing)?;
    let number = |name| socket::option_int(fd.as_fd(), libc::SOL_SOCKET, name).doing(doing);
    let family = number(libc::SO_DOMAIN)?;
    let (kind, protocol) = (number(libc::SO_TYPE)?, number(libc::SO_PROTOCOL)?);
    if let Some(what) = unknown(family, kind, protocol) {
        return Err(descriptor.refuse(format!("{what} is not supported")));
    }
    // counts those in connections not yet accepted too
    match descriptor.info.text("scm_fds") {
        None | Some("0") => {}
        Some(count) => {
            let what = format!("{count} descriptors are on their way in its queue: not supported");
            return Err(descriptor.refuse(what));
        }
    }
    objects.sockets.found.push(FoundSocket {
        object,
        inode: descriptor.meta.ino() as u32,
        fd,
        own_pid: descriptor.process.own_pid,
        number: descriptor.number,
        family,
        kind,
        protocol,
        nonblocking: descriptor.info.flags as i32 & libc::O_NONBLOCK != 0,
    });
    Ok(ObjectKind::Socket(Box::new(blank(family, kind, protocol))))
}

fn blank(family: i32, kind: i32, protocol: i32) -> Socket {
    Socket {
        family,
        kind,
        protocol,
        uid: 0,
        gid: 0,
        local: Vec::new(),
        node: None,
        peer_credentials: PeerId::default(),
        options: Vec::new(),
        state: SocketState::Unconnected,
        shutdown: 0,
        queue: Vec::new(),
    }
}

/// The name of a kind that is not carried.
fn unknown(family: i32, kind: i32, protocol: i32) -> Option<String> {
    let inet = matches!(family, libc::AF_INET | libc::AF_INET6);
    match (kind, protocol) {
        _ if family == libc::AF_UNIX => None,
        (libc::SOCK_STREAM, libc::IPPROTO_TCP | libc::IPPROTO_MPTCP) if inet => None,
        (libc::SOCK_DGRAM, libc::IPPROTO_UDP) if inet => None,
        (libc::SOCK_RAW, _) if inet => Some(format!("a raw socket (protocol {protocol})")),
        _ if inet => Some(format!("an internet socket of type {kind}, protocol {protocol}")),
        _ => Some(match family {
            libc::AF_NETLINK => format!("a netlink socket (protocol {protocol})"),
            libc::AF_PACKET => "a packet socket".into(),
            libc::AF_VSOCK => "a vsock socket".into(),
            libc::AF_ALG => "a kernel crypto socket".into(),
            libc::AF_XDP => "an XDP socket".into(),
            _ => format!("a socket of family {family}"),
        }),
    }
}

/// Fills in every socket noted.
pub fn resolve(
    objects: &mut Objects,
    frozen: &Frozen,
    tree: &Tree,
    processes: &[Process],
) -> Result<()> {
    let mut found = std::mem::take(&mut objects.sockets.found);
    if found.is_empty() {
        return Ok(());
    }
    let (looks, rows) = ask(tree, &found)?;
    let scene = Scene {
        rows: rows.into_iter().map(|row| (row.inode, row)).collect(),
        objects: found.iter().map(|own| (own.inode, own.object)).collect(),
        pids: frozen.processes.iter().map(|process| (process.pid, process.own_pid)).collect(),
        ids: tree.walls.ids(),
    };
    let mut sockets = Vec::with_capacity(found.len());
    for (own, look) in found.iter().zip(&looks) {
        sockets.push(read(own, look, &scene)?);
    }
    inet::match_ends(&found, &mut sockets)?;
    let frozen = &frozen.processes;
    let stage = backlog::FrozenView { frozen, processes, objects: &objects.list, tree };
    // last, when nothing else can be refused any more: it leaves other sockets behind
    let mut lines = backlog::read(&stage, &mut found, &sockets, &scene)?;
    for (own, mut socket) in found.iter().zip(sockets) {
        if let SocketState::Listening { waiting, .. } = &mut socket.state {
            *waiting = lines.remove(&own.object).unwrap_or_default();
        }
        objects.list[own.object as usize].kind = ObjectKind::Socket(Box::new(socket));
    }
    Ok(())
}

/// Data visible only inside the machine.
fn ask(tree: &Tree, found: &[FoundSocket]) -> Result<(Vec<SocketLook>, Vec<UnixRow>)> {
    let mut looks = Vec::with_capacity(found.len());
    let mut rows = Vec::new();
    for batch in found.chunks(MAX_FDS) {
        let fds: Vec<BorrowedFd> = batch.iter().map(FoundSocket::fd).collect();
        let packed =
            tree.walls.init.ask(&InitRequest::LookAtSockets, &fds)?.pop().ok_or(Error::Gone)?;
        let answer: SocketLooks =
            socket_plan::unpack(packed).doing(|| "hear about sockets".into())?;
        if answer.looks.len() != batch.len() {
            return Err(Error::Gone);
        }
        looks.extend(answer.looks);
        rows = answer.unix;
    }
    Ok((looks, rows))
}

fn read(own: &FoundSocket, look: &SocketLook, scene: &Scene) -> Result<Socket> {
    if !look.own_network {
        return Err(own.refuse("a socket of another network namespace is not supported"));
    }
    let mut socket = blank(own.family, own.kind, own.protocol);
    (socket.uid, socket.gid) = (look.uid, look.gid);
    socket.peer_credentials = PeerId { pid: look.peer.pid, uid: look.peer.uid, gid: look.peer.gid };
    socket.options = options::read(own)?;
    match (own.family, own.kind) {
        (libc::AF_UNIX, _) => unix::read(own, scene, &mut socket)?,
        (_, libc::SOCK_STREAM) => inet::read_stream(own, &mut socket)?,
        _ => inet::read_datagrams(own, scene, &mut socket)?,
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_not_carried_have_names() {
        let unknown = |family, kind, protocol| unknown(family, kind, protocol).unwrap_or_default();
        assert_eq!(unknown(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0), "");
        assert_eq!(unknown(libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP), "");
        assert_eq!(unknown(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDP), "");
        assert!(unknown(libc::AF_INET, libc::SOCK_RAW, 1).contains("raw"));
        assert!(
            unknown(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP).contains("protocol 1")
        );
        assert!(unknown(libc::AF_NETLINK, libc::SOCK_RAW, 0).contains("netlink"));
        assert!(unknown(libc::AF_PACKET, libc::SOCK_RAW, 0).contains("packet"));
    }
}
