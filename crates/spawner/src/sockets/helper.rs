//! Being someone else while a socket is paired, connected or listened on.
//!
//! SO_PEERCRED reports the other end by the pid, user and group of the process that made the call.
//! Before a restore none of those processes exist, so a short-lived child takes the wanted pid and
//! user, follows the steps, sends new sockets back and ends. The kernel keeps the number, which the
//! restored process then has.

use super::steps::{self, SocketSlots};
use serde::{Deserialize, Serialize};
use stasis_spawner::protocol;
use stasis_spawner::socket_plan::{PlanStep, ProcessIdentity, SocketStep};
use stasis_sys::process::{self, Forked};
use stasis_sys::{libc, socket};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

#[derive(Serialize, Deserialize)]
enum Said {
    /// Two new sockets, sent along.
    Pair([u32; 2]),
    Done,
    Failed(String),
}

pub fn follow_as(
    who: ProcessIdentity,
    group: &[PlanStep],
    slots: &mut SocketSlots,
) -> io::Result<()> {
    let (ours, theirs) = socket::pair(libc::SOCK_SEQPACKET)?;
    match process::fork_as(who.pid, libc::SIGCHLD)? {
        Forked::Child => {
            drop(ours);
            let said = match be(who).and_then(|()| act(group, slots, &theirs)) {
                Ok(()) => Said::Done,
                Err(error) => Said::Failed(error.to_string()),
            };
            let told = protocol::send(theirs.as_fd(), &said, &[]);
            process::exit_now(i32::from(told.is_err()))
        }
        Forked::Parent { pid, .. } => {
            drop(theirs);
            let answer = receive(&ours, slots);
            // its number must be free again before the process it belongs to comes back
            process::wait(pid, libc::__WALL)?;
            answer
        }
    }
}

/// Takes on user and group, but keeps every capability: the socket's path may since have become
/// inaccessible for them.
fn be(who: ProcessIdentity) -> io::Result<()> {
    const SECBIT_NO_SETUID_FIXUP: u64 = 1 << 2;
    if (who.uid, who.gid) == (0, 0) {
        return Ok(());
    }
    process::prctl(libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)?;
    process::set_ids(who.uid, who.gid)
}

fn act(group: &[PlanStep], slots: &mut SocketSlots, to: &OwnedFd) -> io::Result<()> {
    for step in group {
        steps::follow_all(std::slice::from_ref(step), slots)?;
        if let SocketStep::Pair { slots: [a, b], .. } = &step.what {
            let ends = [slots[a].as_fd(), slots[b].as_fd()];
            protocol::send(to.as_fd(), &Said::Pair([*a, *b]), &ends)?;
        }
    }
    Ok(())
}

fn receive(from: &OwnedFd, slots: &mut SocketSlots) -> io::Result<()> {
    loop {
        match protocol::receive::<Said>(from.as_fd())? {
            Some((Said::Pair([a, b]), fds)) => {
                let [one, other] = <[OwnedFd; 2]>::try_from(fds)
                    .map_err(|_| io::Error::other("a pair of sockets was not received"))?;
                slots.insert(a, one);
                slots.insert(b, other);
            }
            Some((Said::Done, _)) => return Ok(()),
            Some((Said::Failed(what), _)) => return Err(io::Error::other(what)),
            None => return Err(io::Error::other("a helper process ended early")),
        }
    }
}
