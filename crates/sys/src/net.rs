//! Interfaces of the current network namespace, and connections that are begun and not waited for.

use crate::socket;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// The number of the kernel's TUN device among the miscellaneous ones.
pub const TUN_DEVICE: (u32, u32) = (10, 200);

/// Sizes of `struct ifreq` and `struct rtentry`, and offsets of their fields.
const IFREQ: usize = 40;
const IFREQ_DATA: usize = 16;
const RTENTRY: usize = 120;
const RT_DESTINATION: usize = 8;
const RT_GATEWAY: usize = 24;
const RT_MASK: usize = 40;
const RT_FLAGS: usize = 56;
const RT_DEVICE: usize = 88;

/// Makes an interface whose packets are read from and written to the descriptor, without waiting.
/// `node` refers to the device; the interface belongs to the namespace the device is opened in.
pub fn tun(node: BorrowedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let path = format!("/proc/self/fd/{}", node.as_raw_fd());
    let tun: OwnedFd =
        File::options().read(true).write(true).custom_flags(flags).open(path)?.into();
    let kind = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    request(tun.as_fd(), libc::TUNSETIFF, name, &kind.to_ne_bytes())?;
    Ok(tun)
}

/// Gives an interface an address without a peer network, and brings it up with packets of up to
/// `mtu` bytes.
pub fn bring_up(name: &str, address: Ipv4Addr, mtu: u32) -> io::Result<()> {
    let socket = socket::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
    let set = |what: libc::Ioctl, data: &[u8]| request(socket.as_fd(), what, name, data);
    set(libc::SIOCSIFMTU, &mtu.to_ne_bytes())?;
    set(libc::SIOCSIFADDR, &sockaddr(SocketAddr::from((address, 0))))?;
    set(libc::SIOCSIFNETMASK, &sockaddr(SocketAddr::from((Ipv4Addr::BROADCAST, 0))))?;
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    set(libc::SIOCSIFFLAGS, &flags.to_ne_bytes())
}

fn request(fd: BorrowedFd, what: libc::Ioctl, name: &str, data: &[u8]) -> io::Result<()> {
    let mut request = [0; IFREQ];
    named(name, &mut request[..IFREQ_DATA])?;
    request[IFREQ_DATA..IFREQ_DATA + data.len()].copy_from_slice(data);
    crate::fds::ioctl_buffer(fd, what, &mut request).map(drop)
}

fn named(name: &str, room: &mut [u8]) -> io::Result<()> {
    if name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    room[..name.len()].copy_from_slice(name.as_bytes());
    Ok(())
}

/// Sends everything that is not at an interface of the namespace out through this one.
pub fn default_route(name: &str) -> io::Result<()> {
    let socket = socket::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
    let mut device = [0u8; libc::IFNAMSIZ];
    named(name, &mut device)?;
    let mut route = [0u8; RTENTRY];
    let any = sockaddr(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    for at in [RT_DESTINATION, RT_GATEWAY, RT_MASK] {
        route[at..at + any.len()].copy_from_slice(&any);
    }
    route[RT_FLAGS..RT_FLAGS + 2].copy_from_slice(&libc::RTF_UP.to_ne_bytes());
    // the kernel reads the name before the call returns; until then it lives here
    let address = device.as_ptr() as u64;
    route[RT_DEVICE..RT_DEVICE + 8].copy_from_slice(&address.to_ne_bytes());
    crate::fds::ioctl_buffer(socket.as_fd(), libc::SIOCADDRT, &mut route).map(drop)
}

/// Starts to connect. When the socket is writable, its error has the result.
pub fn begin_connect(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let stream = socket::socket(family, kind, 0)?;
    match socket::connect(stream.as_fd(), &sockaddr(to)) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(stream.into()),
    }
}

/// An address as the kernel lays it out.
fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut raw = (family as u16).to_ne_bytes().to_vec();
    raw.extend(address.port().to_be_bytes());
    match address {
        SocketAddr::V4(four) => {
            raw.extend(four.ip().octets());
            raw.extend([0; 8]);
        }
        SocketAddr::V6(six) => {
            raw.extend(six.flowinfo().to_ne_bytes());
            raw.extend(six.ip().octets());
            raw.extend(six.scope_id().to_ne_bytes());
        }
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_lie_where_the_kernel_has_them() {
        assert_eq!(size_of::<libc::ifreq>(), IFREQ);
        assert_eq!(std::mem::offset_of!(libc::ifreq, ifr_ifru), IFREQ_DATA);
        assert_eq!(size_of::<libc::rtentry>(), RTENTRY);
        assert_eq!(std::mem::offset_of!(libc::rtentry, rt_dst), RT_DESTINATION);
        assert_eq!(std::mem::offset_of!(libc::rtentry, rt_gateway), RT_GATEWAY);
        assert_eq!(std::mem::offset_of!(libc::rtentry, rt_genmask), RT_MASK);
        assert_eq!(std::mem::offset_of!(libc::rtentry, rt_flags), RT_FLAGS);
        assert_eq!(std::mem::offset_of!(libc::rtentry, rt_dev), RT_DEVICE);
    }

    #[test]
    fn a_connection_says_how_it_went() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let stream = begin_connect(open).unwrap();
        crate::fds::poll_for(&[(stream.as_fd(), libc::POLLOUT)], 5000).unwrap();
        assert!(stream.take_error().unwrap().is_none());
        drop(listener);
        let refused = begin_connect(open).map(|stream| {
            crate::fds::poll_for(&[(stream.as_fd(), libc::POLLOUT)], 5000).unwrap();
            stream.take_error().unwrap().map(|error| error.kind())
        });
        assert!(matches!(refused, Ok(Some(io::ErrorKind::ConnectionRefused)) | Err(_)));
    }

    #[test]
    fn long_names_are_refused() {
        assert!(default_route("a-name-of-sixteen").is_err());
        assert!(bring_up("no\0", Ipv4Addr::LOCALHOST, 1500).is_err());
    }
}
