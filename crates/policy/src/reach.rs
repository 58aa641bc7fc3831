//! The floor: addresses that no machine reaches, under any policy, over TCP and UDP alike.
//!
//! Addresses of the host, of its operator (metadata services), and without a single receiver are
//! refused, by name. The caller asks the kernel whether an address is the host's own.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

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
    /// A private IPv6 address, which no rule can name.
    PrivateIpv6,
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
            Refusal::PrivateIpv6 => "a private IPv6 address",
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

/// Why no machine may reach an IPv6 address, if none may. Machines reach these by name alone, so no
/// rule names one: a private address is refused.
pub fn floor_v6(ip: Ipv6Addr, own: bool) -> Option<Refusal> {
    let [first, second, ..] = ip.segments();
    match () {
        () if ip.is_loopback() => Some(Refusal::Loopback),
        () if first & 0xffc0 == 0xfe80 => Some(Refusal::LinkLocal),
        () if first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0 => Some(Refusal::PrivateIpv6),
        () if ip.is_multicast() => Some(Refusal::Many),
        () if own => Some(Refusal::Host),
        () => match embedded(ip) {
            Some(four) => floor_of_embedded(four),
            // Teredo carries IPv4 addresses in a form of its own
            None if first & 0xe000 == 0x2000 && (first, second) != (0x2001, 0) => None,
            None => Some(Refusal::Nowhere),
        },
    }
}

/// The IPv4 address that a translator (NAT64) or a relay (6to4) makes of an address.
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let four = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(four(high, low)),
        [0x2002, high, low, ..] => Some(four(high, low)),
        _ => None,
    }
}

fn floor_of_embedded(ip: Ipv4Addr) -> Option<Refusal> {
    /// Any port will do: the floor does not depend on it.
    const PORT: u16 = 443;
    let private = || {
        PRIVATE.iter().any(|(first, prefix)| {
            u32::from(*first) >> (32 - prefix) == u32::from(ip) >> (32 - prefix)
        })
    };
    floor(SocketAddrV4::new(ip, PORT), false).or_else(|| private().then_some(Refusal::PrivateIpv6))
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

    #[test]
    fn ipv6_has_the_same_floor() {
        let floor = |text: &str| floor_v6(text.parse().unwrap(), false);
        for (text, refusal) in [
            ("::1", Refusal::Loopback),
            ("::", Refusal::Nowhere),
            ("::7f00:1", Refusal::Nowhere),
            ("::ffff:169.254.169.254", Refusal::Nowhere),
            ("fe80::1", Refusal::LinkLocal),
            ("febf::1", Refusal::LinkLocal),
            ("fd00:ec2::254", Refusal::PrivateIpv6),
            ("fc00::1", Refusal::PrivateIpv6),
            ("fec0::1", Refusal::PrivateIpv6),
            ("ff02::1", Refusal::Many),
            ("64:ff9b::127.0.0.1", Refusal::Loopback),
            ("64:ff9b::a9fe:a9fe", Refusal::LinkLocal),
            ("64:ff9b::10.1.2.3", Refusal::PrivateIpv6),
            ("64:ff9b:1::1", Refusal::Nowhere),
            ("2002:7f00:1::1", Refusal::Loopback),
            ("2002:c0a8:101::1", Refusal::PrivateIpv6),
            ("2001:0:1::1", Refusal::Nowhere),
            ("4000::1", Refusal::Nowhere),
        ] {
            assert_eq!(floor(text), Some(refusal), "{text}");
        }
        for text in ["2001:db8::1", "2606:4700::1111", "64:ff9b::203.0.113.7", "2002:cb00:7107::1"]
        {
            assert_eq!(floor(text), None, "{text}");
            assert_eq!(floor_v6(text.parse().unwrap(), true), Some(Refusal::Host), "{text}");
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
