//! Following the engine's steps to make sockets.
//!
//! A failing step ends the whole list with an error that names it, unless the step may fail.
//! Sockets created so far are closed then, and the engine drops the machine.

use super::{bind, helper};
use stasis_spawner::socket_plan::{self, PlanStep, SocketPlan, SocketStep};
use stasis_sys::{fds, libc, socket};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Maximum time of a connection inside the machine, which normally takes none.
const PATIENCE_MS: i32 = 5_000;

/// Sockets by slot.
pub type SocketSlots = HashMap<u32, OwnedFd>;

/// Follows the packed plan in `fds`; the descriptors to be kept, in the plan's order.
pub fn make(mut fds: Vec<OwnedFd>) -> io::Result<Vec<OwnedFd>> {
    let packed = fds.pop().ok_or_else(|| io::Error::other("the request has no plan"))?;
    let plan: SocketPlan = socket_plan::unpack(packed)?;
    let mut slots = SocketSlots::new();
    // neighbours with the same identity share a helper process
    for group in plan.steps.chunk_by(|a, b| a.who == b.who) {
        match group[0].who {
            Some(who) => helper::follow_as(who, group, &mut slots)?,
            None => follow_all(group, &mut slots)?,
        }
    }
    let take = |slot: &u32| slots.remove(slot).ok_or_else(|| missing(*slot));
    plan.keep.iter().map(take).collect()
}

pub fn follow_all(steps: &[PlanStep], slots: &mut SocketSlots) -> io::Result<()> {
    for step in steps {
        match follow(&step.what, slots) {
            Err(error) if step.must => return Err(named(&step.what, &error)),
            _ => {}
        }
    }
    Ok(())
}

fn missing(slot: u32) -> io::Error {
    io::Error::other(format!("socket {slot} was never made"))
}

/// The error of a step, with the step but not its data.
fn named(what: &SocketStep, error: &io::Error) -> io::Error {
    let mut text = format!("{what:?}");
    text.truncate(text.char_indices().nth(120).map_or(text.len(), |(at, _)| at));
    io::Error::new(error.kind(), format!("make sockets: {text}: {error}"))
}

fn follow(step: &SocketStep, slots: &mut SocketSlots) -> io::Result<()> {
    match step {
        SocketStep::New { slot, family, kind, protocol } => {
            slots.insert(*slot, socket::socket(*family, *kind, *protocol)?);
        }
        SocketStep::Pair { slots: [a, b], kind } => {
            let (one, other) = socket::pair(*kind)?;
            slots.insert(*a, one);
            slots.insert(*b, other);
        }
        SocketStep::Accept { slot, listener } => {
            let accepted = accept(at(slots, *listener)?)?;
            slots.insert(*slot, accepted);
        }
        SocketStep::Close { slot } => {
            slots.remove(slot);
        }
        SocketStep::ConnectTo { slot, to } => {
            let (_held, address) = bind::address_of(at(slots, *to)?)?;
            return connect(at(slots, *slot)?, &address);
        }
        SocketStep::SendTo { slot, data, to } => {
            let (_held, address) = bind::address_of(at(slots, *to)?)?;
            return send_message(at(slots, *slot)?, data, &address);
        }
        step => return act(step, slots),
    }
    Ok(())
}

/// Steps on one existing socket.
fn act(step: &SocketStep, slots: &SocketSlots) -> io::Result<()> {
    match step {
        SocketStep::Option { slot, level, name, value } => {
            set_option(at(slots, *slot)?, *level, *name, value)
        }
        SocketStep::Bind { slot, address, place } => bind::bind(at(slots, *slot)?, address, place),
        SocketStep::Listen { slot, backlog } => socket::listen(at(slots, *slot)?, *backlog as i32),
        SocketStep::Connect { slot, address } => connect(at(slots, *slot)?, address),
        SocketStep::Send { slot, data } => send(at(slots, *slot)?, data),
        SocketStep::Shutdown { slot, how } => socket::shutdown(at(slots, *slot)?, *how),
        SocketStep::ClearError { slot } => clear_error(at(slots, *slot)?),
        SocketStep::Owner { slot, uid, gid } => {
            std::os::unix::fs::fchown(at(slots, *slot)?, Some(*uid), Some(*gid))
        }
        other => Err(io::Error::other(format!("{other:?} is not a step for a socket"))),
    }
}

fn at(slots: &SocketSlots, slot: u32) -> io::Result<BorrowedFd<'_>> {
    slots.get(&slot).map(AsFd::as_fd).ok_or_else(|| missing(slot))
}

/// Sets an option that is not as it should be already. The kernel doubles the sizes of buffers
/// when they are set.
fn set_option(fd: BorrowedFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    if socket::option(fd, level, name, value.len()).is_ok_and(|now| now == value) {
        return Ok(());
    }
    let size = level == libc::SOL_SOCKET && matches!(name, libc::SO_SNDBUF | libc::SO_RCVBUF);
    match <[u8; 4]>::try_from(value) {
        Ok(word) if size => {
            let half = i32::from_ne_bytes(word) / 2;
            socket::set_option(fd, level, name, &half.to_ne_bytes())
        }
        _ => socket::set_option(fd, level, name, value),
    }
}

fn accept(listener: BorrowedFd) -> io::Result<OwnedFd> {
    if !fds::poll_readable(listener, PATIENCE_MS)? {
        return Err(io::Error::other("the connection did not arrive"));
    }
    socket::accept(listener, 0)
}

/// Connects, but does not wait for long: the other side is in the same namespace.
fn connect(fd: BorrowedFd, address: &[u8]) -> io::Result<()> {
    let mut patience = [0; 16];
    patience[..8].copy_from_slice(&(i64::from(PATIENCE_MS) / 1000).to_ne_bytes());
    socket::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &patience)?;
    let connected = socket::connect(fd, address);
    socket::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &[0; 16])?;
    connected
}

/// Sends all of it. A socket can hold again what it held once.
fn send(fd: BorrowedFd, data: &[u8]) -> io::Result<()> {
    let mut rest = data;
    loop {
        let sent = socket::send_to(fd, rest, &[])?;
        rest = &rest[sent..];
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Clears a pending or arriving error.
fn clear_error(fd: BorrowedFd) -> io::Result<()> {
    fds::poll_readable(fd, PATIENCE_MS)?;
    socket::option_int(fd, libc::SOL_SOCKET, libc::SO_ERROR).map(drop)
}

fn send_message(fd: BorrowedFd, data: &[u8], address: &[u8]) -> io::Result<()> {
    socket::send_to(fd, data, address).map(drop)
}

/// `/proc/self/fd/N` as a unix address.
pub fn descriptor_address(fd: &OwnedFd) -> Vec<u8> {
    let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    address.extend(format!("/proc/self/fd/{}\0", fd.as_raw_fd()).bytes());
    address
}
