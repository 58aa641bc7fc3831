//! A machine's way outside: an interface whose other end is a descriptor of the engine's.
//!
//!   program ─► its kernel's TCP and UDP ─► interface ─► descriptor ─► whoever decides
//!
//! The interface belongs to the namespace in which the device is opened, so the machine's init
//! opens it. Where the host's `/dev/net/tun` is, and who may open that, does not matter: the
//! spawner has a node of its own. If a step fails there is no interface, and the machine is
//! dropped by the engine.

use stasis_spawner::protocol::NetworkLink;
use stasis_sys::{below, files, libc, mount, net};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

const NAME: &str = "tun0";
const ETC: &str = "etc";
const RESOLV_CONF: &str = "resolv.conf";

/// A handle on the device, in a file system that is mounted nowhere.
pub fn node() -> io::Result<OwnedFd> {
    let tree = mount::detached("tmpfs", &[("mode", "700"), ("size", "4k")], 0)?;
    let path = format!("/proc/self/fd/{}/tun", tree.as_raw_fd());
    let (major, minor) = net::TUN_DEVICE;
    // an init is not the owner; what it may do with the device is decided in its namespace
    let mask = files::umask(0);
    let made = files::make_node(&path, libc::S_IFCHR | 0o666, major, minor);
    files::umask(mask);
    made?;
    Ok(File::options().read(true).custom_flags(libc::O_PATH).open(path)?.into())
}

/// Makes the interface in the namespace we are in.
pub fn make(link: &NetworkLink, node: &OwnedFd) -> io::Result<OwnedFd> {
    let tun = net::tun(node.as_fd(), NAME).map_err(named("make a network interface"))?;
    let up = net::bring_up(NAME, link.address, link.mtu);
    up.map_err(named("bring the network interface up"))?;
    net::default_route(NAME).map_err(named("route through the network interface"))?;
    name_server(link).map_err(named("write /etc/resolv.conf"))?;
    Ok(tun)
}

/// Writes the machine's resolv.conf unless it says the same already. An image chose what is there:
/// no link is followed, nothing that could block is read, and what is no such file is replaced.
fn name_server(link: &NetworkLink) -> io::Result<()> {
    let text = format!("nameserver {}\n", link.resolver);
    let root = File::open("/")?;
    match below::make_dir(root.as_fd(), ETC, 0o755) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let etc = files::open_straight(root.as_fd(), ETC, libc::O_PATH | libc::O_DIRECTORY)?;
    if says(&etc, &text) {
        return Ok(());
    }
    match below::remove(etc.as_fd(), RESOLV_CONF, 0) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let new = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    let file = below::open(etc.as_fd(), RESOLV_CONF, new, 0o644)?;
    File::from(file).write_all(text.as_bytes())
}

fn says(etc: &OwnedFd, text: &str) -> bool {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK;
    let Ok(file) = files::open_straight(etc.as_fd(), RESOLV_CONF, flags).map(File::from) else {
        return false;
    };
    let mut now = Vec::new();
    file.metadata().is_ok_and(|found| found.is_file())
        && file.take(text.len() as u64 + 1).read_to_end(&mut now).is_ok()
        && now == text.as_bytes()
}

fn named(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
