//! TCP and UDP sockets.
//!
//! A kept connection is made again between the same addresses and filled from both sides. An ended
//! one is made with a temporary listener, filled, and ended from the other side, with a reset or
//! without.

use super::plan::Planner;
use crate::error::{Error, Result};
use stasis_image::model::*;
use stasis_spawner::socket_plan::{SocketPath, SocketStep};
use stasis_sys::libc;
use std::net::{Ipv4Addr, Ipv6Addr};

pub fn plan(planner: &mut Planner) -> Result<()> {
    let all: Vec<(u32, &Socket)> = planner
        .sockets
        .iter()
        .filter(|(_, own)| own.family != libc::AF_UNIX)
        .map(|(slot, own)| (*slot, *own))
        .collect();
    for (slot, own) in &all {
        match own.state {
            SocketState::Connected { peer } => connect(planner, &all, *slot, own, peer)?,
            SocketState::Ended(ending) => ended(planner, *slot, own, ending)?,
            _ => {}
        }
    }
    for (slot, own) in &all {
        single(planner, *slot, own);
    }
    for (slot, own) in &all {
        if own.kind == libc::SOCK_DGRAM {
            datagrams(planner, &all, *slot, own);
        }
    }
    for (slot, own) in &all {
        if let SocketState::Addressed { remote } = &own.state {
            // where the network it led to is missing, it stays unconnected
            planner.may(SocketStep::Connect { slot: *slot, address: remote.clone() });
        }
    }
    Ok(())
}

