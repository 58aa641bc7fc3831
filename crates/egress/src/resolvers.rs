//! The host's resolvers, as its `/etc/resolv.conf` names them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

const DNS: u16 = 53;
/// As many as the C library uses.
const MOST: usize = 3;

/// The resolvers in a file, read again for each use, because a host's network may change. None if
/// it cannot be read.
pub fn read(path: &Path) -> Vec<SocketAddr> {
    std::fs::read_to_string(path).map(|text| parse(&text)).unwrap_or_default()
}

fn parse(text: &str) -> Vec<SocketAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, DNS))
    });
    named.take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_name_servers_count() {
        let text = "# nameserver 1.1.1.1\nsearch lan\nnameserver 127.0.0.53\nnameserver ::1 # v6\n\
                    nameserver fe80::1%eth0\nnameserver\n\
                    nameserver 10.0.0.1\nnameserver 10.0.0.2\n";
        let named: Vec<String> = parse(text).iter().map(SocketAddr::to_string).collect();
        assert_eq!(named, ["127.0.0.53:53", "[::1]:53", "10.0.0.1:53"]);
        assert!(parse("").is_empty());
    }

    #[test]
    fn no_file_no_resolvers() {
        assert!(read(Path::new("/nonexistent/resolv.conf")).is_empty());
    }
}
