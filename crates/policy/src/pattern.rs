//! Patterns of rules: hosts with ports and a protocol, and modules.
//!
//! ```text
//!   api.example.com            this name
//!   *.example.com              every name below it, at any depth, not the name itself
//!   *                          every name, and every address that is not private
//!   203.0.113.7, 10.1.0.0/16   addresses
//!   HOST:443,8000-8100/udp     ports, and the protocol
//! ```
//!
//! An incomplete rule has the narrower meaning: without ports, `allow` and `ask` mean TCP on 80 and
//! 443, and `deny` means everything. An invalid pattern is an error that quotes it and suggests a
//! valid form.

use crate::reach::{self, Protocol};
use std::net::{Ipv4Addr, SocketAddrV4};

/// A name of the DNS has no more.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// The name of a list of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    Allow,
    Ask,
    Deny,
}

impl RuleKind {
    pub fn word(self) -> &'static str {
        match self {
            RuleKind::Allow => "allow",
            RuleKind::Ask => "ask",
            RuleKind::Deny => "deny",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Any,
    Name(String),
    /// The suffix with its dot.
    Below(String),
    Network {
        first: Ipv4Addr,
        prefix: u32,
    },
}

/// A rule about connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPattern {
    host: HostPattern,
    /// First and last port of each range.
    ports: Vec<(u16, u16)>,
    protocol: Option<Protocol>,
}

/// A name in lower case and without a final dot, if connections to it are possible.
pub fn normal_name(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let label =
        |label: &str| !label.is_empty() && label.len() <= LONGEST_LABEL && label.chars().all(plain);
    let whole = !text.is_empty() && text.len() <= LONGEST_NAME && text.split('.').all(label);
    // `1.2.3.4` is an address, even if requested as a name
    let numeric = text.rsplit('.').next().is_some_and(|last| last.parse::<u64>().is_ok());
    (whole && !numeric).then(|| text.to_ascii_lowercase())
}

impl HostPattern {
    fn parse(text: &str) -> Result<HostPattern, String> {
        if text == "*" {
            return Ok(HostPattern::Any);
        }
        if let Some(below) = text.strip_prefix("*.") {
            let name = normal_name(below).ok_or_else(|| not_a_host(text))?;
            return Ok(HostPattern::Below(format!(".{name}")));
        }
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, prefix.parse().ok().filter(|n| *n <= 32)),
            None => (text, Some(32)),
        };
        if let Ok(first) = address.parse::<Ipv4Addr>() {
            let prefix = prefix.ok_or_else(|| not_a_host(text))?;
            let masked = masked(first, prefix);
            if masked != first {
                return Err(format!(
                    "{text:?} has bits beyond its prefix: write {masked}/{prefix}"
                ));
            }
            return Ok(HostPattern::Network { first, prefix });
        }
        normal_name(text).map(HostPattern::Name).ok_or_else(|| not_a_host(text))
    }

    fn fits_name(&self, name: &str) -> bool {
        match self {
            HostPattern::Any => true,
            HostPattern::Name(own) => own == name,
            HostPattern::Below(suffix) => name.len() > suffix.len() && name.ends_with(suffix),
            HostPattern::Network { .. } => false,
        }
    }

    fn fits_address(&self, ip: Ipv4Addr) -> bool {
        match self {
            HostPattern::Any => true,
            HostPattern::Network { first, prefix } => masked(ip, *prefix) == *first,
            HostPattern::Name(_) | HostPattern::Below(_) => false,
        }
    }

    /// Whether it names this private address, not merely a range so wide that it is in it.
    fn names_private(&self, ip: Ipv4Addr) -> bool {
        let HostPattern::Network { first, prefix } = self else { return false };
        let within = |(range, least): (Ipv4Addr, u32)| {
            masked(*first, least) == range && *prefix >= least && masked(ip, least) == range
        };
        reach::PRIVATE.into_iter().any(within) && self.fits_address(ip)
    }
}

