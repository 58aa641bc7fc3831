//! A machine's way outside: an interface whose other end is a descriptor of the engine's.
//!
//!   program ─► its kernel's TCP and UDP ─► interface ─► descriptor ─► relay (crate `egress`)
//!
//! The interface belongs to the namespace in which the device is opened, so the machine's init
//! opens it. The host's `/dev/net/tun` and its permissions do not matter: the spawner has its own
//! node. If a step fails there is no interface, and the engine drops the machine.

use stasis_spawner::protocol::NetworkLink;
use stasis_sys::{below, files, libc, mount, net};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const NAME: &str = "tun0";
const ETC: &str = "etc";
const RESOLV_CONF: &str = "resolv.conf";
/// The certificates that programs trust: all, and those of the machine alone.
const TRUSTED: &str = "stasis";
const BUNDLE: &str = "ca-bundle.pem";
const OWN: &str = "ca.pem";
/// The most that is read of a file with certificates.
const LONGEST: u64 = 4 << 20;

/// A handle on the device, in a file system that is mounted nowhere.
pub fn node() -> io::Result<OwnedFd> {
    let tree = mount::detached("tmpfs", &[("mode", "700"), ("size", "4k")], 0)?;
    let path = format!("/proc/self/fd/{}/tun", tree.as_raw_fd());
    let (major, minor) = net::TUN_DEVICE;
    // an init is not the owner; its namespace decides its access to the device
    let mask = files::umask(0);
    let made = files::make_node(&path, libc::S_IFCHR | 0o666, major, minor);
    files::umask(mask);
    made?;
    Ok(File::options().read(true).custom_flags(libc::O_PATH).open(path)?.into())
}

/// Makes the interface in the namespace we are in, and writes the certificates that came with the
/// request.
pub fn make(link: &NetworkLink, node: &OwnedFd, trusted: &[OwnedFd]) -> io::Result<OwnedFd> {
    let tun = net::tun(node.as_fd(), NAME).map_err(named("make a network interface"))?;
    let up = net::bring_up(NAME, link.address, link.mtu);
    up.map_err(named("bring the network interface up"))?;
    net::default_route(NAME).map_err(named("route through the network interface"))?;
    let etc = dir(File::open("/")?.as_fd(), ETC).map_err(named("open /etc"))?;
    let text = format!("nameserver {}\n", link.resolver);
    write(&etc, RESOLV_CONF, text.as_bytes()).map_err(named("write /etc/resolv.conf"))?;
    if let [host, own] = trusted {
        // an image that has something else in this place has its way: its programs trust less
        let _ = trust(&etc, host, own);
    }
    Ok(tun)
}

/// Writes the certificates that programs are to trust.
fn trust(etc: &OwnedFd, host: &OwnedFd, own: &OwnedFd) -> io::Result<()> {
    let read = |file: &OwnedFd| {
        // read from the beginning: another spawn may have moved the position
        let mut text =
            vec![0; File::from(file.try_clone()?).metadata()?.len().min(LONGEST) as usize];
        File::from(file.try_clone()?).read_exact_at(&mut text, 0)?;
        io::Result::Ok(text)
    };
    let (host, own) = (read(host)?, read(own)?);
    let dir = dir(etc.as_fd(), TRUSTED)?;
    write(&dir, OWN, &own)?;
    write(&dir, BUNDLE, &[host, own].concat())
}

/// A directory that is made if it is missing. No link is followed.
fn dir(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    match below::make_dir(parent, name, 0o755) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    files::open_straight(parent, name, libc::O_PATH | libc::O_DIRECTORY)
}

/// Writes a file unless it says the same already. An image chose what is there: no link is
/// followed, nothing that could block is read, and what is no such file is replaced.
fn write(dir: &OwnedFd, name: &str, text: &[u8]) -> io::Result<()> {
    if says(dir, name, text) {
        return Ok(());
    }
    match below::remove(dir.as_fd(), name, 0) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let new = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    let file = below::open(dir.as_fd(), name, new, 0o644)?;
    File::from(file).write_all(text)
}

fn says(dir: &OwnedFd, name: &str, text: &[u8]) -> bool {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK;
    let Ok(file) = files::open_straight(dir.as_fd(), name, flags).map(File::from) else {
        return false;
    };
    let mut now = Vec::new();
    file.metadata().is_ok_and(|found| found.is_file() && found.len() == text.len() as u64)
        && file.take(text.len() as u64 + 1).read_to_end(&mut now).is_ok()
        && now == text
}

fn named(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