/// A new socket at its address, which others of the image may share.
fn at_address(planner: &mut Planner, slot: u32, own: &Socket) {
    planner.new_like(slot, own);
    if own.kind == libc::SOCK_STREAM {
        planner.set_for_now(slot, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    }
    planner.early_options(slot, own);
    match address_of(&own.local) {
        Some(ip) if !ip.is_unspecified() && !is_loopback(ip) => {
            // its network may be missing here
            planner.set_for_now(slot, libc::IPPROTO_IP, libc::IP_FREEBIND, 1);
        }
        _ => {}
    }
    planner.bind(slot, own);
}

/// Both ends of a connection, when `slot` is the first of them.
fn connect(
    planner: &mut Planner,
    all: &[(u32, &Socket)],
    slot: u32,
    own: &Socket,
    peer: u32,
) -> Result<()> {
    let other = planner.get(peer)?;
    let agrees = matches!(other.state, SocketState::Connected { peer } if peer == slot);
    if !agrees || slot == peer || !is_stream(own) || !is_stream(other) {
        return Err(Error::Unfit(format!("sockets {slot} and {peer} are not connected")));
    }
    if slot > peer {
        return Ok(());
    }
    let listens = |port: Option<u16>| {
        let at_port = |listener: &Socket| port_of(&listener.local) == port;
        all.iter()
            .any(|(_, own)| matches!(own.state, SocketState::Listening { .. }) && at_port(own))
    };
    // the end at a listener's port was accepted there; between others it does not show
    let (server, client) = if listens(port_of(&other.local)) { (peer, slot) } else { (slot, peer) };
    between(planner, server, client)?;
    for (from, to) in [(slot, peer), (peer, slot)] {
        let queue = &planner.get(to)?.queue;
        planner.fill(from, queue);
    }
    Ok(())
}

fn between(planner: &mut Planner, server: u32, client: u32) -> Result<()> {
    let (own, other) = (planner.get(server)?, planner.get(client)?);
    let listener = planner.temporary();
    at_address(planner, listener, own);
    planner.must(SocketStep::Listen { slot: listener, backlog: 1 });
    at_address(planner, client, other);
    let address = in_family(&own.local, other.family)
        .ok_or_else(|| Error::Unfit(format!("socket {server} has no address")))?;
    planner.must(SocketStep::Connect { slot: client, address });
    planner.must(SocketStep::Accept { slot: server, listener });
    planner.must(SocketStep::Close { slot: listener });
    // it has this from the passing listener
    planner.set_for_now(server, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    planner.early_options(server, own);
    Ok(())
}

fn is_stream(own: &Socket) -> bool {
    own.family != libc::AF_UNIX && own.kind == libc::SOCK_STREAM
}

/// A connection that has ended, or cannot come back.
fn ended(planner: &mut Planner, slot: u32, own: &Socket, ending: Ending) -> Result<()> {
    if !is_stream(own) {
        return Err(Error::Unfit(format!("socket {slot} cannot have ended")));
    }
    let (listener, other) = (planner.temporary(), planner.temporary());
    let (family, kind, protocol) = (own.family, libc::SOCK_STREAM, libc::IPPROTO_TCP);
    planner.must(SocketStep::New { slot: listener, family, kind, protocol });
    let address = loopback(family, &own.local);
    planner.must(SocketStep::Bind { slot: listener, address, place: SocketPath::Nowhere });
    planner.must(SocketStep::Listen { slot: listener, backlog: 1 });
    planner.must(SocketStep::New { slot, family, kind, protocol });
    planner.set_for_now(slot, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    planner.early_options(slot, own);
    if address_of(&own.local).is_some_and(is_loopback) {
        let (address, place) = (own.local.clone(), SocketPath::Nowhere);
        planner.may(SocketStep::Bind { slot, address, place });
    }
    planner.must(SocketStep::ConnectTo { slot, to: listener });
    planner.must(SocketStep::Accept { slot: other, listener });
    planner.must(SocketStep::Close { slot: listener });
    for message in &own.queue {
        // more than fits is lost with the reset, as it may be
        planner.may(SocketStep::Send { slot: other, data: message.data.clone() });
    }
    if ending != Ending::Finished {
        let value = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
        let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
        planner.must(SocketStep::Option { slot: other, level, name, value });
    }
    planner.must(SocketStep::Close { slot: other });
    if ending == Ending::Closed {
        planner.must(SocketStep::ClearError { slot });
    }
    Ok(())
}

fn single(planner: &mut Planner, slot: u32, own: &Socket) {
    match own.state {
        SocketState::Unconnected | SocketState::Addressed { .. } => at_address(planner, slot, own),
        SocketState::Listening { backlog, .. } => {
            at_address(planner, slot, own);
            planner.must(SocketStep::Listen { slot, backlog });
        }
        _ => {}
    }
}

/// Datagrams that had arrived, from their senders' addresses. They may be lost by right.
fn datagrams(planner: &mut Planner, all: &[(u32, &Socket)], slot: u32, own: &Socket) {
    for message in &own.queue {
        let same = |other: &&(u32, &Socket)| {
            other.1.kind == libc::SOCK_DGRAM && other.1.local == message.from
        };
        let data = message.data.clone();
        if let Some((sender, _)) = all.iter().find(same) {
            planner.may(SocketStep::SendTo { slot: *sender, data, to: slot });
            continue;
        }
        let sender = planner.temporary();
        planner.new_like(sender, own);
        let (address, place) = (message.from.clone(), SocketPath::Nowhere);
        planner.may(SocketStep::Bind { slot: sender, address, place });
        planner.may(SocketStep::SendTo { slot: sender, data, to: slot });
        planner.must(SocketStep::Close { slot: sender });
    }
}

fn port_of(raw: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(raw.get(2..4)?.try_into().ok()?))
}

/// The address in a sockaddr; IPv4 as IPv6 has it.
fn address_of(raw: &[u8]) -> Option<Ipv6Addr> {
    let family = u16::from_ne_bytes(raw.get(..2)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = raw.get(4..8)?.try_into().ok()?;
            let ip = Ipv4Addr::from(ip);
            Some(if ip.is_unspecified() { Ipv6Addr::UNSPECIFIED } else { ip.to_ipv6_mapped() })
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = raw.get(8..24)?.try_into().ok()?;
            Some(ip.into())
        }
        _ => None,
    }
}

fn is_loopback(ip: Ipv6Addr) -> bool {
    ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
}

fn sockaddr(family: i32, ip: Ipv6Addr, port: u16) -> Option<Vec<u8>> {
    let mut raw = (family as u16).to_ne_bytes().to_vec();
    raw.extend(port.to_be_bytes());
    if family == libc::AF_INET {
        raw.extend(ip.to_ipv4_mapped()?.octets());
        raw.extend([0; 8]);
    } else {
        raw.extend([0; 4]);
        raw.extend(ip.octets());
        raw.extend([0; 4]);
    }
    Some(raw)
}

/// The same address as a socket of `family` writes it.
fn in_family(raw: &[u8], family: i32) -> Option<Vec<u8>> {
    let own = u16::from_ne_bytes(raw.get(..2)?.try_into().ok()?);
    if i32::from(own) == family {
        return Some(raw.to_vec());
    }
    sockaddr(family, address_of(raw)?, port_of(raw)?)
}

/// Any port on the loopback address that a socket bound at `local` can reach.
fn loopback(family: i32, local: &[u8]) -> Vec<u8> {
    let mapped = address_of(local).is_some_and(|ip| ip.to_ipv4_mapped().is_some());
    let four = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    let ip = if family == libc::AF_INET || mapped { four } else { Ipv6Addr::LOCALHOST };
    sockaddr(family, ip, 0).expect("an IPv4 address is mapped")
}