fn masked(ip: Ipv4Addr, prefix: u32) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
    Ipv4Addr::from(u32::from(ip) & mask)
}

/// Whether an address needs an explicit rule.
pub fn is_private(ip: Ipv4Addr) -> bool {
    reach::PRIVATE.into_iter().any(|(range, prefix)| masked(ip, prefix) == range)
}

fn not_a_host(text: &str) -> String {
    let text: String = text.chars().take(80).collect();
    let hint = match text {
        ref text if text.contains("://") => "write the host alone, without a scheme or a path",
        ref text if text.matches(':').count() > 1 => {
            "machines reach hosts of IPv6 by name alone, so write the name"
        }
        ref text if !text.is_ascii() => "write a name with other letters in its `xn--` form",
        ref text if text.contains('*') => "a `*` must be the first label: `*.example.com`",
        _ => "write a name, `*.` and a name, an IPv4 address, or a range such as 10.1.0.0/16",
    };
    format!("{text:?} is not a host: {hint}")
}

impl NetworkPattern {
    pub fn parse(text: &str, kind: RuleKind) -> Result<NetworkPattern, String> {
        if text.contains("://") {
            return Err(not_a_host(text));
        }
        let (rest, protocol) = match text.rsplit_once('/') {
            Some((rest, "tcp")) => (rest, Some(Protocol::Tcp)),
            Some((rest, "udp")) => (rest, Some(Protocol::Udp)),
            _ => (text, None),
        };
        let (host, ports) = match rest.rsplit_once(':') {
            Some((host, ports)) if !host.contains(':') => (host, Some(ports)),
            _ => (rest, None),
        };
        let host = HostPattern::parse(host)?;
        let ports = ports.map(|ports| port_ranges(text, ports)).transpose()?;
        let (ports, protocol) = match (kind, ports, protocol) {
            (RuleKind::Deny, ports, protocol) => (ports.unwrap_or(vec![(0, u16::MAX)]), protocol),
            (_, None, Some(Protocol::Udp)) => {
                return Err(format!("{text:?} needs a port, such as `:123/udp`"));
            }
            (_, ports, protocol) => {
                let ports = ports.unwrap_or(vec![(80, 80), (443, 443)]);
                (ports, Some(protocol.unwrap_or(Protocol::Tcp)))
            }
        };
        Ok(NetworkPattern { host, ports, protocol })
    }

    fn fits_port(&self, port: u16, protocol: Protocol) -> bool {
        self.protocol.is_none_or(|own| own == protocol)
            && self.ports.iter().any(|(first, last)| (*first..=*last).contains(&port))
    }

    /// Whether it denies, or asks about, a connection: by its name or by its address.
    pub fn covers(&self, name: Option<&str>, to: SocketAddrV4, protocol: Protocol) -> bool {
        let host = name.is_some_and(|name| self.host.fits_name(name));
        (host || self.host.fits_address(*to.ip())) && self.fits_port(to.port(), protocol)
    }

    /// Whether it allows a connection. A private address is allowed by a rule that names it.
    pub fn allows(&self, name: Option<&str>, to: SocketAddrV4, protocol: Protocol) -> bool {
        let host = match is_private(*to.ip()) {
            true => self.host.names_private(*to.ip()),
            false => {
                let named = name.is_some_and(|name| self.host.fits_name(name));
                named || self.host.fits_address(*to.ip())
            }
        };
        host && self.fits_port(to.port(), protocol)
    }

    /// Whether it matches a name, on any port.
    pub fn fits_name(&self, name: &str) -> bool {
        self.host.fits_name(name)
    }

    /// The same, over one protocol.
    pub(crate) fn over(self, protocol: Protocol) -> NetworkPattern {
        NetworkPattern { protocol: Some(protocol), ..self }
    }

    /// Whether it leaves no port and no protocol out.
    pub fn is_total(&self) -> bool {
        self.protocol.is_none() && self.ports.contains(&(0, u16::MAX))
    }
}

