//! TCP and UDP sockets.
//!
//! A connection comes back when both its ends are in the tree, over loopback, and everything one
//! end has sent has arrived at the other: then its whole state is in two receive queues. Any other
//! connection comes back as reset, after the data that had already arrived.

use super::{FoundSocket, Scene, queue};
use crate::error::{ErrorContext, Result};
use stasis_image::model::*;
use stasis_sys::{fds, libc, socket};
use std::collections::HashMap;

const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const SHUT_SEND: u8 = 2;

/// The parts of `struct tcp_info` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Info {
    state: u8,
    /// Maximum backlog of a listening socket.
    backlog: u32,
    received: u64,
    sent: u64,
    unsent: u32,
}

fn info(own: &FoundSocket) -> Result<Info> {
    let bytes =
        socket::option(own.fd(), libc::IPPROTO_TCP, libc::TCP_INFO, 256).doing(|| own.doing())?;
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let long = |at: usize| -> Option<u64> {
        Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let read = || -> Option<Info> {
        Some(Info {
            state: *bytes.first()?,
            backlog: word(28)?,
            received: long(128)?,
            unsent: word(144)?,
            sent: long(200)?.checked_sub(long(208)?)?,
        })
    };
    read().ok_or_else(|| own.refuse("the kernel tells too little of its TCP socket"))
}

pub fn read_stream(own: &FoundSocket, out: &mut Socket) -> Result<()> {
    let name = socket::local_name(own.fd()).doing(|| own.doing())?;
    out.local = if is_named(&name) { name } else { Vec::new() };
    let info = info(own)?;
    let listens = socket::option_int(own.fd(), libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
    if listens.doing(|| own.doing())? != 0 {
        out.state = SocketState::Listening { backlog: info.backlog, waiting: Vec::new() };
        return Ok(());
    }
    let ready = fds::ready_for(own.fd(), libc::POLLRDHUP).doing(|| own.doing())?;
    out.state = match info.state {
        CLOSE if ready & libc::POLLRDHUP == 0 => SocketState::Unconnected,
        CLOSE if ready & libc::POLLERR == 0 => SocketState::Ended(Ending::Closed),
        // the call that waits for the connection begins again
        SYN_SENT if !own.nonblocking => {
            out.local.clear();
            SocketState::Unconnected
        }
        // everything the peer had to say is here
        CLOSE_WAIT => SocketState::Ended(Ending::Finished),
        LAST_ACK => SocketState::Ended(Ending::Closed),
        _ => SocketState::Ended(Ending::Reset),
    };
    if matches!(out.state, SocketState::Ended(_)) && info.state != SYN_SENT {
        out.queue = queue::peek_tcp(own)?;
    }
    Ok(())
}

pub fn read_datagrams(own: &FoundSocket, scene: &Scene, out: &mut Socket) -> Result<()> {
    let name = socket::local_name(own.fd()).doing(|| own.doing())?;
    out.local = if is_named(&name) { name } else { Vec::new() };
    if let Ok(remote) = socket::peer_name(own.fd()) {
        out.state = SocketState::Addressed { remote };
    }
    let ready = fds::ready_for(own.fd(), libc::POLLIN).doing(|| own.doing())?;
    // looking would take a waiting error away; datagrams may be lost by right
    if ready & libc::POLLIN != 0 && ready & libc::POLLERR == 0 {
        out.queue = queue::peek_messages(own, scene, false)?;
    }
    Ok(())
}

/// Finds connections whose two ends are both here, and keeps those that can be kept.
pub fn match_ends(found: &[FoundSocket], sockets: &mut [Socket]) -> Result<()> {
    let mut ends = HashMap::new();
    for (index, own) in found.iter().enumerate() {
        let ended = matches!(sockets[index].state, SocketState::Ended(_));
        if own.protocol != libc::IPPROTO_TCP || !ended {
            continue;
        }
        let Ok(remote) = socket::peer_name(own.fd()) else { continue };
        let pair = (address(&sockets[index].local), address(&remote));
        if let (Some(local), Some(remote)) = pair {
            ends.insert((local, remote), index);
        }
    }
    for ((local, remote), index) in &ends {
        let Some(other) = ends.get(&(*remote, *local)).filter(|other| *other != index) else {
            continue;
        };
        let (here, there) = (info(&found[*index])?, info(&found[*other])?);
        if local.is_loopback() && remote.is_loopback() && keeps(here, there) {
            sockets[*index].state = SocketState::Connected { peer: found[*other].object };
            sockets[*index].shutdown = if has_finished(here) { SHUT_SEND } else { 0 };
        } else {
            // both ends are notified, whatever they knew already
            sockets[*index].state = SocketState::Ended(Ending::Reset);
        }
    }
    Ok(())
}

/// Whether nothing is on its way between the two ends.
fn keeps(a: Info, b: Info) -> bool {
    let fitting = match (a.state, b.state) {
        (ESTABLISHED, ESTABLISHED) => true,
        (CLOSE_WAIT, _) => has_finished(b),
        (_, CLOSE_WAIT) => has_finished(a),
        _ => false,
    };
    // the end of a stream counts as a byte received
    let arrived = |from: Info, to: Info| {
        let end = u64::from(has_finished(from));
        from.unsent == 0 && from.sent + end == to.received
    };
    fitting && arrived(a, b) && arrived(b, a)
}

/// Whether it has shut down its sending side; the acknowledgement may not have arrived yet.
fn has_finished(own: Info) -> bool {
    matches!(own.state, FIN_WAIT1 | FIN_WAIT2)
}

/// An address as both families write it: IPv4 as IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Address {
    ip: std::net::Ipv6Addr,
    port: u16,
    scope: u32,
}

impl Address {
    fn is_loopback(&self) -> bool {
        self.ip.is_loopback() || self.ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
    }
}

fn address(raw: &[u8]) -> Option<Address> {
    let family = u16::from_ne_bytes(raw.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(raw.get(2..4)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = raw.get(4..8)?.try_into().ok()?;
            Some(Address { ip: std::net::Ipv4Addr::from(ip).to_ipv6_mapped(), port, scope: 0 })
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = raw.get(8..24)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(raw.get(24..28)?.try_into().ok()?);
            Some(Address { ip: ip.into(), port, scope })
        }
        _ => None,
    }
}

/// Whether a socket was bound, by itself or by connecting.
fn is_named(raw: &[u8]) -> bool {
    address(raw).is_some_and(|own| own.port != 0 || !own.ip.is_unspecified() && !is_any(own.ip))
}

fn is_any(ip: std::net::Ipv6Addr) -> bool {
    ip.to_ipv4_mapped().is_some_and(|ip| ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(ip: [u8; 4], port: u16) -> Vec<u8> {
        let mut raw = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        raw.extend(port.to_be_bytes());
        raw.extend(ip);
        raw.extend([0; 8]);
        raw
    }

    #[test]
    fn the_two_families_agree_on_an_address() {
        let four = address(&v4([127, 0, 0, 1], 80)).unwrap();
        let mut raw = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        raw.extend(80u16.to_be_bytes());
        raw.extend([0; 4]);
        raw.extend("::ffff:127.0.0.1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        raw.extend([0; 4]);
        assert_eq!(address(&raw), Some(four));
        assert!(four.is_loopback());
        assert_eq!(address(&raw[..20]), None);
    }

    #[test]
    fn a_new_socket_has_no_name() {
        assert!(!is_named(&v4([0; 4], 0)));
        assert!(is_named(&v4([0; 4], 80)));
        assert!(is_named(&v4([10, 0, 0, 1], 0)));
    }

    #[test]
    fn a_connection_is_kept_when_all_has_arrived() {
        let end = |state, sent, received| Info { state, backlog: 0, received, sent, unsent: 0 };
        assert!(keeps(end(ESTABLISHED, 10, 20), end(ESTABLISHED, 20, 10)));
        assert!(!keeps(end(ESTABLISHED, 10, 20), end(ESTABLISHED, 20, 9)));
        assert!(keeps(end(FIN_WAIT2, 10, 20), end(CLOSE_WAIT, 20, 11)));
        assert!(!keeps(end(SYN_SENT, 0, 0), end(ESTABLISHED, 0, 0)));
        let stuck = Info { unsent: 1, ..end(ESTABLISHED, 10, 20) };
        assert!(!keeps(stuck, end(ESTABLISHED, 20, 10)));
    }
}
