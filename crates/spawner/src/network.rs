//! A machine's way outside: an interface whose other end is a descriptor of the engine's.
//!
//!   program ─► its kernel's TCP and UDP ─► interface ─► descriptor ─► whoever decides
//!
//! The interface belongs to the namespace in which the device is opened, so the machine's init
//! opens it. Where the host's `/dev/net/tun` is, and who may open that, does not matter: the
//! spawner has a node of its own. If a step fails there is no interface, and the machine is
//! dropped by the engine.

use stasis_spawner::protocol::Link;
use stasis_sys::{files, libc, mount, net};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

const NAME: &str = "tun0";
const RESOLV_CONF: &str = "/etc/resolv.conf";

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
pub fn make(link: &Link, node: &OwnedFd) -> io::Result<OwnedFd> {
    let tun = net::tun(node.as_fd(), NAME).map_err(named("make a network interface"))?;
    let up = net::bring_up(NAME, link.address, link.mtu);
    up.map_err(named("bring the network interface up"))?;
    net::default_route(NAME).map_err(named("route through the network interface"))?;
    name_server(link).map_err(named("write /etc/resolv.conf"))?;
    Ok(tun)
}

/// Says where names are asked for, in the machine's own files, unless it is said already. What
/// was there may be a link of an image's; it is replaced, not followed.
fn name_server(link: &Link) -> io::Result<()> {
    let text = format!("nameserver {}\n", link.resolver);
    let plain = std::fs::symlink_metadata(RESOLV_CONF).is_ok_and(|found| found.is_file());
    if plain && std::fs::read(RESOLV_CONF).is_ok_and(|now| now == text.as_bytes()) {
        return Ok(());
    }
    std::fs::create_dir_all("/etc")?;
    match std::fs::remove_file(RESOLV_CONF) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::write(RESOLV_CONF, text)
}

fn named(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
