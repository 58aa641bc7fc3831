//! The floor: addresses that no machine reaches, under any policy, over TCP and UDP alike.
//!
//! Addresses of the host, of its operator (metadata services), and without a single receiver are
//! refused, by name. The caller asks the kernel whether an address is the host's own.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Addresses that do not exist outside: RFC 7335 reserves them for the two ends of a link inside
/// one host.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);
pub const MACHINE: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);

const DNS: u16 = 53;

/// Ranges, each with the length of its prefix, that policies have to name: networks of a company
/// or of a provider.
pub const PRIVATE: [(Ipv4Addr, u32); 4] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
];

/// Metadata services of clouds, beside link-local addresses: Alibaba, Azure, Oracle.
const METADATA: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Loopback,
    /// An address of one of the host's own interfaces.
    Host,
    LinkLocal,
    Metadata,
    /// Multicast, broadcast, and reserved addresses.
    Many,
    /// The link between machine and host, which has only the resolver.
    Link,
    /// No address or no port.
    Nowhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Refusal::Loopback => "the host's loopback",
            Refusal::Host => "an address of the host",
            Refusal::LinkLocal => "a link-local address",
            Refusal::Metadata => "a metadata service",
            Refusal::Many => "multicast or broadcast",
            Refusal::Link => "the machine's own link",
            Refusal::Nowhere => "no address",
        })
    }
}

/// Whether packets to an address are questions for the resolver that the host gives machines.
pub fn is_resolver(address: SocketAddrV4) -> bool {
    *address.ip() == RESOLVER && address.port() == DNS
}

/// Why no machine may reach an address, if none may.
pub fn floor(address: SocketAddrV4, own: bool) -> Option<Refusal> {
    let (ip, port) = (*address.ip(), address.port());
    let first = ip.octets()[0];
    match () {
        () if first == 0 || port == 0 => Some(Refusal::Nowhere),
        () if ip.is_loopback() => Some(Refusal::Loopback),
        () if ip.is_link_local() => Some(Refusal::LinkLocal),
        () if METADATA.contains(&ip) => Some(Refusal::Metadata),
        () if first >= 224 => Some(Refusal::Many),
        () if ip == RESOLVER || ip == MACHINE => Some(Refusal::Link),
        () if own => Some(Refusal::Host),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn to(address: &str) -> SocketAddrV4 {
        address.parse().expect("an address")
    }

    #[test]
    fn what_is_refused_by_name() {
        for (address, why) in [
            ("127.0.0.1:80", Refusal::Loopback),
            ("127.255.0.9:22", Refusal::Loopback),
            ("0.0.0.0:80", Refusal::Nowhere),
            ("0.1.2.3:80", Refusal::Nowhere),
            ("8.8.8.8:0", Refusal::Nowhere),
            ("169.254.169.254:80", Refusal::LinkLocal),
            ("100.100.100.200:80", Refusal::Metadata),
            ("168.63.129.16:80", Refusal::Metadata),
            ("224.0.0.251:5353", Refusal::Many),
            ("255.255.255.255:67", Refusal::Many),
            ("192.0.0.1:80", Refusal::Link),
            ("192.0.0.2:53", Refusal::Link),
        ] {
            for own in [false, true] {
                assert_eq!(floor(to(address), own), Some(why), "{address}");
            }
        }
    }

    #[test]
    fn the_rest_depends_on_whose_it_is() {
        assert!(is_resolver(to("192.0.0.1:53")) && !is_resolver(to("192.0.0.1:80")));
        assert_eq!(floor(to("192.0.0.1:53"), false), Some(Refusal::Link));
        for address in ["1.1.1.1:443", "10.0.0.7:80", "192.168.1.1:53", "100.64.0.1:1"] {
            assert_eq!(floor(to(address), false), None, "{address}");
            assert_eq!(floor(to(address), true), Some(Refusal::Host), "{address}");
        }
    }

    proptest! {
        #[test]
        fn nothing_of_the_host_is_ever_reached(ip: u32, port: u16, own: bool) {
            let to = SocketAddrV4::new(Ipv4Addr::from(ip), port);
            let ip = *to.ip();
            if floor(to, own).is_none() {
                prop_assert!(!own && port != 0 && !ip.is_unspecified());
                prop_assert!(!ip.is_loopback() && !ip.is_link_local() && !ip.is_multicast());
                prop_assert!(!ip.is_broadcast());
            }
            // the nearer an address is to the host, the less of it: being its own adds nothing
            if floor(to, true).is_none() {
                prop_assert_eq!(floor(to, false), None);
            }
        }

        #[test]
        fn near_the_refused_ranges(low: u16, range in 0usize..5, port in 1u16..) {
            let [a, b] = [[127, 0], [169, 254], [224, 0], [0, 0], [255, 255]][range];
            let [c, d] = low.to_be_bytes();
            let to = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port);
            prop_assert!(floor(to, false).is_some());
        }
    }
}
