//! Packets of a machine: parsing, and construction of our own. Pure bytes.
//!
//! Anything that is not TCP or UDP over IPv4, whole and well-formed, is nothing to us.

use crate::device::checksums;
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr, IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr,
    TcpPacket, UdpPacket, UdpRepr,
};
use std::net::SocketAddrV4;

/// Source and destination of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoints {
    pub machine: SocketAddrV4,
    pub outside: SocketAddrV4,
}

#[derive(Debug, PartialEq, Eq)]
pub enum PacketKind<'a> {
    /// The first packet of a connection.
    Opening(Endpoints),
    /// Any other packet of one.
    Segment,
    Datagram(Endpoints, &'a [u8]),
    Other,
}

pub fn look(packet: &[u8]) -> PacketKind<'_> {
    kind(packet).unwrap_or(PacketKind::Other)
}

fn kind(packet: &[u8]) -> Option<PacketKind<'_>> {
    if packet.first()? >> 4 != 4 {
        return None;
    }
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    if ip.more_frags() || ip.frag_offset() != 0 {
        return None;
    }
    let ends = |from: u16, to: u16| Endpoints {
        machine: SocketAddrV4::new(ip.src_addr(), from),
        outside: SocketAddrV4::new(ip.dst_addr(), to),
    };
    match ip.next_header() {
        IpProtocol::Tcp => {
            let tcp = TcpPacket::new_checked(ip.payload()).ok()?;
            let opens = tcp.syn() && !tcp.ack() && !tcp.rst();
            Some(if opens {
                PacketKind::Opening(ends(tcp.src_port(), tcp.dst_port()))
            } else {
                PacketKind::Segment
            })
        }
        IpProtocol::Udp => {
            let udp = UdpPacket::new_checked(ip.payload()).ok()?;
            let payload = UdpPacket::new_unchecked(ip.payload()).payload();
            Some(PacketKind::Datagram(ends(udp.src_port(), udp.dst_port()), payload))
        }
        _ => None,
    }
}

/// A datagram from outside to the machine.
pub fn datagram(ends: &Endpoints, payload: &[u8]) -> Vec<u8> {
    const UDP: usize = 8;
    let (from, to) = (*ends.outside.ip(), *ends.machine.ip());
    let ip = ip_to(ends, IpProtocol::Udp, UDP + payload.len());
    let mut packet = vec![0; ip.buffer_len() + UDP + payload.len()];
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut packet), &checksums());
    let udp = UdpRepr { src_port: ends.outside.port(), dst_port: ends.machine.port() };
    udp.emit(
        &mut UdpPacket::new_unchecked(&mut packet[ip.buffer_len()..]),
        &IpAddress::Ipv4(from),
        &IpAddress::Ipv4(to),
        payload.len(),
        |room| room.copy_from_slice(payload),
        &checksums(),
    );
    packet
}

/// The answer to a datagram that may not be sent, or that is not accepted.
pub fn unreachable(
    ends: &Endpoints,
    packet: &[u8],
    reason: Icmpv4DstUnreachable,
) -> Option<Vec<u8>> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let header = Ipv4Repr::parse(&ip, &checksums()).ok()?;
    // the header of the datagram, and as much of the rest as every kernel reads
    let data = ip.payload().get(..8)?;
    let icmp = Icmpv4Repr::DstUnreachable { reason, header, data };
    let ip = ip_to(ends, IpProtocol::Icmp, icmp.buffer_len());
    let mut answer = vec![0; ip.buffer_len() + icmp.buffer_len()];
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut answer), &checksums());
    let mut room = Icmpv4Packet::new_unchecked(&mut answer[ip.buffer_len()..]);
    icmp.emit(&mut room, &checksums());
    Some(answer)
}

fn ip_to(ends: &Endpoints, next_header: IpProtocol, payload_len: usize) -> Ipv4Repr {
    let (src_addr, dst_addr) = (*ends.outside.ip(), *ends.machine.ip());
    Ipv4Repr { src_addr, dst_addr, next_header, payload_len, hop_limit: 64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends() -> Endpoints {
        Endpoints {
            machine: "192.0.0.2:4000".parse().unwrap(),
            outside: "10.1.2.3:53".parse().unwrap(),
        }
    }

    fn back(ends: Endpoints) -> Endpoints {
        Endpoints { machine: ends.outside, outside: ends.machine }
    }

    #[test]
    fn a_datagram_is_read_as_it_was_written() {
        let packet = datagram(&back(ends()), b"question");
        assert_eq!(look(&packet), PacketKind::Datagram(ends(), b"question"));
        let ip = Ipv4Packet::new_checked(&packet[..]).unwrap();
        assert!(ip.verify_checksum());
        let udp = UdpPacket::new_checked(ip.payload()).unwrap();
        assert!(udp.verify_checksum(&ip.src_addr().into(), &ip.dst_addr().into()));
    }

    #[test]
    fn an_answer_names_what_it_answers() {
        let packet = datagram(&back(ends()), b"question");
        let answer = unreachable(&ends(), &packet, Icmpv4DstUnreachable::PortUnreachable).unwrap();
        let ip = Ipv4Packet::new_checked(&answer[..]).unwrap();
        assert_eq!(ip.src_addr(), *ends().outside.ip());
        assert_eq!(&ip.payload()[8..12], &packet[..4]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at(packet in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = look(&packet);
            let _ = unreachable(&ends(), &packet, Icmpv4DstUnreachable::PortUnreachable);
        }

        #[test]
        fn damaged_packets_too(at in 0usize..36, value: u8, cut in 0usize..40) {
            let mut packet = datagram(&back(ends()), b"question");
            packet[at.min(35)] = value;
            packet.truncate(cut);
            let _ = look(&packet);
            let _ = unreachable(&ends(), &packet, Icmpv4DstUnreachable::PortUnreachable);
        }
    }
}
