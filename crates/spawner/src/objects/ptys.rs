//! Pseudo-terminals in the machine's own devpts, under given numbers.
//!
//! The kernel assigns the lowest free number, so terminals are opened until the wanted ones were
//! assigned; the others are closed again.

use stasis_spawner::protocol::ObjectSpec;
use stasis_sys::{fds, files, libc};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

const PTMX: &str = "/dev/pts/ptmx";
/// Far above the numbers a devpts assigns by itself.
const HIGHEST: u32 = 1 << 16;

/// Opens the masters among `specs`, unlocked; by number.
pub fn open_masters(root: &OwnedFd, specs: &[ObjectSpec]) -> io::Result<HashMap<u32, OwnedFd>> {
    let wanted = specs.iter().filter_map(|spec| match spec {
        ObjectSpec::PtyMaster { index, .. } => Some(*index),
        _ => None,
    });
    let Some(last) = wanted.max() else { return Ok(HashMap::new()) };
    let mut masters = HashMap::new();
    while !masters.contains_key(&last) {
        let (index, master) = open_master(root)?;
        if index > HIGHEST || index > last && masters.len() as u32 > last {
            return Err(io::Error::other(format!("terminal {last} is taken")));
        }
        masters.insert(index, master);
    }
    Ok(masters)
}

fn open_master(root: &OwnedFd) -> io::Result<(u32, OwnedFd)> {
    let master = super::open(root, PTMX, libc::O_RDWR, None)?;
    fds::ioctl_buffer(master.as_fd(), libc::TIOCSPTLCK, &mut [0; 4])?;
    let mut index = [0; 4];
    fds::ioctl_buffer(master.as_fd(), libc::TIOCGPTN, &mut index)?;
    Ok((u32::from_ne_bytes(index), master))
}

/// Gives a new terminal its owner and mode, and the history its slave had.
pub fn set_up(
    root: &OwnedFd,
    master: &OwnedFd,
    index: u32,
    flags: i32,
    node: (u32, u32, u32),
    slave_gone: bool,
) -> io::Result<()> {
    let path = format!("/dev/pts/{index}");
    files::set_owner(&path, node.0, node.1)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(node.2))?;
    fds::fcntl(master.as_fd(), libc::F_SETFL, (flags & libc::O_NONBLOCK) as u64)?;
    if slave_gone {
        drop(super::open(root, &path, libc::O_RDWR, None)?);
    }
    Ok(())
}

/// The slave of a terminal whose master is closed.
pub fn hung_up(root: &OwnedFd, flags: i32) -> io::Result<OwnedFd> {
    let (index, master) = open_master(root)?;
    let slave = super::open(root, &format!("/dev/pts/{index}"), flags, None);
    drop(master);
    slave
}
