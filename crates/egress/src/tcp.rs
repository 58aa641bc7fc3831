//! Connections: the machine's end is smoltcp's, the other a socket of the host.
//!
//!   SYN ─► verdict ─► connect outside ─┬─ connected ─► SYN is answered ─► bytes go both ways
//!            │                         └─ failed ─┐
//!            └─ refused ──────────────────────────┴─► reset
//!
//! A SYN is answered only when the connection outside is there, so a closed port looks closed to
//! the machine. Bytes go from one socket's buffer straight into the other's; when one side is slow,
//! the other is not read. Under a policy, the first bytes of a machine wait until it is known
//! whether they are TLS, and for which name. The other direction waits only where requests are
//! read: then the socket goes to `intercept`, and a pair of sockets leads there.

use crate::MTU;
use crate::budget::SocketPermit;
use crate::connection::{Connection, ConnectionTarget};
use crate::device::Device;
use crate::guard::{AllowedTarget, Guard};
use crate::other_side::OtherSide;
use crate::packet::Endpoints;
use crate::traffic::RelayTraffic;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{HardwareAddress, IpCidr, IpListenEndpoint};
use stasis_sys::{memory, net};
use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Maximum connections of one machine, including pending ones.
pub const MOST: usize = 256;
/// Bytes of a connection under way in each direction.
const BUFFER: usize = 256 << 10;
/// The longest a connection outside may take to be made.
const CONNECT: Duration = Duration::from_secs(30);
/// Maximum idle time of a connection, and of one that one side has closed.
const IDLE: Duration = Duration::from_secs(3600);
const IDLE_ENDING: Duration = Duration::from_secs(300);
/// A connection that has been idle for this long gives its memory back.
const AT_REST: Duration = Duration::from_secs(5);
/// Bytes that a connection may pass in one turn, however many there are.
const LEAST_SHARE: usize = 2048;

/// Readiness of a host socket.
#[derive(Debug, Clone, Copy)]
pub struct SocketReadiness {
    pub ends: Endpoints,
    pub readable: bool,
}

/// Events to wait for on a host socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketInterest {
    pub read: bool,
    pub write: bool,
}

pub struct Tcp {
    interface: Interface,
    sockets: SocketSet<'static>,
    opening: HashMap<Endpoints, Opening>,
    open: HashMap<Endpoints, Connection>,
    began: Instant,
}

/// A pending outside connection, and the packet that requested it.
struct Opening {
    host: TcpStream,
    syn: Vec<u8>,
    until: Instant,
    target: Option<ConnectionTarget>,
    room: SocketPermit,
}

