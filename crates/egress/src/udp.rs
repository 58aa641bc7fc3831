//! UDP flows: between one port of the machine and one outside, each with a host socket that
//! receives from that peer only.
//!
//! Questions for the resolver are an ordinary flow to one of the host's resolvers; if one does not
//! answer, the next is used. When there are too many flows, the least recently used one is removed.
//! Datagrams may be lost.

use crate::MTU;
use crate::budget::SocketPermit;
use crate::device::Device;
use crate::guard::Guard;
use crate::packet::{self, Endpoints};
use crate::resolvers;
use crate::traffic::RelayTraffic;
use smoltcp::wire::Icmpv4DstUnreachable;
use stasis_policy::reach::Protocol;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Flows of one machine.
pub const MOST: usize = 128;
/// The longest a flow may be idle.
const IDLE: Duration = Duration::from_secs(60);
const IDLE_QUESTION: Duration = Duration::from_secs(15);
/// A resolver that has not answered for this long is left for the next.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum datagrams read from one socket before others.
const AT_ONCE: usize = 64;
/// Size of an IP and a UDP header.
const HEADERS: usize = 28;

#[derive(Default)]
pub struct Udp {
    flows: HashMap<Endpoints, Flow>,
}

struct Flow {
    socket: UdpSocket,
    used: Instant,
    /// The name that its address was resolved from.
    name: Option<String>,
    /// State of a flow of questions.
    asking: Option<Asking>,
    _room: SocketPermit,
}

struct Asking {
    resolvers: Vec<SocketAddr>,
    at: usize,
    /// Since when there is no answer.
    unanswered: Option<Instant>,
}

impl Udp {
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Endpoints)> {
        self.flows.iter().map(|(ends, flow)| (flow.socket.as_fd(), *ends))
    }

    /// Sends a datagram on its flow, if it has one.
    pub fn send(&mut self, ends: &Endpoints, payload: &[u8], traffic: &mut RelayTraffic) -> bool {
        let Some(flow) = self.flows.get_mut(ends) else { return false };
        if !traffic.has_room() {
            return true;
        }
        traffic.count(payload.len());
        flow.used = Instant::now();
        if let Some(asking) = &mut flow.asking
            && let Some(socket) = asking.next_if_silent()
        {
            flow.socket = socket;
        }
        let _ = flow.socket.send(payload);
        true
    }

    /// Begins a flow to an address outside.
    pub fn begin(
        &mut self,
        ends: Endpoints,
        to: SocketAddr,
        name: Option<String>,
    ) -> io::Result<()> {
        let socket = connected(to)?;
        self.add(ends, socket, name, None)
    }

    /// Begins a flow of questions to the resolvers named in a file.
    pub fn begin_asking(&mut self, ends: Endpoints, resolv_conf: &Path) -> io::Result<()> {
        let resolvers = resolvers::read(resolv_conf);
        let first = *resolvers.first().ok_or(io::ErrorKind::NotFound)?;
        let asking = Asking { resolvers, at: 0, unanswered: None };
        self.add(ends, connected(first)?, None, Some(asking))
    }

    fn add(
        &mut self,
        ends: Endpoints,
        socket: UdpSocket,
        name: Option<String>,
        asking: Option<Asking>,
    ) -> io::Result<()> {
        if self.flows.len() >= MOST {
            let oldest = self.flows.iter().min_by_key(|(_, flow)| flow.used);
            if let Some(oldest) = oldest.map(|(ends, _)| *ends) {
                self.flows.remove(&oldest);
            }
        }
        let room = SocketPermit::take().ok_or(io::ErrorKind::QuotaExceeded)?;
        let used = Instant::now();
        self.flows.insert(ends, Flow { socket, used, name, asking, _room: room });
        Ok(())
    }

    /// Passes received datagrams to the machine.
    pub fn receive(
        &mut self,
        ends: &Endpoints,
        buffer: &mut [u8],
        traffic: &mut RelayTraffic,
        device: &mut Device,
    ) {
        let Some(flow) = self.flows.get_mut(ends) else { return };
        let room = buffer.len().min(MTU as usize - HEADERS);
        for _ in 0..AT_ONCE {
            // an error is that of a datagram sent before, and taken by being read
            let Ok(len) = flow.socket.recv(&mut buffer[..room]) else { return };
            flow.used = Instant::now();
            if let Some(asking) = &mut flow.asking {
                asking.unanswered = None;
            }
            // beyond the rate it is lost, as on any link
            if traffic.has_room() {
                traffic.count(len);
                device.write(&packet::datagram(ends, &buffer[..len]));
            }
        }
    }

    /// Ends flows that are not allowed any more.
    pub fn judge_again(&mut self, guard: &mut Guard) {
        self.flows.retain(|ends, flow| {
            let name = flow.name.as_deref();
            flow.asking.is_some() || guard.still(name, ends.outside, Protocol::Udp)
        });
    }

    /// Ends unused flows.
    pub fn sweep(&mut self) {
        let now = Instant::now();
        self.flows.retain(|_, flow| {
            let most = if flow.asking.is_some() { IDLE_QUESTION } else { IDLE };
            now.duration_since(flow.used) < most
        });
    }
}

impl Asking {
    /// A socket to the next resolver, when this one has been silent.
    fn next_if_silent(&mut self) -> Option<UdpSocket> {
        let since = *self.unanswered.get_or_insert_with(Instant::now);
        if since.elapsed() < PATIENCE || self.resolvers.len() < 2 {
            return None;
        }
        self.at = (self.at + 1) % self.resolvers.len();
        self.unanswered = Some(Instant::now());
        connected(self.resolvers[self.at]).ok()
    }
}

pub fn connected(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Reports an undeliverable datagram to the machine.
pub fn refuse(ends: &Endpoints, packet: &[u8], device: &mut Device) {
    let reason = Icmpv4DstUnreachable::PortUnreachable;
    if let Some(answer) = packet::unreachable(ends, packet, reason) {
        device.write(&answer);
    }
}
