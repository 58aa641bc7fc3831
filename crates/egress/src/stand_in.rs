//! Hosts outside that have IPv6 only: an IPv4 address stands for each of their addresses.
//!
//!   name without IPv4 ─► its IPv6 addresses ─► floor? route? ─► 192.88.99.N ─► machine
//!   connection to 192.88.99.N ─► judged by its name ─► socket of the host, over IPv6
//!
//! Machines have IPv4 only, so every client works as it is. The range belonged to relays between
//! the two kinds of addresses and has been out of use since RFC 7526. Each machine has its own
//! table. When it is full, the address that was resolved longest ago makes room.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

const NET: [u8; 3] = [192, 88, 99];
/// The last octets in use are 1 to this.
const MOST: usize = 250;

#[derive(Debug, Default)]
pub struct StandIns {
    /// The address that each one stands for, and when it was resolved last.
    all: Vec<(Ipv6Addr, Instant)>,
}

/// An address that stands for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandIn {
    pub ip: Ipv4Addr,
    /// It stood for another address before, or for none.
    pub is_new: bool,
}

impl StandIns {
    /// The address that stands for an IPv6 address from now on.
    pub fn stand_for(&mut self, six: Ipv6Addr, now: Instant) -> StandIn {
        if let Some(index) = self.all.iter().position(|(own, _)| *own == six) {
            self.all[index].1 = now;
            return StandIn { ip: at(index), is_new: false };
        }
        let oldest = (0..self.all.len()).min_by_key(|index| self.all[*index].1);
        let index = match oldest.filter(|_| self.all.len() >= MOST) {
            Some(index) => {
                self.all[index] = (six, now);
                index
            }
            None => {
                self.all.push((six, now));
                self.all.len() - 1
            }
        };
        StandIn { ip: at(index), is_new: true }
    }

    /// The address that an address stands for, if it does.
    pub fn of(&self, ip: Ipv4Addr) -> Option<Ipv6Addr> {
        let [a, b, c, last] = ip.octets();
        let index = usize::from(last).checked_sub(1).filter(|_| [a, b, c] == NET)?;
        self.all.get(index).map(|(six, _)| *six)
    }
}

fn at(index: usize) -> Ipv4Addr {
    let [a, b, c] = NET;
    Ipv4Addr::new(a, b, c, index as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_address_has_one_and_the_oldest_makes_room() {
        let (mut all, start) = (StandIns::default(), Instant::now());
        let six = |n: usize| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n as u16);
        let at = |n: usize| start + Duration::from_millis(n as u64);
        let first = all.stand_for(six(0), at(0));
        assert_eq!(first, StandIn { ip: Ipv4Addr::new(192, 88, 99, 1), is_new: true });
        for n in 1..MOST {
            assert!(all.stand_for(six(n), at(n)).is_new);
        }
        assert_eq!(all.stand_for(six(0), at(MOST)), StandIn { is_new: false, ..first });
        assert_eq!(all.of(first.ip), Some(six(0)));
        // the one resolved longest ago is now the second
        let next = all.stand_for(six(MOST), at(MOST + 1));
        assert_eq!(next, StandIn { ip: Ipv4Addr::new(192, 88, 99, 2), is_new: true });
        assert_eq!(all.of(next.ip), Some(six(MOST)));
        for other in ["192.88.99.0", "192.88.99.251", "192.88.98.1", "10.0.0.1"] {
            assert_eq!(all.of(other.parse().expect("an address")), None, "{other}");
        }
    }
}
