//! Options worth carrying.
//!
//! Each option is read where the socket's kind has it and kept if it differs from a new socket's.
//! An option that is not in the table is lost; a property that cannot be saved (a packet filter, a
//! protocol on top of TCP) is refused.

use super::FoundSocket;
use crate::error::{ErrorContext, Result};
use stasis_image::model::SocketOption;
use stasis_sys::{libc, socket};

/// Level, name, size of the value, and the value of a new socket where it is the same everywhere.
type Row = (i32, i32, usize, Option<i32>);

const SO_PASSPIDFD: i32 = 76;
pub const SO_BUF_LOCK: i32 = 72;

const GENERAL: [Row; 25] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_BROADCAST, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_LINGER, 8, Some(0)),
    (libc::SOL_SOCKET, libc::SO_PRIORITY, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_MARK, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 4, Some(1)),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO, 16, Some(0)),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO, 16, Some(0)),
    (libc::SOL_SOCKET, libc::SO_PASSCRED, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_PASSSEC, 4, Some(0)),
    (libc::SOL_SOCKET, SO_PASSPIDFD, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF, 4, Some(-1)),
    (libc::SOL_SOCKET, libc::SO_ZEROCOPY, 4, Some(0)),
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE, 16, Some(0)),
    (libc::SOL_SOCKET, libc::SO_SNDBUF, 4, None),
    (libc::SOL_SOCKET, libc::SO_RCVBUF, 4, None),
    // after the sizes, which setting locks
    (libc::SOL_SOCKET, SO_BUF_LOCK, 4, None),
];

const IPV4: [Row; 9] = [
    (libc::IPPROTO_IP, libc::IP_TOS, 4, Some(0)),
    (libc::IPPROTO_IP, libc::IP_TTL, 4, Some(64)),
    (libc::IPPROTO_IP, libc::IP_RECVTTL, 4, Some(0)),
    (libc::IPPROTO_IP, libc::IP_RECVTOS, 4, Some(0)),
    (libc::IPPROTO_IP, libc::IP_PKTINFO, 4, Some(0)),
    (libc::IPPROTO_IP, libc::IP_RECVERR, 4, Some(0)),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, 4, Some(libc::IP_PMTUDISC_WANT)),
    (libc::IPPROTO_IP, libc::IP_FREEBIND, 4, Some(0)),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 4, Some(0)),
];

const IPV6: [Row; 9] = [
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 4, Some(0)),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 4, Some(64)),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 4, Some(0)),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 4, Some(0)),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 4, Some(0)),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 4, Some(0)),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, 4, Some(libc::IP_PMTUDISC_WANT)),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 4, Some(0)),
    (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, 4, Some(0)),
];

const TCP: [Row; 12] = [
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 4, Some(0)),
    (libc::IPPROTO_TCP, libc::TCP_CORK, 4, Some(0)),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 4, Some(7200)),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 4, Some(75)),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4, Some(9)),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT, 4, Some(6)),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2, 4, Some(60)),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 4, Some(0)),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 4, Some(0)),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 4, Some(0)),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN, 4, Some(0)),
    (libc::IPPROTO_TCP, libc::TCP_INQ, 4, Some(0)),
];

/// For datagram sockets; a stream reports a value too, but refuses to have it set.
const MULTICAST: [Row; 2] = [
    (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, 4, Some(1)),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP, 4, Some(1)),
];
const MULTICAST6: [Row; 2] = [
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, 4, Some(1)),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, 4, Some(1)),
];

pub fn read(own: &FoundSocket) -> Result<Vec<SocketOption>> {
    refuse_programs(own)?;
    let mut kept = Vec::new();
    for (level, name, size, default) in rows(own) {
        // an option this kernel or this kind of socket does not have is not set either
        let Ok(value) = socket::option(own.fd(), level, name, size) else { continue };
        if default.is_none_or(|default| !is(&value, default)) {
            kept.push(SocketOption { level, name, value });
        }
    }
    if own.family != libc::AF_UNIX {
        forget_free_sizes(&mut kept);
    }
    Ok(kept)
}

fn rows(own: &FoundSocket) -> impl Iterator<Item = Row> {
    let inet = own.family != libc::AF_UNIX;
    let v6 = own.family == libc::AF_INET6;
    let stream = own.kind == libc::SOCK_STREAM;
    let when = |holds: bool, rows: &'static [Row]| if holds { rows } else { &[] };
    let tables = [
        &GENERAL[..],
        when(inet, &IPV4),
        when(v6, &IPV6),
        when(inet && stream, &TCP),
        when(inet && !stream, &MULTICAST),
        when(v6 && !stream, &MULTICAST6),
    ];
    tables.into_iter().flatten().copied()
}

/// Whether a value is `default`, in its first word, and zero otherwise.
fn is(value: &[u8], default: i32) -> bool {
    match value.split_at_checked(4) {
        Some((word, rest)) => word == default.to_ne_bytes() && rest.iter().all(|byte| *byte == 0),
        None => value.iter().all(|byte| *byte == 0),
    }
}

/// Buffers of internet sockets grow by themselves unless their size was set.
fn forget_free_sizes(options: &mut Vec<SocketOption>) {
    let lock = options.iter().find(|own| (own.level, own.name) == (libc::SOL_SOCKET, SO_BUF_LOCK));
    let locked = lock.and_then(|own| own.value.first().copied()).unwrap_or(0);
    options.retain(|own| match (own.level, own.name) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => locked & 1 != 0,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => locked & 2 != 0,
        _ => true,
    });
}

/// Code in the kernel that belongs to a socket cannot be read back, or not completely.
fn refuse_programs(own: &FoundSocket) -> Result<()> {
    const SO_GET_FILTER: i32 = libc::SO_ATTACH_FILTER;
    // with a length of zero, the kernel returns the number of instructions
    let filter = socket::option_len(own.fd(), libc::SOL_SOCKET, SO_GET_FILTER);
    if filter.doing(|| own.doing()).is_ok_and(|len| len == 0) {
        return refuse_layers(own);
    }
    Err(own.refuse("a socket with a packet filter is not supported"))
}

fn refuse_layers(own: &FoundSocket) -> Result<()> {
    if own.family == libc::AF_UNIX || own.kind != libc::SOCK_STREAM {
        return Ok(());
    }
    match socket::option(own.fd(), libc::IPPROTO_TCP, libc::TCP_ULP, 16) {
        Ok(name) if !name.is_empty() => {
            let name = String::from_utf8_lossy(&name);
            Err(own.refuse(format!("TCP with {} is not supported", name.trim_end_matches('\0'))))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_compared_by_their_first_word() {
        assert!(is(&1i32.to_ne_bytes(), 1));
        assert!(!is(&0i32.to_ne_bytes(), 1));
        assert!(is(&[0; 16], 0));
        assert!(!is(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], 0));
        assert!(is(&[], 0));
    }

    #[test]
    fn sizes_that_were_never_set_are_left_to_the_kernel() {
        let option = |name, value: i32| SocketOption {
            level: libc::SOL_SOCKET,
            name,
            value: value.to_ne_bytes().to_vec(),
        };
        let mut options = vec![
            option(libc::SO_SNDBUF, 9000),
            option(libc::SO_RCVBUF, 9000),
            option(SO_BUF_LOCK, 2),
        ];
        forget_free_sizes(&mut options);
        let names: Vec<i32> = options.iter().map(|own| own.name).collect();
        assert_eq!(names, [libc::SO_RCVBUF, SO_BUF_LOCK]);
    }
}
