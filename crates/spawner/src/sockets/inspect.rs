//! Properties of sockets that show only inside the machine: pids and users in its numbering, and
//! their network.

use super::diag;
use stasis_spawner::socket_plan::{self, ProcessIdentity, SocketLook, SocketLooks};
use stasis_sys::{fds, libc, socket};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A number unlike that of any other network namespace since the host's start.
const SO_NETNS_COOKIE: i32 = 71;

pub fn look(sockets: &[OwnedFd]) -> io::Result<OwnedFd> {
    let own = socket::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?;
    let network = cookie(&own)?;
    let looks = sockets.iter().map(|fd| look_at(fd, &network)).collect::<io::Result<_>>()?;
    socket_plan::pack(&SocketLooks { looks, unix: diag::unix_sockets()? })
}

fn look_at(fd: &OwnedFd, network: &[u8]) -> io::Result<SocketLook> {
    let stat = fds::stat(fd.as_fd())?;
    let (pid, uid, gid) = socket::peer_credentials(fd.as_fd())?;
    Ok(SocketLook {
        own_network: cookie(fd)? == network,
        uid: stat.st_uid,
        gid: stat.st_gid,
        peer: ProcessIdentity { pid, uid, gid },
    })
}

fn cookie(fd: &OwnedFd) -> io::Result<Vec<u8>> {
    socket::option(fd.as_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, 8)
}
