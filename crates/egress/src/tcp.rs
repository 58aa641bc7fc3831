//! Connections: the machine's end is smoltcp's, the other a socket of the host.
//!
//!   SYN ─► verdict ─► connect outside ─┬─ connected ─► SYN is answered ─► bytes go both ways
//!            │                         └─ failed ─┐
//!            └─ refused ──────────────────────────┴─► reset
//!
//! A SYN is answered only when the connection outside is there, so a machine sees a port that
//! nobody listens on as what it is. Bytes go from one socket's buffer straight into the other's;
//! when one side is slow, the other is not read.

use crate::MTU;
use crate::budget::Room;
use crate::device::Device;
use crate::packet::Ends;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{HardwareAddress, IpCidr, IpListenEndpoint};
use stasis_sys::net;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Connections of one machine, those that are being made included.
pub const MOST: usize = 256;
/// Bytes of a connection under way in each direction.
const BUFFER: usize = 256 << 10;
/// The longest a connection outside may take to be made.
const CONNECT: Duration = Duration::from_secs(30);
/// The longest nothing may pass on a connection, and on one that one side has ended.
const IDLE: Duration = Duration::from_secs(3600);
const IDLE_ENDING: Duration = Duration::from_secs(300);

/// What a socket of the host is ready for.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    pub ends: Ends,
    pub readable: bool,
}

/// What to wait for on a socket of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    pub read: bool,
    pub write: bool,
}

pub struct Tcp {
    interface: Interface,
    sockets: SocketSet<'static>,
    opening: HashMap<Ends, Opening>,
    open: HashMap<Ends, Connection>,
    began: Instant,
}

/// A connection outside that is being made, and the packet that asked for it.
struct Opening {
    host: TcpStream,
    syn: Vec<u8>,
    until: Instant,
    room: Room,
}

struct Connection {
    handle: SocketHandle,
    host: TcpStream,
    used: Instant,
    /// The side outside has said that it sends no more.
    host_done: bool,
    /// The machine has, and that was told outside.
    machine_done: bool,
    _room: Room,
}

