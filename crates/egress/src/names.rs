//! The names that a machine resolved its addresses from.
//!
//! Entries live as long as the answer, within bounds: clients use an address for a while after it
//! expires. When there are too many, the one that expires first is removed. A removed address is
//! judged as an address.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Entries of one machine.
const MOST: usize = 4096;
/// Names of one address.
const MOST_NAMES: usize = 16;
const SHORTEST: Duration = Duration::from_secs(300);
const LONGEST: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub struct ResolvedNames {
    names: HashMap<Ipv4Addr, Vec<(String, Instant)>>,
    count: usize,
}

impl ResolvedNames {
    pub fn remember(&mut self, ip: Ipv4Addr, name: &str, ttl: Duration, now: Instant) {
        let until = now + ttl.clamp(SHORTEST, LONGEST);
        let of_address = self.names.entry(ip).or_default();
        if let Some(index) = of_address.iter().position(|(own, _)| own == name) {
            let (name, before) = of_address.remove(index);
            return of_address.push((name, until.max(before)));
        }
        if of_address.len() >= MOST_NAMES {
            drop_first(of_address);
            self.count -= 1;
        }
        of_address.push((name.to_owned(), until));
        self.count += 1;
        if self.count > MOST {
            self.make_room(now);
        }
    }

    /// Forgets the names of an address, which is another host's from now on.
    pub fn forget(&mut self, ip: Ipv4Addr) {
        self.count -= self.names.remove(&ip).map_or(0, |names| names.len());
    }

    /// Names of an address, the one resolved last at the end.
    pub fn of(&self, ip: Ipv4Addr, now: Instant) -> impl Iterator<Item = &str> {
        let known = self.names.get(&ip).into_iter().flatten();
        known.filter(move |(_, until)| *until > now).map(|(name, _)| name.as_str())
    }

    fn make_room(&mut self, now: Instant) {
        self.names.retain(|_, names| {
            names.retain(|(_, until)| *until > now);
            !names.is_empty()
        });
        self.count = self.names.values().map(Vec::len).sum();
        if self.count > MOST {
            let first = self.names.iter().min_by_key(|(_, names)| names.iter().map(|n| n.1).min());
            if let Some(names) = first.map(|(ip, _)| *ip).and_then(|ip| self.names.get_mut(&ip)) {
                drop_first(names);
                self.count -= 1;
            }
        }
    }
}

/// Drops the entry that ends first.
fn drop_first(names: &mut Vec<(String, Instant)>) {
    let first = names.iter().enumerate().min_by_key(|(_, (_, until))| *until);
    if let Some(index) = first.map(|(index, _)| index) {
        names.remove(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_for_a_while() {
        let (mut names, now) = (ResolvedNames::default(), Instant::now());
        let ip = Ipv4Addr::new(203, 0, 113, 1);
        names.remember(ip, "a.example", Duration::ZERO, now);
        names.remember(ip, "b.example", Duration::MAX, now);
        names.remember(ip, "a.example", Duration::ZERO, now);
        assert_eq!(names.of(ip, now).collect::<Vec<_>>(), ["b.example", "a.example"]);
        let later = now + SHORTEST;
        assert_eq!(names.of(ip, later).collect::<Vec<_>>(), ["b.example"]);
        assert_eq!(names.of(ip, now + LONGEST).count(), 0);
        assert_eq!(names.of(Ipv4Addr::new(203, 0, 113, 2), now).count(), 0);
        names.forget(ip);
        assert_eq!((names.of(ip, now).count(), names.count), (0, 0));
    }

    #[test]
    fn there_are_only_so_many() {
        let (mut names, now) = (ResolvedNames::default(), Instant::now());
        for number in 0..20_000u32 {
            let ip = Ipv4Addr::from(0xcb00_7100 + number / 40);
            let at = now + Duration::from_millis(number.into());
            names.remember(ip, &format!("n{number}.example"), Duration::ZERO, at);
        }
        assert!(names.count <= MOST, "{}", names.count);
        assert_eq!(names.count, names.names.values().map(Vec::len).sum::<usize>());
        assert!(names.names.values().all(|names| names.len() <= MOST_NAMES));
        let last = Ipv4Addr::from(0xcb00_7100 + 19_999 / 40);
        assert!(names.of(last, now).any(|name| name == "n19999.example"));
    }
}