fn port_ranges(text: &str, ports: &str) -> Result<Vec<(u16, u16)>, String> {
    let wrong = || {
        format!("{text:?}: {ports:?} are not ports: write 443, 8000-8100, or several with commas")
    };
    let one = |part: &str| {
        if part == "*" {
            return Some((0, u16::MAX));
        }
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let range = (number(first)?, number(last)?);
        (range.0 <= range.1).then_some(range)
    };
    ports.split(',').map(one).collect::<Option<Vec<_>>>().ok_or_else(wrong)
}

/// A rule about modules: a name, or the beginning of one and `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModulePattern {
    name: String,
    below: bool,
}

impl ModulePattern {
    pub fn parse(text: &str) -> Result<ModulePattern, String> {
        let (name, below) = match text.strip_suffix('*') {
            Some(name) => (name, true),
            None => (text, false),
        };
        let web = name.strip_prefix("https://");
        // a host that could continue, as in `https://esm.sh*`, would match any host with that
        // prefix
        let cut_host = web.is_some_and(|rest| !rest.contains('/') && (below || rest.is_empty()));
        let package = name.strip_prefix("npm:").or(name.strip_prefix("jsr:"));
        let package_ok = package.is_some_and(|name| below || !name.is_empty());
        let is_version = package.is_some_and(|name| name.len() > 1 && name[1..].contains('@'));
        if name.contains('*') || cut_host || is_version || (web.is_none() && !package_ok) {
            let hint = match () {
                () if is_version => "versions are not part of a rule",
                () if cut_host => "write the host with its slash, such as https://esm.sh/*",
                () => "write npm:NAME, jsr:@SCOPE/NAME or https://HOST/PATH, with `*` at the end",
            };
            let text: String = text.chars().take(80).collect();
            return Err(format!("{text:?} is not a module: {hint}"));
        }
        Ok(ModulePattern { name: name.to_owned(), below })
    }

    /// Whether it matches a module, of any version and path inside its package.
    pub fn fits(&self, specifier: &str) -> bool {
        let name = package_of(specifier);
        if self.below { name.starts_with(&self.name) } else { name == self.name }
    }
}

