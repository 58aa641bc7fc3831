//! Unread data of a socket, read without removing it.

use super::{FoundSocket, Scene};
use crate::error::{ErrorContext, Result};
use stasis_image::model::SocketMessage;
use stasis_sys::socket::Received;
use stasis_sys::{fds, libc, socket};
use std::io;
use std::os::fd::BorrowedFd;

/// The most that may wait in one socket.
const MAX_QUEUE: usize = 16 << 20;
/// More than the longest message of any kind.
const BUFFER: usize = 8 << 20;

/// Unread bytes of a stream, as the kernel counts them.
pub fn unread(own: &FoundSocket) -> Result<usize> {
    const FIONREAD: u64 = 0x541b;
    let mut count = [0; 4];
    fds::ioctl_buffer(own.fd(), FIONREAD, &mut count).doing(|| own.doing())?;
    Ok(i32::from_ne_bytes(count).max(0) as usize)
}

/// Everything in a TCP socket's queue: one look goes through all of it, unless urgent data is in
/// between.
pub fn peek_tcp(own: &FoundSocket) -> Result<Vec<SocketMessage>> {
    let total = unread(own)?;
    if total == 0 {
        return Ok(Vec::new());
    }
    if total > MAX_QUEUE {
        return Err(own.refuse(format!("{total} bytes in its queue are too many")));
    }
    let mut data = vec![0; total];
    let received = peek(own.fd(), &mut data).doing(|| own.doing())?;
    if received.len != total {
        return Err(own.refuse("urgent data in its queue is not supported"));
    }
    Ok(vec![SocketMessage { data, ..SocketMessage::default() }])
}

/// Everything in a connected unix socket other than a datagram socket. It stops at the last byte:
/// with an empty queue the kernel would return a pending error, and clear it.
pub fn peek_stream(own: &FoundSocket, scene: &Scene) -> Result<Vec<SocketMessage>> {
    let total = unread(own)?;
    let mut queue = Queue::start(own, scene, total)?;
    while queue.len < total && queue.next()? {}
    Ok(queue.messages)
}

/// Every message in a datagram or sequenced-packet socket. `ended`: no more can come, and a
/// message of no bytes is the end.
pub fn peek_messages(own: &FoundSocket, scene: &Scene, ended: bool) -> Result<Vec<SocketMessage>> {
    let mut queue = Queue::start(own, scene, BUFFER)?;
    while queue.next()? {
        if ended && queue.messages.last().is_some_and(|last| last.data.is_empty()) {
            queue.messages.pop();
            break;
        }
    }
    Ok(queue.messages)
}

fn peek(fd: BorrowedFd, buffer: &mut [u8]) -> io::Result<Received> {
    socket::receive_with(fd, buffer, libc::MSG_PEEK | libc::MSG_DONTWAIT)
}

/// A walk along a queue.
struct Queue<'a> {
    own: &'a FoundSocket,
    scene: &'a Scene,
    _offset: PeekOffset<'a>,
    buffer: Vec<u8>,
    messages: Vec<SocketMessage>,
    len: usize,
}

impl<'a> Queue<'a> {
    fn start(own: &'a FoundSocket, scene: &'a Scene, longest: usize) -> Result<Queue<'a>> {
        let offset = PeekOffset::start(own.fd()).doing(|| own.doing())?;
        let buffer = vec![0; longest.min(BUFFER)];
        Ok(Queue { own, scene, _offset: offset, buffer, messages: Vec::new(), len: 0 })
    }

    /// Peeks at the next item; false at the end.
    fn next(&mut self) -> Result<bool> {
        let received = match peek(self.own.fd(), &mut self.buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            other => other.doing(|| self.own.doing())?,
        };
        if !received.fds.is_empty() {
            return Err(self.own.refuse("descriptors are on their way in its queue"));
        }
        self.len += received.len;
        let long = received.flags & libc::MSG_TRUNC != 0 || self.len > MAX_QUEUE;
        if long || self.messages.len() > MAX_QUEUE / 64 {
            return Err(self.own.refuse(format!("more than {} bytes in its queue", self.len)));
        }
        self.messages.push(SocketMessage {
            data: self.buffer[..received.len].to_vec(),
            sender: received.credentials.map(|sender| self.scene.inside(sender)),
            from: if received.from.len() > 2 { received.from } else { Vec::new() },
        });
        Ok(true)
    }
}

/// Lets each look begin where the last one ended, and leaves the program's own setting behind.
struct PeekOffset<'a> {
    fd: BorrowedFd<'a>,
    before: i32,
}

impl<'a> PeekOffset<'a> {
    fn start(fd: BorrowedFd<'a>) -> io::Result<PeekOffset<'a>> {
        let before = socket::option_int(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF)?;
        set(fd, 0)?;
        Ok(PeekOffset { fd, before })
    }
}

impl Drop for PeekOffset<'_> {
    fn drop(&mut self) {
        let _ = set(self.fd, self.before);
    }
}

fn set(fd: BorrowedFd, offset: i32) -> io::Result<()> {
    socket::set_option(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &offset.to_ne_bytes())
}
