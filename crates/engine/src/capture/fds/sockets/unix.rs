//! Unix sockets.

use super::{FoundSocket, Scene, queue};
use crate::error::{ErrorContext, Result};
use stasis_image::model::*;
use stasis_spawner::socket_plan::UnixRow;
use stasis_sys::{fds, libc, socket};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;
const SHUT_BOTH: u8 = 3;
const SHUT_RECEIVE: u8 = 1;

pub fn read(own: &FoundSocket, scene: &Scene, out: &mut Socket) -> Result<()> {
    let row = scene
        .rows
        .get(&own.inode)
        .ok_or_else(|| own.refuse("the kernel does not list its unix socket"))?;
    let ready = fds::ready_for(own.fd(), libc::POLLPRI).doing(|| own.doing())?;
    if ready & libc::POLLPRI != 0 && row.state != LISTEN {
        return Err(own.refuse("urgent data in a unix socket is not supported"));
    }
    let failed = ready & libc::POLLERR != 0;
    let name = socket::local_name(own.fd()).doing(|| own.doing())?;
    out.local = if name.len() > 2 { name } else { Vec::new() };
    out.node = node(own, &out.local)?;
    out.shutdown = row.shutdown;
    out.state = if own.kind == libc::SOCK_DGRAM {
        datagram_state(row, scene)
    } else {
        stream_state(own, row, scene, failed)
    };
    out.queue = match (own.kind, row.state) {
        (_, LISTEN) => Vec::new(),
        (libc::SOCK_STREAM, ESTABLISHED) => queue::peek_stream(own, scene)?,
        (libc::SOCK_STREAM, _) => Vec::new(),
        // looking would take the error away
        _ if failed => return Err(own.refuse("an error is waiting on its unix socket")),
        _ => {
            let packets = own.kind == libc::SOCK_SEQPACKET;
            queue::peek_messages(own, scene, packets && row.shutdown & SHUT_RECEIVE != 0)?
        }
    };
    Ok(())
}

fn stream_state(own: &FoundSocket, row: &UnixRow, scene: &Scene, failed: bool) -> SocketState {
    if row.state == LISTEN {
        // who waits in it is filled in later
        return SocketState::Listening { backlog: row.backlog, waiting: Vec::new() };
    }
    if row.state != ESTABLISHED {
        return SocketState::Unconnected;
    }
    if let Some(peer) = row.peer.and_then(|peer| scene.objects.get(&peer)) {
        return SocketState::Connected { peer: *peer };
    }
    let mut listeners = scene.rows.values().filter(|other| other.waiting.contains(&own.inode));
    if let Some(listener) = listeners.find_map(|other| scene.objects.get(&other.inode)) {
        return SocketState::Waiting { listener: *listener };
    }
    let gone = row.shutdown == SHUT_BOTH && !failed;
    SocketState::Ended(if gone { Ending::Closed } else { Ending::Reset })
}

fn datagram_state(row: &UnixRow, scene: &Scene) -> SocketState {
    match row.peer {
        None => SocketState::Unconnected,
        Some(peer) => match scene.objects.get(&peer) {
            Some(peer) => SocketState::Connected { peer: *peer },
            None => SocketState::Ended(Ending::Reset),
        },
    }
}

/// Where the file of a path-bound socket is, and what its name was relative to.
fn node(own: &FoundSocket, local: &[u8]) -> Result<Option<SocketNode>> {
    if local.len() <= 2 || local[2] == 0 {
        return Ok(None);
    }
    let name = local[2..].split(|byte| *byte == 0).next().unwrap_or(&[]);
    let name = std::str::from_utf8(name)
        .map_err(|_| own.refuse("a socket file whose name is not UTF-8 is not supported"))?;
    let file = File::from(socket::bound_file(own.fd()).doing(|| own.doing())?);
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let link = std::fs::read_link(link).doing(|| own.doing())?.to_string_lossy().into_owned();
    let removed = file.metadata().doing(|| own.doing())?.nlink() == 0;
    let path = if removed { link.strip_suffix(" (deleted)").unwrap_or(&link) } else { &link };
    let directory = directory(name, path).ok_or_else(|| {
        own.refuse(format!("its socket, bound at {name}, was moved to {path}: not supported"))
    })?;
    Ok(Some(SocketNode { directory, path: (!removed).then(|| path.to_owned()) }))
}

/// The directory that `name` was relative to, if it led to `path`.
fn directory(name: &str, path: &str) -> Option<String> {
    if name.starts_with('/') {
        return Some("/".to_owned());
    }
    let name = name.strip_prefix("./").unwrap_or(name);
    let directory = path.strip_suffix(name)?.strip_suffix('/')?;
    Some(if directory.is_empty() { "/".to_owned() } else { directory.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_its_file_give_the_directory_between() {
        assert_eq!(directory("x", "/tmp/x").as_deref(), Some("/tmp"));
        assert_eq!(directory("run/x", "/a/run/x").as_deref(), Some("/a"));
        assert_eq!(directory("./x", "/x").as_deref(), Some("/"));
        assert_eq!(directory("/var/run/x", "/run/x").as_deref(), Some("/"));
        assert_eq!(directory("x", "/tmp/y"), None);
        assert_eq!(directory("x", "/tmp/ax"), None);
    }
}