/// `npm:@a/b@1/c` is of the package `npm:@a/b`; the name of a web module is all of it.
pub(crate) fn package_of(specifier: &str) -> String {
    let Some((scheme @ ("npm" | "jsr"), rest)) = specifier.split_once(':') else {
        return url::Url::parse(specifier).map_or_else(|_| specifier.to_owned(), Into::into);
    };
    let rest = rest.trim_start_matches('/');
    let scoped = rest.starts_with('@');
    let mut parts = rest.splitn(if scoped { 3 } else { 2 }, '/');
    let mut name = parts.next().unwrap_or_default().to_owned();
    if scoped && let Some(second) = parts.next() {
        name = format!("{name}/{second}");
    }
    let version = name.get(1..).and_then(|tail| tail.find('@')).map(|at| at + 1);
    name.truncate(version.unwrap_or(name.len()));
    format!("{scheme}:{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NetworkPattern {
        NetworkPattern::parse(text, RuleKind::Allow).expect(text)
    }

    fn allows(rule: &str, name: Option<&str>, to: &str) -> bool {
        pattern(rule).allows(name, to.parse().expect("an address"), Protocol::Tcp)
    }

    #[test]
    fn names_wildcards_and_ports() {
        let (public, name) = ("203.0.113.7", |name| Some(name));
        assert!(allows("a.example", name("a.example"), "203.0.113.7:443"));
        assert!(allows("A.Example.", name("a.example"), "203.0.113.7:80"));
        assert!(!allows("a.example", name("b.a.example"), "203.0.113.7:443"));
        assert!(!allows("a.example", name("a.example"), "203.0.113.7:22"));
        assert!(!allows("a.example", None, "203.0.113.7:443"));
        assert!(allows("*.example", name("a.b.example"), "203.0.113.7:443"));
        assert!(!allows("*.example", name("example"), "203.0.113.7:443"));
        assert!(!allows("*.example", name("badexample"), "203.0.113.7:443"));
        assert!(allows("a.example:8000-8100,9000", name("a.example"), &format!("{public}:8050")));
        assert!(allows("a.example:*", name("a.example"), &format!("{public}:1")));
        assert!(allows("*", name("x.y"), "203.0.113.7:443") && allows("*", None, "203.0.113.7:80"));
        assert!(allows("203.0.113.0/24", None, "203.0.113.7:443"));
        let udp = NetworkPattern::parse("t.example:123/udp", RuleKind::Allow).expect("a rule");
        let to = "203.0.113.7:123".parse().expect("an address");
        assert!(udp.allows(Some("t.example"), to, Protocol::Udp));
        assert!(!udp.allows(Some("t.example"), to, Protocol::Tcp));
    }

    #[test]
    fn private_addresses_need_a_rule_that_names_them() {
        for to in ["10.1.2.3:443", "172.16.0.1:443", "192.168.1.1:443", "100.64.0.9:443"] {
            for rule in ["*", "0.0.0.0/0", "8.0.0.0/5", "db.example"] {
                assert!(!allows(rule, Some("db.example"), to), "{rule} {to}");
            }
        }
        assert!(allows("10.0.0.0/8", None, "10.1.2.3:443"));
        assert!(allows("10.1.2.3:443", None, "10.1.2.3:443"));
        assert!(!allows("10.1.0.0/16", None, "10.2.0.1:443"));
    }

    #[test]
    fn what_is_no_rule_says_what_to_write() {
        let said = |text: &str| NetworkPattern::parse(text, RuleKind::Allow).unwrap_err();
        for (text, hint) in [
            ("https://a.example", "without a scheme"),
            ("bücher.example", "xn--"),
            ("a.*.example", "`*.example.com`"),
            ("", "write a name"),
            ("a..b", "write a name"),
            ("1.2.3.4.5", "write a name"),
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("10.0.0.0/33", "write a name"),
            ("a.example:0", "are not ports"),
            ("a.example:9-8", "are not ports"),
            ("a.example:99999", "are not ports"),
            ("a.example/udp", "needs a port"),
            ("::1", "IPv6 by name alone"),
        ] {
            assert!(said(text).contains(hint), "{text}: {}", said(text));
        }
    }

    #[test]
    fn modules_are_known_by_their_names() {
        let fits = |rule: &str, name: &str| ModulePattern::parse(rule).expect(rule).fits(name);
        assert!(fits("npm:lodash", "npm:lodash@4.17.21/fp") && fits("npm:lodash", "npm:/lodash"));
        assert!(!fits("npm:lodash", "npm:lodash-es") && !fits("npm:lodash", "jsr:lodash"));
        assert!(fits("jsr:@std/*", "jsr:@std/path@1") && !fits("jsr:@std/*", "jsr:@stdx/path"));
        assert!(fits("npm:@a/b", "npm:@a/b@1.2/c/d") && fits("npm:*", "npm:@a/b"));
        assert!(fits("https://esm.sh/*", "https://esm.sh/react@19"));
        assert!(fits("https://esm.sh/*", "https://ESM.sh:443/react"));
        assert!(!fits("https://esm.sh/*", "https://esm.sh.evil.example/react"));
        assert!(!fits("https://esm.sh/*", "https://esm.sh@evil.example/react"));
        assert!(!fits("https://esm.sh/a/*", "https://esm.sh/a/../b"));
        for rule in
            ["lodash", "npm:", "https://esm.sh*", "https://*", "npm:a@1", "npm:*a", "http://a/"]
        {
            assert!(ModulePattern::parse(rule).is_err(), "{rule}");
        }
    }
}
