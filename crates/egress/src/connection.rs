//! One connection of a machine: bytes go from one socket's buffer straight into the other's.
//!
//! When one side is slow, the other is not read. When the machine's rate is used up, neither is.

use crate::budget::SocketPermit;
use crate::guard::{AllowedTarget, Guard};
use crate::hello::{self, FirstBytes};
use crate::other_side::OtherSide;
use crate::packet::Endpoints;
use crate::traffic::RelayTraffic;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, State};
use stasis_sys::memory;
use std::io::{self, Read, Write};
use std::time::Instant;

/// The data that a policy judges a connection by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionTarget {
    pub allowed: AllowedTarget,
    /// Whether the first bytes of the machine have been seen and allowed.
    pub is_seen: bool,
}

pub struct Connection {
    pub handle: SocketHandle,
    pub host: OtherSide,
    pub used: Instant,
    /// The outside has shut down its sending side.
    pub host_done: bool,
    /// The machine has, and that was passed on.
    pub machine_done: bool,
    /// Something came from outside.
    pub took_in: bool,
    pub target: Option<ConnectionTarget>,
    /// Its buffer to the machine has not been written since its memory was given back.
    is_at_rest: bool,
    _room: SocketPermit,
}

impl Connection {
    pub fn new(
        handle: SocketHandle,
        host: OtherSide,
        target: Option<ConnectionTarget>,
        room: SocketPermit,
    ) -> Connection {
        let (used, host_done, machine_done) = (Instant::now(), false, false);
        let (took_in, is_at_rest, _room) = (false, true, room);
        Connection {
            handle,
            host,
            used,
            host_done,
            machine_done,
            took_in,
            target,
            is_at_rest,
            _room,
        }
    }

    /// Gives back the memory of the buffer to the machine, if everything in it has arrived.
    pub fn rest(&mut self, socket: &mut Socket) {
        if self.is_at_rest || socket.send_queue() > 0 {
            return;
        }
        // a buffer without bytes begins at its first page again
        let _ = socket.send(|room| (0, memory::give_back(room)));
        self.is_at_rest = true;
    }

    /// From outside to the machine.
    pub fn take_in(&mut self, socket: &mut Socket, share: usize, traffic: &mut RelayTraffic) {
        let mut left = share.min(traffic.room());
        while !self.host_done && socket.can_send() && !self.is_held() && left > 0 {
            let host = &mut self.host;
            let read = socket.send(|room| {
                let most = room.len().min(left);
                match host.read(&mut room[..most]) {
                    Ok(len) => (len, Ok(len)),
                    Err(error) => (0, Err(error)),
                }
            });
            match read {
                Ok(Ok(0)) => {
                    self.host_done = true;
                    socket.close();
                }
                Ok(Ok(taken)) => {
                    left -= taken;
                    traffic.count(taken);
                    self.took_in = true;
                    self.is_at_rest = false;
                    self.used = Instant::now();
                }
                Ok(Err(error)) if is_for_later(&error) => return,
                Ok(Err(_)) | Err(_) => return socket.abort(),
            }
        }
    }

    /// Whether the machine's data is held back, because its protocol is not known yet.
    pub fn waits(&self) -> bool {
        self.target.as_ref().is_some_and(|target| !target.is_seen)
    }

    /// Whether bytes from outside are held back too: the reader of requests may need them.
    pub fn is_held(&self) -> bool {
        self.target.as_ref().is_some_and(|target| !target.is_seen && target.allowed.is_read)
    }

    /// Looks at what the machine sent first: whether it may be passed on, now.
    pub fn see_first(&mut self, ends: &Endpoints, socket: &mut Socket, guard: &mut Guard) -> bool {
        let Some(target) = &mut self.target else { return true };
        let ended = has_ended(socket);
        let first = socket.peek(hello::LONGEST).map_or(FirstBytes::Incomplete, hello::look);
        let nothing = !socket.can_recv();
        match first {
            // it ends without having sent anything
            FirstBytes::Incomplete if nothing || !ended => return nothing && ended,
            first => {
                let is_tls = matches!(first, FirstBytes::Tls(_));
                let known = target.allowed.name.as_deref();
                match guard.first_bytes(known, ends.outside, first) {
                    Some(allowed) => {
                        let target = ConnectionTarget { allowed, is_seen: true };
                        if self.read_requests(&target, ends, guard, is_tls) {
                            self.target = Some(target);
                            return true;
                        }
                        socket.abort();
                    }
                    None => socket.abort(),
                }
            }
        }
        false
    }

    /// Has the requests of the connection read, if a rule needs that. Not, if that cannot be done.
    fn read_requests(
        &mut self,
        target: &ConnectionTarget,
        ends: &Endpoints,
        guard: &Guard,
        is_tls: bool,
    ) -> bool {
        if !target.allowed.is_read {
            return true;
        }
        // a server that spoke first spoke to the machine, not to what reads its requests
        let OtherSide::Outside(outside) = &self.host else { return false };
        let Ok(outside) = outside.try_clone().and_then(|outside| match self.took_in {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => Ok(outside),
        }) else {
            return false;
        };
        match guard.read_requests(&target.allowed, ends.outside, is_tls, outside) {
            Some(reader) => {
                self.host = OtherSide::Reader(reader);
                true
            }
            None => false,
        }
    }

    /// From the machine to outside.
    pub fn give_out(&mut self, socket: &mut Socket, share: usize, traffic: &mut RelayTraffic) {
        let mut left = share.min(traffic.room());
        while socket.can_recv() && left > 0 {
            let host = &mut self.host;
            let written = socket.recv(|data| match host.write(&data[..data.len().min(left)]) {
                Ok(len) => (len, Ok(len)),
                Err(error) => (0, Err(error)),
            });
            match written {
                Ok(Ok(given)) => {
                    left -= given;
                    traffic.count(given);
                    self.used = Instant::now();
                }
                Ok(Err(error)) if is_for_later(&error) => return,
                Ok(Err(_)) | Err(_) => return socket.abort(),
            }
        }
        if has_ended(socket) && !socket.can_recv() && !self.machine_done {
            self.machine_done = true;
            self.host.end_writing();
        }
    }
}

/// Whether the machine has shut down its sending side.
fn has_ended(socket: &Socket) -> bool {
    matches!(socket.state(), State::CloseWait | State::LastAck | State::Closing | State::TimeWait)
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