impl Tcp {
    pub fn new(device: &mut Device) -> Tcp {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed();
        let mut interface = Interface::new(config, device, StackInstant::ZERO);
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

    /// Whether the first packet of a connection begins one that is not known yet.
    pub fn is_new(&self, ends: &Ends) -> bool {
        !self.opening.contains_key(ends) && !self.open.contains_key(ends)
    }

    /// Begins to make a connection for the machine; its first packet is answered later.
    pub fn begin(&mut self, ends: Ends, to: SocketAddr, syn: &[u8], device: &mut Device) {
        let full = self.opening.len() + self.open.len() >= MOST;
        let room = if full { None } else { Room::take() };
        match room.map(|room| net::begin_connect(to).map(|host| (host, room))) {
            Some(Ok((host, room))) => {
                let until = Instant::now() + CONNECT;
                self.opening.insert(ends, Opening { host, syn: syn.to_vec(), until, room });
            }
            _ => self.pass(syn, device),
        }
    }

    /// Hands a packet to the stack, which answers it with a reset if it belongs to nothing.
    pub fn pass(&mut self, packet: &[u8], device: &mut Device) {
        device.hand(packet);
        let now = self.now();
        self.interface.poll_ingress_single(now, device, &mut self.sockets);
    }

    /// A packet of a connection; those of one that is being made come again.
    pub fn segment(&mut self, packet: &[u8], device: &mut Device) {
        self.pass(packet, device);
    }

    /// What to wait for, outside.
    pub fn wishes(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Ends, Wish)> {
        let opening = self
            .opening
            .iter()
            .map(|(ends, one)| (one.host.as_fd(), *ends, Wish { read: false, write: true }));
        let open = self.open.iter().filter_map(|(ends, one)| {
            let socket = self.sockets.get::<Socket>(one.handle);
            let wish = Wish { read: !one.host_done && socket.can_send(), write: socket.can_recv() };
            (wish.read || wish.write).then(|| (one.host.as_fd(), *ends, wish))
        });
        opening.chain(open)
    }

    /// How long nothing has to be done unless something comes.
    pub fn rest(&mut self) -> Option<Duration> {
        let now = self.now();
        self.interface.poll_delay(now, &self.sockets).map(Duration::from)
    }

    /// Moves what can be moved, and sends the machine what it is to get.
    pub fn turn(&mut self, ready: &[Ready], device: &mut Device) {
        for one in ready {
            if let Some(opening) = self.opening.remove(&one.ends) {
                self.settle(one.ends, opening, device);
            } else if let Some(connection) = self.open.get_mut(&one.ends)
                && one.readable
            {
                connection.take_in(self.sockets.get_mut(connection.handle));
            }
        }
        for connection in self.open.values_mut() {
            connection.give_out(self.sockets.get_mut(connection.handle));
        }
        self.flush(device);
        self.remove_ended();
    }

    /// A connection outside is made, or is not.
    fn settle(&mut self, ends: Ends, opening: Opening, device: &mut Device) {
        let Opening { host, syn, room, .. } = opening;
        let made = host.take_error().is_ok_and(|error| error.is_none());
        // small pieces are not held back a second time
        let connected = made && host.set_nodelay(true).is_ok();
        let handle = if connected { self.listen(&ends) } else { None };
        self.pass(&syn, device);
        let Some(handle) = handle else { return };
        let (used, host_done, machine_done) = (Instant::now(), false, false);
        let connection = Connection { handle, host, used, host_done, machine_done, _room: room };
        self.open.insert(ends, connection);
    }

    /// A socket that takes the connection whose first packet comes next.
    fn listen(&mut self, ends: &Ends) -> Option<SocketHandle> {
        let buffer = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        let (addr, port) = (Some((*ends.outside.ip()).into()), ends.outside.port());
        socket.listen(IpListenEndpoint { addr, port }).ok()?;
        Some(self.sockets.add(socket))
    }

    fn flush(&mut self, device: &mut Device) {
        // as many rounds as a full buffer has packets, and one for what follows
        for _ in 0..=BUFFER / MTU as usize + 1 {
            let now = self.now();
            let sent = self.interface.poll_egress(now, device, &mut self.sockets);
            if sent == smoltcp::iface::PollResult::None {
                return;
            }
        }
    }

    fn remove_ended(&mut self) {
        let sockets = &mut self.sockets;
        self.open.retain(|_, one| {
            let state = sockets.get::<Socket>(one.handle).state();
            // a listener heard no first packet; the others have said all they will
            let over = matches!(state, State::Closed | State::TimeWait | State::Listen);
            if over {
                sockets.remove(one.handle);
            }
            !over
        });
    }

    /// Ends what takes too long.
    pub fn sweep(&mut self, device: &mut Device) {
        let now = Instant::now();
        let late: Vec<Ends> = self
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
            if now.duration_since(one.used) >= most {
                self.sockets.get_mut::<Socket>(one.handle).abort();
            }
        }
    }
}

impl Connection {
    /// From outside to the machine.
    fn take_in(&mut self, socket: &mut Socket) {
        while !self.host_done && socket.can_send() {
            let host = &mut self.host;
            let read = socket.send(|room| match host.read(room) {
                Ok(len) => (len, Ok(len)),
                Err(error) => (0, Err(error)),
            });
            match read {
                Ok(Ok(0)) => {
                    self.host_done = true;
                    socket.close();
                }
                Ok(Ok(_)) => self.used = Instant::now(),
                Ok(Err(error)) if is_for_later(&error) => return,
                Ok(Err(_)) | Err(_) => return socket.abort(),
            }
        }
    }

    /// From the machine to outside.
    fn give_out(&mut self, socket: &mut Socket) {
        while socket.can_recv() {
            let host = &mut self.host;
            let written = socket.recv(|data| match host.write(data) {
                Ok(len) => (len, Ok(())),
                Err(error) => (0, Err(error)),
            });
            match written {
                Ok(Ok(())) => self.used = Instant::now(),
                Ok(Err(error)) if is_for_later(&error) => return,
                Ok(Err(_)) | Err(_) => return socket.abort(),
            }
        }
        let ended = matches!(
            socket.state(),
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait
        );
        if ended && !self.machine_done {
            self.machine_done = true;
            let _ = self.host.shutdown(Shutdown::Write);
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Where sequence numbers begin, which nobody should guess.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