impl Tcp {
    pub fn new(device: &mut Device) -> Tcp {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed();
        let mut interface = Interface::new(config, &mut device.with(None), StackInstant::ZERO);
        // it answers for the whole world
        interface.set_any_ip(true);
        interface.update_ip_addrs(|own| {
            let _ = own.push(IpCidr::new(crate::RESOLVER.into(), 0));
        });
        Tcp {
            interface,
            sockets: SocketSet::new(Vec::new()),
            opening: HashMap::new(),
            open: HashMap::new(),
            began: Instant::now(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.opening.is_empty() && self.open.is_empty()
    }

    fn now(&self) -> StackInstant {
        StackInstant::from_micros(self.began.elapsed().as_micros() as i64)
    }

    /// Whether the first packet of a connection begins a new one.
    pub fn is_new(&self, ends: &Endpoints) -> bool {
        !self.opening.contains_key(ends) && !self.open.contains_key(ends)
    }

    /// Begins to make a connection for the machine; its first packet is answered later.
    pub fn begin(&mut self, ends: Endpoints, to: SocketAddr, syn: &[u8], device: &mut Device) {
        self.begin_to(ends, to, None, syn, device);
    }

    /// Connections of the machine, including pending ones.
    pub fn count(&self) -> usize {
        self.opening.len() + self.open.len()
    }

    /// The same under a policy, which identifies the address by a name or as an address.
    pub fn begin_judged(
        &mut self,
        ends: Endpoints,
        to: SocketAddr,
        allowed: AllowedTarget,
        syn: &[u8],
        device: &mut Device,
    ) {
        let target = ConnectionTarget { allowed, is_seen: false };
        self.begin_to(ends, to, Some(target), syn, device);
    }

    fn begin_to(
        &mut self,
        ends: Endpoints,
        to: SocketAddr,
        target: Option<ConnectionTarget>,
        syn: &[u8],
        device: &mut Device,
    ) {
        let full = self.count() >= MOST;
        let room = if full { None } else { SocketPermit::take() };
        match room.map(|room| net::begin_connect(to).map(|host| (host, room))) {
            Some(Ok((host, room))) => {
                let until = Instant::now() + CONNECT;
                let syn = syn.to_vec();
                self.opening.insert(ends, Opening { host, syn, until, target, room });
            }
            _ => self.pass(syn, device),
        }
    }

    /// Hands a packet to the stack, which answers it with a reset if it belongs to nothing.
    pub fn pass(&mut self, packet: &[u8], device: &mut Device) {
        let now = self.now();
        let mut arrival = device.with(Some(packet));
        self.interface.poll_ingress_single(now, &mut arrival, &mut self.sockets);
    }

    /// A packet of a connection; packets of a pending one are repeated by the sender.
    pub fn segment(&mut self, packet: &[u8], device: &mut Device) {
        self.pass(packet, device);
    }

    /// Events to wait for, outside. Bytes that may not pass now are not waited for.
    pub fn interests(
        &self,
        may_pass: bool,
    ) -> impl Iterator<Item = (BorrowedFd<'_>, Endpoints, SocketInterest)> {
        let opening = self.opening.iter().map(|(ends, one)| {
            (one.host.as_fd(), *ends, SocketInterest { read: false, write: true })
        });
        let open = self.open.iter().filter_map(move |(ends, one)| {
            let socket = self.sockets.get::<Socket>(one.handle);
            let interest = SocketInterest {
                read: may_pass && !one.host_done && socket.can_send() && !one.is_held(),
                write: may_pass && socket.can_recv() && !one.waits(),
            };
            (interest.read || interest.write).then(|| (one.host.as_fd(), *ends, interest))
        });
        opening.chain(open)
    }

    /// Time until the next scheduled work.
    pub fn rest(&mut self) -> Option<Duration> {
        let now = self.now();
        self.interface.poll_delay(now, &self.sockets).map(Duration::from)
    }

    /// Copies available data, and sends the machine its packets.
    pub fn turn(
        &mut self,
        ready: &[SocketReadiness],
        guard: &mut Guard,
        traffic: &mut RelayTraffic,
        device: &mut Device,
    ) {
        // one connection does not take what all of them may have
        let share = (traffic.room() / self.open.len().max(1)).max(LEAST_SHARE);
        for one in ready {
            if let Some(opening) = self.opening.remove(&one.ends) {
                self.settle(one.ends, opening, device);
            } else if let Some(connection) = self.open.get_mut(&one.ends)
                && one.readable
            {
                connection.take_in(self.sockets.get_mut(connection.handle), share, traffic);
            }
        }
        for (ends, connection) in &mut self.open {
            let socket = self.sockets.get_mut(connection.handle);
            if !connection.waits() || connection.see_first(ends, socket, guard) {
                connection.give_out(socket, share, traffic);
            }
        }
        self.flush(device);
        self.remove_ended();
    }

    /// A connection outside is made, or is not.
    fn settle(&mut self, ends: Endpoints, opening: Opening, device: &mut Device) {
        let Opening { host, syn, room, target, .. } = opening;
        let made = host.take_error().is_ok_and(|error| error.is_none());
        // small pieces are not held back a second time
        let connected = made && host.set_nodelay(true).is_ok();
        let handle = if connected { self.listen(&ends) } else { None };
        self.pass(&syn, device);
        let (Some(handle), host) = (handle, OtherSide::Outside(host)) else { return };
        self.open.insert(ends, Connection::new(handle, host, target, room));
    }

    /// A socket that takes the connection whose first packet comes next.
    fn listen(&mut self, ends: &Endpoints) -> Option<SocketHandle> {
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        let (addr, port) = (Some((*ends.outside.ip()).into()), ends.outside.port());
        socket.listen(IpListenEndpoint { addr, port }).ok()?;
        Some(self.sockets.add(socket))
    }

    fn flush(&mut self, device: &mut Device) {
        // as many rounds as a full buffer has packets, plus one
        for _ in 0..=BUFFER / MTU as usize + 1 {
            let now = self.now();
            let sent = self.interface.poll_egress(now, &mut device.with(None), &mut self.sockets);
            if sent == smoltcp::iface::PollResult::None {
                return;
            }
        }
    }

    fn remove_ended(&mut self) {
        let sockets = &mut self.sockets;
        self.open.retain(|_, one| {
            let state = sockets.get::<Socket>(one.handle).state();
            // a listener got no first packet; the others have sent everything
            let over = matches!(state, State::Closed | State::TimeWait | State::Listen);
            if over {
                sockets.remove(one.handle);
            }
            !over
        });
    }

    /// Resets all connections.
    pub fn reset_all(&mut self, device: &mut Device) {
        for one in self.open.values() {
            self.sockets.get_mut::<Socket>(one.handle).abort();
        }
        for (_, opening) in std::mem::take(&mut self.opening) {
            self.pass(&opening.syn, device);
        }
        self.flush(device);
        self.remove_ended();
    }

    /// Ends connections that are no longer allowed.
    pub fn judge_again(&mut self, guard: &mut Guard, device: &mut Device) {
        let mut allowed = |ends: &Endpoints, target: &Option<ConnectionTarget>| {
            let judged =
                |target: &ConnectionTarget| guard.still_connected(&target.allowed, ends.outside);
            target.as_ref().is_none_or(judged)
        };
        for (ends, one) in &self.open {
            if !allowed(ends, &one.target) {
                self.sockets.get_mut::<Socket>(one.handle).abort();
            }
        }
        let refused = self.opening.extract_if(|ends, one| !allowed(ends, &one.target));
        for (_, opening) in refused.collect::<Vec<_>>() {
            self.pass(&opening.syn, device);
        }
    }

    /// Ends connections that exceeded a time limit, and gives back the memory of idle ones.
    pub fn sweep(&mut self, device: &mut Device) {
        let now = Instant::now();
        let late: Vec<Endpoints> = self
            .opening
            .iter()
            .filter(|(_, one)| one.until <= now)
            .map(|(ends, _)| *ends)
            .collect();
        for opening in late.iter().filter_map(|ends| self.opening.remove(ends)).collect::<Vec<_>>()
        {
            self.pass(&opening.syn, device);
        }
        for one in self.open.values_mut() {
            let most = if one.host_done || one.machine_done { IDLE_ENDING } else { IDLE };
            let (idle, socket) =
                (now.duration_since(one.used), self.sockets.get_mut::<Socket>(one.handle));
            if idle >= most {
                Socket::abort(socket);
            } else if idle >= AT_REST {
                one.rest(socket);
            }
        }
    }
}

/// Room for the bytes of one direction. Only what is written of it costs memory, also where the
/// allocator hands out pages that were in use before.
fn buffer() -> SocketBuffer<'static> {
    let mut room = vec![0; BUFFER];
    let _ = memory::give_back(&mut room);
    SocketBuffer::new(room)
}

/// The first sequence number, which must be unguessable.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
