//! `stasis-spawner`: started by the engine with a socket as standard input; see the library.

#![deny(unsafe_code)]

mod blank;
mod confine;
mod init;
mod network;
mod objects;
mod sockets;
mod walls;

use stasis_spawner::protocol::{self, SpawnReply, SpawnRequest};
use stasis_spawner::{CORE_LIMIT, UNUSED_CAPABILITIES};
use stasis_sys::process::{self, Forked};
use stasis_sys::{fds, libc};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

fn main() {
    let control = fds::inherited(0);
    // a killed engine closes with a reset, or without a reader for an answer
    let gone = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
    };
    if let Err(error) = serve(&control)
        && !gone(&error)
    {
        eprintln!("stasis-spawner: {error}");
        std::process::exit(1);
    }
}

/// Answers requests until the engine has exited.
fn serve(control: &OwnedFd) -> io::Result<()> {
    // templates are made by a process that ends at once; they come to us and are reaped here
    process::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)?;
    allow_core_limit();
    // nothing below this process holds the keys of the engine's parent
    if process::has_keyrings() {
        process::own_keyring()?;
    }
    process::give_up_capabilities(&UNUSED_CAPABILITIES)?;
    let devices = walls::Devices::make()?;
    loop {
        if !fds::poll_readable(control.as_fd(), 1000)? {
            reap();
            continue;
        }
        let Some((request, mut fds)) = protocol::receive::<SpawnRequest>(control.as_fd())? else {
            return Ok(());
        };
        reap();
        if fds.is_empty() {
            continue;
        }
        let entrances = fds.split_off(1);
        let Some(socket) = fds.pop() else { continue };
        let made = match request {
            SpawnRequest::Blank => make_blank(socket),
            SpawnRequest::Walls(spec) => walls::build(&spec, &devices, socket, &entrances),
        };
        reply(control, made)?;
    }
}

/// A host may have lowered the hard limit to zero. Machines need one byte; if raising it fails, a
/// launch reports it.
fn allow_core_limit() {
    if process::rlimit_of(0, libc::RLIMIT_CORE).is_ok_and(|(_, hard)| hard < CORE_LIMIT) {
        let _ = process::fix_limit(libc::RLIMIT_CORE, CORE_LIMIT);
    }
}

fn make_blank(socket: OwnedFd) -> io::Result<(i32, OwnedFd)> {
    match process::fork(0, libc::SIGCHLD)? {
        Forked::Parent { pid, pidfd } => Ok((pid, pidfd)),
        Forked::Child => blank::become_blank(socket),
    }
}

fn reply(control: &OwnedFd, made: io::Result<(i32, OwnedFd)>) -> io::Result<()> {
    match made {
        Ok((pid, pidfd)) => {
            protocol::send(control.as_fd(), &SpawnReply::Made { pid }, &[pidfd.as_fd()])
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let what = error.to_string();
            protocol::send(control.as_fd(), &SpawnReply::Failed { what, errno }, &[])
        }
    }
}

/// Reaps every child that ended.
fn reap() {
    while let Ok(Some(_)) = process::wait(-1, libc::WNOHANG | libc::__WALL) {}
}
